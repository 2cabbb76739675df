"""Falling back to HTTP and returning, with the server at PENSTOCK_URL."""

import asyncio
import os
import ssl
from typing import Any

import pytest

from penstock_client import Client, Fallback, PenstockError
from penstock_client import _fallback as fallback
from penstock_client._http_wire import HTTPWire

URL = os.environ["PENSTOCK_URL"]
HTTP_URL = URL.replace("ws", "http", 1) + "/http"
CLOSED = "ws://127.0.0.1:1/"  # which nothing listens on


def test_blocked_client_uses_http_and_returns_without_losing_a_publication(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback, "MIN_PROBE", 0.1)
    reports: list[str] = []
    blocked = True

    async def main() -> None:
        nonlocal blocked
        options = Fallback(HTTP_URL, lambda transport, _: reports.append(transport))
        client = Client(lambda: CLOSED if blocked else URL, fallback=options, resume=True)
        async with client, Client(URL) as writer:
            assert reports == ["http-stream"]
            room = client.subscribe("room/return")
            await room.ready()
            said: list[str] = []
            n = 0
            blocked = False
            while n < 20 or client.connection is None or not client.connection.resumed:
                await writer.send("SAY", {"room": "return", "text": str(n)})
                n += 1
                await asyncio.sleep(0.02)
            async for message in room:
                said.append(message.payload["text"])
                if len(said) == n:
                    break
            assert said == [str(i) for i in range(n)]
            assert reports == ["http-stream", "websocket"]

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("mode", ["stream", "poll"])
def test_messages_of_all_sizes_travel_over_http(mode: Any) -> None:
    async def main() -> None:
        async with Client(URL, fallback=Fallback(HTTP_URL, mode=mode)) as client:
            assert isinstance(next(iter(client._runtime._sockets.values()))._wire, HTTPWire)
            calls = [client.call("ECHO", {"n": n}) for n in range(50)]
            assert [reply["n"] for reply in await asyncio.gather(*calls)] == list(range(50))
            room = f"sizes {mode}"
            texts = ["a" * 40_000, "ü\u2028\n" * 5_000, ""]
            for text in texts:
                await client.send("SAY", {"room": room, "text": text})
            assert (await client.call("GET_HISTORY", {"room": room}))["texts"] == texts
            assert [row["id"] async for row in client.stream("EXPORT_ROWS", {"count": 500})] == list(range(500))

    asyncio.run(asyncio.wait_for(main(), 60))


def test_refused_token_stops_the_client_over_http_too() -> None:
    async def main() -> None:
        client = Client(URL, token="wrong", fallback=Fallback(HTTP_URL, mode="stream"))
        with pytest.raises(PenstockError) as refused:
            await client.connect()
        assert refused.value.code == "UNAUTHENTICATED"
        await client.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_connection_over_http_through_a_proxy_and_with_tls() -> None:
    asked: list[str] = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass  # of a request that was canceled
        finally:
            writer.close()

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.split(b"\r\n")[0].decode())
        host, port = head.split()[1].decode().rsplit(":", 1)
        to_server, from_server = (await asyncio.open_connection(host, int(port)))[::-1]
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(relay(reader, to_server), relay(from_server, writer), return_exceptions=True)

    async def main() -> None:
        server = await asyncio.start_server(proxy, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        url = os.environ["PENSTOCK_TLS_URL"]
        context = ssl.create_default_context(cafile=os.environ["PENSTOCK_CERTIFICATE"])
        options = Fallback(url.replace("ws", "http", 1) + "/http", mode="stream")
        async with Client(url, ssl=context, proxy=f"http://127.0.0.1:{port}", fallback=options) as client:
            assert await client.call("ECHO", {"n": 7}) == {"n": 7}
        server.close()
        assert asked and all(line.startswith("CONNECT ") for line in asked)

    asyncio.run(asyncio.wait_for(main(), 60))

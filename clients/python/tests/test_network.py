"""TLS, proxies and compression, with the servers at PENSTOCK_URL and PENSTOCK_TLS_URL."""

import asyncio
import os
import ssl

import pytest

from penstock_client import Client, PenstockError, StateInfo
from penstock_client._wire import WebSocketWire

URL = os.environ["PENSTOCK_URL"]
TLS_URL = os.environ["PENSTOCK_TLS_URL"]


async def echo(client: Client) -> None:
    assert await client.call("ECHO", {"n": 7}) == {"n": 7}


def test_tls_with_the_certificate_of_the_server() -> None:
    async def main() -> None:
        context = ssl.create_default_context(cafile=os.environ["PENSTOCK_CERTIFICATE"])
        async with Client(TLS_URL, ssl=context) as client:
            await echo(client)

    asyncio.run(main())


def test_tls_with_an_unknown_certificate_is_refused() -> None:
    async def main() -> None:
        failed: asyncio.Future[PenstockError] = asyncio.get_running_loop().create_future()

        def listener(state: str, info: StateInfo) -> None:
            if state == "waiting" and info.error is not None and not failed.done():
                failed.set_result(info.error)

        client = Client(TLS_URL)
        client.on_state(listener)
        connecting = asyncio.create_task(client.connect())
        error = await asyncio.wait_for(failed, 30)
        assert "CERTIFICATE_VERIFY_FAILED" in error.message
        await client.close()
        with pytest.raises(PenstockError):
            await connecting

    asyncio.run(main())


def test_connection_through_a_proxy() -> None:
    asked: list[bytes] = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.split(b"\r\n")[0])
        host, port = head.split()[1].decode().rsplit(":", 1)
        to_server, from_server = (await asyncio.open_connection(host, int(port)))[::-1]
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(relay(reader, to_server), relay(from_server, writer), return_exceptions=True)

    async def main() -> None:
        server = await asyncio.start_server(proxy, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with Client(URL, proxy=f"http://127.0.0.1:{port}") as client:
            await echo(client)
        server.close()
        assert [line.split()[0] for line in asked] == [b"CONNECT"]

    asyncio.run(main())


@pytest.mark.parametrize("compression", [True, False])
def test_compression_is_negotiated(compression: bool) -> None:
    async def main() -> None:
        async with Client(URL, compression=compression) as client:
            await echo(client)
            (socket,) = client._runtime._sockets.values()
            assert isinstance(socket._wire, WebSocketWire)
            assert bool(socket._wire.socket.protocol.extensions) == compression
            text = "x" * 10_000
            await client.send("SAY", {"room": "compressed", "text": text})
            history = await client.call("GET_HISTORY", {"room": "compressed"})
            assert history["texts"][-1] == text

    asyncio.run(main())

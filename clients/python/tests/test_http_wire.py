"""A connection over HTTP, with a server that a test scripts, in virtual time."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest
import virtual
from blocked import Response, answer

from penstock_client._http_wire import Events, HTTPWire
from penstock_client._wire import Ended

OPEN = 'event: open\ndata: {"secret":"s3cret","protocol":""}\n\n'


class Server:
    """Records requests. Unless a test says otherwise, an open and a down are answered with a stream, an up with 204."""

    def __init__(self, mode: Any = "stream") -> None:
        self.requests: list[tuple[str, Any, list[str]]] = []
        self.answers: dict[str, list[str]] = {"open": [], "down": [], "up": []}
        self.streams: list[Response] = []
        self.modes: list[str] = []
        self.wire = HTTPWire(self.request, {"protocols": []}, {"X-A": "b"}, mode, self.modes.append)

    async def request(self, method: str, query: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        assert (method, headers["X-A"]) == ("POST", "b")
        head, *messages = (body or b"").decode().split("\n")
        self.requests.append((query, json.loads(head), messages))
        default = {"open": "opens", "down": "mute", "up": "204 ours"}[query]
        text = self.answers[query].pop(0) if self.answers[query] else default
        if text not in ("opens", "mute"):
            return await answer(text)
        self.streams.append(Response(200))
        if text == "opens":
            self.write(OPEN)
        return self.streams[-1]

    def write(self, text: str) -> None:
        self.streams[-1].write(text)

    def event(self, number: int, data: str) -> None:
        self.write(f"id: {number}\ndata: {data}\n\n")

    def of(self, query: str) -> list[Any]:
        return [head if not messages else (head, *messages) for q, head, messages in self.requests if q == query]


def with_server(test: Callable[[Server], Coroutine[Any, Any, None]], mode: Any = "stream") -> None:
    async def main() -> None:
        server = Server(mode)
        await server.wire.open()
        await test(server)

    virtual.run(main)


async def settled() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


def test_events_come_in_parts_of_any_size() -> None:
    whole = ':\r\n\r\nid: 1\r\ndata: {"t":"ü\u2028"}\r\n\r\nevent: ping\nid: 2\ndata:\n\n'.encode()
    want = [{}, {"id": "1", "data": '{"t":"ü\u2028"}'}, {"event": "ping", "id": "2", "data": ""}]
    for size in range(1, len(whole) + 1):
        events = Events()
        got = [e for i in range(0, len(whole), size) for e in events.feed(whole[i : i + size])]
        assert [e for e in got if e] == want[1:]


def test_messages_that_are_sent_together_share_a_request() -> None:
    async def test(server: Server) -> None:
        for text in (b"1", b"2"):
            await server.wire.send(text)
        await settled()
        await server.wire.send(b"3")
        await settled()
        assert server.of("up") == [
            ({"secret": "s3cret", "ack": 0, "seq": 1}, "1", "2"),
            ({"secret": "s3cret", "ack": 0, "seq": 2}, "3"),
        ]

    with_server(test)


def test_batches_are_bounded_and_send_waits_for_room() -> None:
    async def test(server: Server) -> None:
        server.answers["up"] = ["1s 204 ours"] * 3
        began = asyncio.get_running_loop().time()
        for _ in range(5):
            await server.wire.send(b"x" * 30_000)
        assert asyncio.get_running_loop().time() - began >= 1
        await asyncio.sleep(5)
        assert [len(up) - 1 for up in server.of("up")] == [2, 1, 2]

    with_server(test)


@pytest.mark.parametrize("status", ["reset", "429 ours", "503 ours", "204", "502"])
def test_request_without_an_answer_is_sent_again(status: str) -> None:
    async def test(server: Server) -> None:
        server.answers["up"] = [status, status]
        await server.wire.send(b"1")
        await asyncio.sleep(3)
        assert server.of("up") == [({"secret": "s3cret", "ack": 0, "seq": 1}, "1")] * 3

    with_server(test)


def test_events_are_acknowledged_after_a_time_or_a_size() -> None:
    async def test(server: Server) -> None:
        server.event(1, "{}")
        assert await server.wire.recv() == "{}"
        await asyncio.sleep(4.9)
        assert server.of("up") == []
        await asyncio.sleep(0.2)
        assert server.of("up") == [{"secret": "s3cret", "ack": 1}]
        server.event(2, "x" * 17_000)
        await settled()
        assert server.of("up")[1:] == [{"secret": "s3cret", "ack": 2}]

    with_server(test)


def test_next_response_continues_behind_the_last_event_and_a_gap_ends_the_connection() -> None:
    async def test(server: Server) -> None:
        server.event(1, "1")
        server.write('id: 2\ndata: "2')
        server.streams[-1].end()
        await settled()
        assert server.of("down") == [{"secret": "s3cret", "ack": 1, "mode": "stream"}]
        server.event(1, "1")
        server.event(2, "2")
        assert [await server.wire.recv(), await server.wire.recv()] == ["1", "2"]
        server.event(4, "4")
        with pytest.raises(Ended, match="1006"):
            await server.wire.recv()

    with_server(test)


def test_stream_that_is_mute_becomes_polls() -> None:
    async def main() -> None:
        server = Server()
        server.answers["open"] = ["mute", "mute"]
        opening = asyncio.create_task(server.wire.open())
        await asyncio.sleep(3.1)
        assert [head["mode"] for head in server.of("open")] == ["stream", "poll"]
        server.write(OPEN)
        await opening
        assert server.modes == ["poll"]
        server.streams[-1].end()
        await asyncio.sleep(1.1)
        assert server.of("down") == [{"secret": "s3cret", "ack": 0, "mode": "poll", "waitMs": 25_000}]

    virtual.run(main)


def test_server_closes() -> None:
    async def test(server: Server) -> None:
        server.event(1, "1")
        server.write('event: close\nid: 2\ndata: {"code":4401,"reason":"expired"}\n\n')
        assert await server.wire.recv() == "1"
        with pytest.raises(Ended, match="4401 expired"):
            await server.wire.recv()
        with pytest.raises(Ended):
            await server.wire.send(b"1")
        await asyncio.sleep(60)
        assert server.of("up") == [] and server.of("down") == []

    with_server(test)


def test_close_follows_the_messages_before_it() -> None:
    async def test(server: Server) -> None:
        await server.wire.send(b"1")
        await server.wire.close(1000)
        assert server.of("up") == [({"secret": "s3cret", "ack": 0, "seq": 1, "close": {"code": 1000}}, "1")]
        with pytest.raises(Ended):
            await server.wire.recv()

    with_server(test)


def test_connection_that_is_lost_is_closed_without_a_code() -> None:
    async def test(server: Server) -> None:
        server.wire.abort()
        await settled()
        assert server.of("up") == [{"secret": "s3cret", "ack": 0, "close": {}}]

    with_server(test)


def test_refused_messages_end_the_connection_after_its_last_events() -> None:
    async def test(server: Server) -> None:
        server.answers["up"] = ["409 ours"]
        await server.wire.send(b"1")
        await settled()
        assert server.of("down") == [{"secret": "s3cret", "ack": 0, "mode": "poll", "waitMs": 0}]
        server.write('event: close\nid: 1\ndata: {"code":4000,"reason":"bye"}\n\n')
        with pytest.raises(Ended, match="4000 bye"):
            await server.wire.recv()

    with_server(test)


@pytest.mark.parametrize("status", ["reset", "502", "503 ours"])
def test_server_without_an_answer_is_lost_after_30_s(status: str) -> None:
    async def test(server: Server) -> None:
        server.answers["down"] = [status] * 100
        server.streams[-1].end()
        began = asyncio.get_running_loop().time()
        with pytest.raises(Ended, match="1006"):
            await server.wire.recv()
        assert 30 <= asyncio.get_running_loop().time() - began <= 32

    with_server(test)


@pytest.mark.parametrize(
    ("status", "code", "for_good"), [("404", 0, True), ("502", 0, False), ("503 ours", 1013, False)]
)
def test_refused_open(status: str, code: int, for_good: bool) -> None:
    async def main() -> None:
        server = Server()
        server.answers["open"] = [status]
        with pytest.raises(Ended if code else ConnectionError, match=str(code or status)):
            await server.wire.open()
        assert server.wire.refused_for_good == for_good

    virtual.run(main)

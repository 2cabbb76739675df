"""Runs, with scripted streams in virtual time, and with the server at PENSTOCK_URL."""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest
import virtual

from penstock_client import Client, PenstockError, runs

URL = os.environ["PENSTOCK_URL"]
COMPLETED = {"run": "R", "state": "completed", "items": 3}


class Scripted:
    """A client whose streams have the parts of a test, and end with a reply or an error."""

    def __init__(self, *streams: list[Any]) -> None:
        self.streams = deque(streams)
        self.requests: list[tuple[float, dict[str, Any]]] = []

    def stream(self, type: str, request: dict[str, Any], credit: int) -> Any:
        assert (type, credit) == ("token.attach", 32)
        self.requests.append((asyncio.get_running_loop().time(), request))
        return Stream(self.streams.popleft())

    def attach(self, **options: Any) -> runs.Run[Any]:
        return runs.attach(self, "token", "answer/1", **options)  # type: ignore[arg-type]


class Stream:
    def __init__(self, parts: list[Any]) -> None:
        self._parts = deque(parts)
        self.reply: Any = None

    async def __aenter__(self) -> "Stream":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> Any:
        part = self._parts.popleft() if self._parts else None
        if isinstance(part, PenstockError):
            raise part
        if part is None or "state" in part:
            self.reply = part
            raise StopAsyncIteration
        return part


LOST = PenstockError("ABORTED", outcome_unknown=True)


def part(n: int, text: str, count: int = 1) -> dict[str, Any]:
    return {"n": n, "item": {"text": text}} | ({"count": count} if count > 1 else {})


async def read(run: runs.Run[Any]) -> list[str]:
    return [f"{p.number}+{p.count} {p.item['text']}" async for p in run]


def test_run_is_read_behind_the_last_item_after_a_lost_connection() -> None:
    async def main() -> None:
        client = Scripted(
            [{"run": "R", "n": 0}, part(0, "ab", 2), LOST], [{"run": "R", "n": 2}, part(2, "c"), COMPLETED]
        )
        run = client.attach()
        assert (run.run, run.next, run.end) == (None, 0, None)
        assert await read(run) == ["0+2 ab", "2+1 c"]
        assert [request for _, request in client.requests] == [
            {"topic": "answer/1", "from": 0},
            {"topic": "answer/1", "from": 2, "run": "R"},
        ]
        assert client.requests[0][0] == client.requests[1][0]
        assert (run.run, run.next, run.end) == ("R", 3, runs.End("R", "completed", 3))
        assert await read(run) == []

    virtual.run(main)


def test_end_has_the_reason() -> None:
    async def main() -> None:
        error = {"code": "RESOURCE_EXHAUSTED", "retryable": True, "retryAfterMs": 7, "details": {"policy": "day"}}
        run = Scripted([COMPLETED | {"state": "exhausted", "by": "ann", "error": error}]).attach()
        assert await read(run) == []
        assert run.end is not None and run.end.error is not None
        assert (run.end.state, run.end.by, run.end.error.retry_after) == ("exhausted", "ann", 0.007)

    virtual.run(main)


def test_server_that_restarts_is_asked_again_after_a_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: 0.5)

    async def main() -> None:
        restarts = PenstockError("UNAVAILABLE", retryable=True)
        later = PenstockError("UNAVAILABLE", retryable=True, retry_after=0.07)
        client = Scripted(
            [restarts], [restarts], [later], [{"run": "R", "n": 0}], [PenstockError("NOT_FOUND")], [COMPLETED]
        )
        with pytest.raises(PenstockError, match="NOT_FOUND"):
            await read(client.attach())
        times = [at for at, _ in client.requests]
        assert [round(b - a, 3) for a, b in pairwise(times)] == [0.25, 0.5, 1.07, 0.25]

    virtual.run(main)


def test_part_with_another_number_ends_the_loop() -> None:
    async def main() -> None:
        for n in (0, 2):
            with pytest.raises(PenstockError, match=f"has sent item {n} of the run; it must be 1"):
                await read(Scripted([part(n, "a")]).attach(begin=1))

    virtual.run(main)


def test_parts_are_merged_with_what_the_reader_has() -> None:
    def merge(a: Any, b: Any) -> Any:
        return None if b["text"] == "|" else {"text": a["text"] + b["text"]}

    async def main() -> None:
        parts = [part(n, text) for n, text in enumerate("ab|c")]
        assert await read(Scripted([*parts, COMPLETED]).attach(merge=merge)) == ["0+1 a", "0+2 ab", "2+1 |", "2+2 |c"]

    virtual.run(main)


# With a server


def with_client(test: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with Client(URL) as client:
            await asyncio.wait_for(test(client), 60)

    asyncio.run(main())


def numbers(begin: int, end: int) -> str:
    return "".join(f"{n} " for n in range(begin, end))


def cut(client: Client) -> None:
    for socket in client._runtime._sockets.values():
        assert socket._wire is not None
        socket._wire.abort()


def test_readers_receive_each_item_once_under_cuts() -> None:
    async def read_from(begin: int, run: str, items: int) -> None:
        async with Client(URL) as client:
            answer: runs.Run[Any] = runs.attach(client, "token", "answer/cuts", run=run, begin=begin)
            received, cuts = "", 0
            async for p in answer:
                assert p.number == begin + received.count(" ")
                received += p.item["text"]
                if received.count(" ") > 150 * (cuts + 1):
                    cuts += 1
                    cut(client)
            assert received == numbers(begin, items)
            assert answer.end == runs.End(run, "completed", items)
            assert cuts > 0

    async def test(client: Client) -> None:
        items = 600
        started = await client.call("START", {"topic": "answer/cuts", "items": items, "everyMs": 2})
        await asyncio.gather(*(read_from(begin, started["run"], items) for begin in (0, 200)))

    with_client(test)


def test_slow_reader_receives_merged_parts_and_detaching_stops_nothing() -> None:
    async def test(client: Client) -> None:
        items = 100
        await client.call("START", {"topic": "answer/slow", "items": items, "everyMs": 5})
        slow: runs.Run[Any] = runs.attach(client, "token", "answer/slow")
        async for _ in slow:
            break
        after = slow.next
        assert 1 <= after < items
        fast: runs.Run[Any] = runs.attach(client, "token", "answer/slow", run=slow.run)
        async for _ in fast:
            pass
        rest = [p async for p in slow]
        assert rest == [runs.Part(after, items - after, {"text": numbers(after, items)})]

    with_client(test)


def test_run_is_stopped_by_its_id_and_another_topic_has_none() -> None:
    async def test(client: Client) -> None:
        started = await client.call("START", {"topic": "answer/stop", "items": 3, "wait": True})
        id = started["run"]
        answer: runs.Run[Any] = runs.attach(client, "token", "answer/stop")
        async for p in answer:
            if p.number + p.count == 3:
                assert (await runs.stop(client, "token", "answer/stop", id)).state == "stopped"
        assert answer.end is not None and answer.end.error is not None
        assert (answer.end.state, answer.end.error.code) == ("stopped", "CANCELLED")
        for topic in ("answer/none", "answer/secret"):
            with pytest.raises(PenstockError, match="NOT_FOUND"):
                await runs.stop(client, "token", topic, id)
            with pytest.raises(PenstockError, match="NOT_FOUND"):
                await read(runs.attach(client, "token", topic, run=id))

    with_client(test)

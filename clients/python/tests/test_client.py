"""The client for asyncio, with the server at PENSTOCK_URL."""

import asyncio
import gc
import os
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock_client import Client, Message, PenstockError
from penstock_client import _runtime as runtime

URL = os.environ["PENSTOCK_URL"]


def with_client(test: Callable[[Client], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with Client(URL) as client:
            await asyncio.wait_for(test(client), 30)

    asyncio.run(main())


async def eventually(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen")


def test_leaving_a_loop_ends_the_stream() -> None:
    async def test(client: Client) -> None:
        async for _ in client.stream("EXPORT_ROWS", {"count": 1_000_000}):
            break
        gc.collect()
        await eventually(lambda: client._core.outbox.unanswered == 0)

    with_client(test)


def test_leaving_a_loop_ends_the_subscription() -> None:
    async def test(client: Client) -> None:
        async def say() -> None:
            await asyncio.sleep(0.1)
            await client.send("SAY", {"room": "left", "text": "hi"})

        saying = asyncio.create_task(say())
        async for _ in client.subscribe("room/left"):
            break
        await saying
        gc.collect()
        await eventually(lambda: not client._core.topics.resumable())

    with_client(test)


def test_handler_goes_on_without_a_reference() -> None:
    async def test(client: Client) -> None:
        received: list[Message] = []
        await client.subscribe("room/handled", received.append).ready()
        gc.collect()
        await client.send("SAY", {"room": "handled", "text": "hi"})
        await eventually(lambda: len(received) == 1)

    with_client(test)


def test_loop_that_is_far_behind_has_one_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "MAX_UNREAD", 3)

    async def test(client: Client) -> None:
        room = client.subscribe("room/slow")
        await room.ready()
        for n in range(6):
            await client.send("SAY", {"room": "slow", "text": str(n)})
        await client.call("ECHO", {"n": 1})
        got = [await anext(room) for _ in range(4)]
        assert [m.type for m in got] == ["SAID", "SAID", "SAID", "$loss"]
        await client.send("SAY", {"room": "slow", "text": "later"})
        assert (await anext(room)).payload["text"] == "later"

    with_client(test)


def test_canceled_call_is_aborted() -> None:
    async def test(client: Client) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.call("WAIT"), 0.1)
        await eventually(lambda: client._core.outbox.unanswered == 0)

    with_client(test)


def test_refused_handshake_has_the_error_of_the_server() -> None:
    async def main() -> None:
        client = Client(URL, token="wrong")
        try:
            await asyncio.wait_for(client.connect(), 20)
        finally:
            await client.close()

    with pytest.raises(PenstockError) as raised:
        asyncio.run(main())
    assert raised.value.code == "UNAUTHENTICATED"


def test_call_that_is_aborted_before_its_handler_begins_has_ended() -> None:
    async def test(client: Client) -> None:
        @client.handle("ASK_USER", "USER_ANSWER")
        async def answer(_: Any) -> None:
            raise AssertionError("it must not begin")

        (link,) = client._runtime._sockets
        for type in ("ASK_USER", "$ws:abort"):
            client._core.received(link, f'{{"type":"{type}","meta":{{"correlationId":"$ws:1"}}}}')
        client._runtime.execute()
        await eventually(lambda: not link.serving)
        assert not client._runtime._serving

    with_client(test)


def test_failure_of_a_function_for_progress_is_reported() -> None:
    async def test(client: Client) -> None:
        errors: list[BaseException] = []
        client.on_error(errors.append)

        def fail(_: Any) -> None:
            raise RuntimeError("it fails")

        calling = asyncio.create_task(client.call("WAIT", on_progress=fail))
        await eventually(lambda: client._core.outbox.unanswered == 1)
        (link,), (id,) = client._runtime._sockets, client._core.outbox._pending
        client._core.received(link, f'{{"type":"$ws:rpc-progress","meta":{{"correlationId":"{id}"}},"payload":1}}')
        assert [str(error) for error in errors] == ["it fails"]
        calling.cancel()
        assert await client.call("ECHO", {"n": 1}) == {"n": 1}

    with_client(test)

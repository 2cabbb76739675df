"""What an application holds of a stream, and of a subscription."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any, Generic, TypeVar, cast

from ._inbox import Inbox
from ._queue import Entry
from ._runtime import Receiver, Runtime
from ._topics import Sub
from .errors import PenstockError
from .messages import Position, Received

Item = TypeVar("Item")
Reply = TypeVar("Reply")


class Stream(Generic[Item, Reply]):
    """The items of a stream. It is sent when the first item is asked for, and ends when its loop is left."""

    def __init__(self, runtime: Runtime, type: str, payload: Any, timeout: float, credit: int) -> None:
        self._runtime, self._type, self._payload = runtime, type, payload
        self._timeout, self._credit = timeout, credit
        self._inbox: Inbox[Item] = Inbox()
        self._entry: Entry | None = None
        self._consumed = 0
        self._replies: list[Reply] = []
        self._finalizer: weakref.finalize[..., Stream[Item, Reply]] | None = None

    @property
    def reply(self) -> Reply | None:
        """The reply at the end of the stream, if its type has one."""
        return self._replies[0] if self._replies else None

    def __aiter__(self) -> Stream[Item, Reply]:
        return self

    async def __anext__(self) -> Item:
        if self._entry is None and not self._inbox.ended:
            self._begin()
        item = await self._inbox.get()
        self._consumed += 1
        if self._consumed >= self._credit / 2 and not self._inbox.ended and self._entry is not None:
            consumed, self._consumed = self._consumed, 0
            self._runtime.grant(self._entry, consumed)
        return item

    def _begin(self) -> None:
        # The core must not refer to this object, which is finalized when its loop is left.
        inbox, replies, runtime = self._inbox, self._replies, self._runtime

        def done(error: PenstockError | None, reply: Any, _: str) -> None:
            replies.append(reply)
            inbox.end(error)

        meta = {"credit": self._credit}
        self._entry = runtime.submit(
            self._type, self._payload, within=self._timeout, meta=meta, on_progress=inbox.put, done=done
        )
        self._finalizer = weakref.finalize(self, runtime.from_any_thread, runtime.cancel, self._entry)
        self._finalizer.atexit = False

    async def aclose(self) -> None:
        """Ends the stream. The server is asked for no further items."""
        self._inbox.end()
        self._inbox.clear()
        if self._finalizer is not None:
            self._finalizer.detach()
        if self._entry is not None:
            self._runtime.cancel(self._entry)

    async def __aenter__(self) -> Stream[Item, Reply]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class Subscription(Generic[Received]):
    """A subscription to a topic, and a loop over its messages unless it has a handler.

    Without a handler, it ends when the loop is left and nothing else refers to it, or at the end of `async with`.
    """

    def __init__(self, runtime: Runtime, sub: Sub, receiver: Receiver) -> None:
        self._runtime, self._sub, self._inbox, self._ready = runtime, sub, receiver.inbox, receiver.ready
        self._position = sub.since if sub.since and sub.since.epoch else None
        self._finalizer = weakref.finalize(self, runtime.from_any_thread, runtime.unsubscribe, sub)
        self._finalizer.atexit = False
        if self._inbox is None:
            self._finalizer.detach()  # a handler goes on without a reference to the subscription
        runtime.subscribe(sub, receiver)

    @property
    def topic(self) -> str:
        return self._sub.topic

    @property
    def position(self) -> Position | None:
        """Up to where messages were handled; None if the topic has no history, or its state is not complete."""
        # What waits in the inbox is handled by the core, and not by the loop.
        return self._position if self._inbox else self._runtime.core.topics.position(self._sub)

    async def ready(self) -> None:
        """Waits until the server has accepted the subscription. It raises the error if the server rejects it."""
        await asyncio.shield(self._ready)

    def unsubscribe(self) -> None:
        """Ends the subscription."""
        self._finalizer.detach()
        self._runtime.unsubscribe(self._sub)

    def __aiter__(self) -> Subscription[Received]:
        if self._inbox is None:
            raise TypeError("a subscription with a handler has no loop")
        return self

    async def __anext__(self) -> Received:
        assert self._inbox is not None
        message = await self._inbox.get()
        if message.position is not None and not message.state:
            self._position = message.position
        return cast("Received", message)

    async def __aenter__(self) -> Subscription[Received]:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.unsubscribe()

"""The client for programs without asyncio: scripts and notebooks. It runs an event loop on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Generic, TypeVar

from . import client as _async
from .messages import Message, Position, State

T = TypeVar("T")


class Items(Generic[T]):
    """The items of a stream, or the messages of a subscription, for a loop that blocks."""

    def __init__(self, run: Callable[[Coroutine[Any, Any, Any]], Any], source: AsyncIterator[T], end: Any) -> None:
        self._run, self._source, self._end = run, source, end

    def __iter__(self) -> Items[T]:
        return self

    def __next__(self) -> T:
        item: T
        try:
            item = self._run(_next(self._source))
        except StopAsyncIteration:
            raise StopIteration from None
        return item

    def close(self) -> None:
        """Ends the stream or the subscription, as the end of `with` does."""
        self._run(_call(self._end))

    def __enter__(self) -> Items[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _next(source: AsyncIterator[T]) -> T:
    return await source.__anext__()


async def _call(function: Callable[[], Any]) -> Any:
    result = function()
    return await result if asyncio.iscoroutine(result) else result


class Client:
    """The client with methods that block. It takes the arguments of penstock_client.Client.

    Functions of the application, such as handlers, are called on the thread of the event loop: they must not call the
    client.
    """

    def __init__(self, url: Any, **options: Any) -> None:
        self._client = _async.Client(url, **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-client", daemon=True)
        self._thread.start()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("the client is closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # of a program that is interrupted
            raise

    @property
    def state(self) -> State:
        return self._client.state

    def connect(self) -> None:
        """Waits until the client is connected."""
        self._run(self._client.connect())

    def close(self) -> None:
        """Ends everything that waits, closes the connection, and ends the thread."""
        if self._loop.is_closed():
            return
        self._run(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Client:
        try:
            self.connect()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, type: str, payload: Any = None, **options: Any) -> Any:
        """Sends a call, and returns the payload of its reply."""
        return self._run(self._client.call(type, payload, **options))

    def send(self, type: str, payload: Any = None, **options: Any) -> None:
        """Sends an event. It returns when the server has admitted it."""
        self._run(self._client.send(type, payload, **options))

    def stream(self, type: str, payload: Any = None, **options: Any) -> Items[Any]:
        """Returns the items of a stream, for a loop. It ends when the loop is left."""
        stream = self._client.stream(type, payload, **options)
        return Items(self._run, stream, stream.aclose)

    def subscribe(
        self,
        topic: str,
        *,
        since: Position | None = None,
        state: bool = False,
        presence: bool = False,
        last: int = 0,
        hidden: bool = False,
    ) -> Items[Message]:
        """Subscribes to a topic, and returns its messages, for a loop. It ends when the loop is left."""

        async def subscribe() -> Any:
            return self._client.subscribe(topic, since=since, state=state, presence=presence, last=last, hidden=hidden)

        subscription = self._run(subscribe())
        return Items(self._run, subscription, subscription.unsubscribe)

    def on(self, type: str) -> Any:
        """Decorates a function that is called with the payload of each message of a type, and the message."""
        return self._client.on(type)

    def handle(self, type: str, reply_type: str) -> Any:
        """Decorates a function that answers calls of the server."""
        return self._client.handle(type, reply_type)

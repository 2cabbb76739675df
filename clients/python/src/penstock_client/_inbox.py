"""What waits for a loop of the application."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """Items in order, and then an end."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._error: BaseException | None = None
        self.ended = False
        self._waiter: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        self._items.append(item)
        self._wake()

    def end(self, error: BaseException | None = None) -> None:
        """Ends the inbox. The items before are received, then the error."""
        if not self.ended:
            self.ended, self._error = True, error
            self._wake()

    def clear(self) -> None:
        self._items.clear()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self) -> T:
        """Returns the next item. It raises StopAsyncIteration, or the error of the end once, when there is none."""
        while not self._items:
            if self.ended:
                error, self._error = self._error, None
                raise error or StopAsyncIteration
            if self._waiter is not None:
                raise RuntimeError("two loops must not wait for the same items")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._items.popleft()

"""Reads runs: streams that outlive the connection that has started them, such as the answer of a language model."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from .client import Client
from .errors import PenstockError, decode_error

CREDIT = 32  # enough for 100 items a second and 300 ms to the server and back
MIN_BACKOFF = 0.5  # the upper bound of the first one
MAX_BACKOFF = 20.0

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Part(Generic[Item]):
    """An item, or several neighbors that are merged into one."""

    number: int
    """The number of the first one."""
    count: int
    item: Item


@dataclass(frozen=True, slots=True)
class End:
    """How a run has ended."""

    run: str
    state: Literal["completed", "failed", "stopped", "interrupted", "exhausted", "expired"]
    items: int
    """How many items the run has."""
    by: str = ""
    """The ID of the user who has stopped it."""
    error: PenstockError | None = None
    """Why it is not completed."""


class Run(Generic[Item]):
    """The items of a run, each once and in order, until it has ended. Another loop continues behind the last item."""

    def __init__(
        self,
        client: Client,
        name: str,
        topic: str,
        run: str | None,
        begin: int,
        merge: Callable[[Item, Item], Item | None] | None,
    ) -> None:
        self._client, self._type, self._topic, self._merge = client, f"{name}.attach", str(topic), merge
        self._run, self._next = run, begin
        self._last: Part[Item] | None = None
        self._end: End | None = None

    @property
    def run(self) -> str | None:
        """The ID; None before the first part, unless attach was called with it."""
        return self._run

    @property
    def next(self) -> int:
        """The number of the first item that the loop has not received."""
        return self._next

    @property
    def end(self) -> End | None:
        """How the run has ended; None until the loop has received all items."""
        return self._end

    async def __aiter__(self) -> AsyncIterator[Part[Item]]:
        failures = 0
        while self._end is None:
            request = {"topic": self._topic, "from": self._next} | ({"run": self._run} if self._run else {})
            try:
                async with self._client.stream(self._type, request, credit=CREDIT) as stream:
                    async for part in stream:
                        if "item" not in part:  # the first one, which names the run
                            self._run, failures = part["run"], 0
                            continue
                        yield self._received(part)
                    if stream.reply is None:
                        raise PenstockError("UNAVAILABLE", "the stream has ended before the run", retryable=True)
                    self._end = _end_of(stream.reply)
            except PenstockError as error:
                await _before_attempt(error, failures)
                failures += 1

    def _received(self, part: dict[str, Any]) -> Part[Item]:
        number, count, item = part["n"], part.get("count", 1), part["item"]
        if number != self._next:
            raise PenstockError("INTERNAL", f"the server has sent item {number} of the run; it must be {self._next}")
        self._next += count
        last = self._last
        merged = self._merge(last.item, item) if self._merge is not None and last is not None else None
        if merged is None or last is None:
            self._last = Part(number, count, item)
        else:
            self._last = Part(last.number, last.count + count, merged)
        return self._last


def attach(
    client: Client,
    name: str,
    topic: str,
    *,
    run: str | None = None,
    begin: int = 0,
    merge: Callable[[Item, Item], Item | None] | None = None,
) -> Run[Item]:
    """Returns a run of a topic, whose items have the type name, for a loop.

    After a lost connection, a restart of the server, or an error that does not last, it attaches again behind the last
    item. Leaving the loop does not stop the run. The loop raises NOT_FOUND if there is no such run, or the client may
    not read it, and other errors that last. If the run is not completed, it does not raise: Run.end has the reason.

    run: the ID. The latest run of the topic by default.
    begin: the number of the first item.
    merge: returns one item for two neighbors, or None if they must stay two. Each part then has everything since
        begin, as far as it can be merged: it replaces the part before if that has the same number.
    """
    return Run(client, name, topic, run, begin, merge)


async def stop(client: Client, name: str, topic: str, run: str, *, timeout: float | None = None) -> End:
    """Ends a run of a topic, and returns how it has ended when that is stored.

    A run that has ended stays as it is. After a lost connection, it is sent again. The error is NOT_FOUND if there is
    no such run, or the client may not stop it.
    """
    failures = 0
    while True:
        try:
            request = {"topic": str(topic), "run": run}
            return _end_of(await client.call(f"{name}.stop", request, timeout=timeout, idempotent=True))
        except PenstockError as error:
            if error.code == "DEADLINE_EXCEEDED":
                raise
            await _before_attempt(error, failures)
            failures += 1


def _end_of(reply: dict[str, Any]) -> End:
    error = decode_error(reply["error"]) if reply.get("error") else None
    return End(reply["run"], reply["state"], reply["items"], reply.get("by") or "", error)


async def _before_attempt(error: PenstockError, failures: int) -> None:
    """Waits before a request is repeated. It raises the error if repeating it makes no sense."""
    if not (error.retryable or error.outcome_unknown) or error.retry_after == float("inf"):
        raise error
    if error.outcome_unknown and failures == 0:
        return  # the client waits before it connects again
    spread = random.random() * min(MAX_BACKOFF, MIN_BACKOFF * 2.0 ** min(failures, 30))
    await asyncio.sleep((error.retry_after or 0) + spread)

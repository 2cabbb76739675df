"""Messages that wait."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ._env import Link, Timer
from .errors import PenstockError

Done = Callable[[PenstockError | None, Any, str], None]
"""Called once with the outcome of a message: an error, or the payload of its reply; and its ID."""


@dataclass(frozen=True)
class Queue:
    """Bounds of the messages that wait for a connection, or for the limits of the server."""

    max_messages: int = 1_000
    """The most messages that wait."""
    max_bytes: int = 1_000_000
    """The most bytes of their payloads."""
    overflow: Literal["drop-newest", "drop-oldest"] = "drop-newest"
    """Which message is rejected when the queue is full: the new one, or the one that has waited longest."""
    max_wait: float = 30.0
    """How many seconds an event waits. Calls wait until their deadline."""


class Entry:
    """A message that waits to be sent, or for its answer."""

    __slots__ = (
        "ack",
        "admitted",
        "body",
        "cause",
        "direct",
        "done",
        "due",
        "first",
        "id",
        "idempotent",
        "link",
        "meta",
        "not_before",
        "on_progress",
        "one_way",
        "order",
        "over",
        "queued",
        "timer",
        "type",
    )

    def __init__(self, type: str, body: bytes, order: int, due: float) -> None:
        self.type, self.body, self.order, self.due = type, body, order, due
        self.meta: dict[str, Any] | None = None
        self.one_way = self.first = self.idempotent = self.ack = False
        self.direct = False  # it belongs to one link, and is not sent again
        self.done: Done | None = None
        self.on_progress: Callable[[Any], None] | None = None
        self.id = ""
        self.link: Link | None = None  # that it was sent on
        self.not_before = 0.0  # when a message that was rejected may be sent again
        self.admitted = self.over = self.queued = False
        self.cause: PenstockError | None = None  # why it was rejected and waits
        self.timer: Timer | None = None

    def __lt__(self, other: Entry) -> bool:
        return self.order < other.order


class Waiting:
    """Messages that wait, in a list for each type, in the order in which they were submitted."""

    def __init__(self) -> None:
        self._lists: dict[str, deque[Entry]] = {}
        self.count = 0
        self.weight = 0

    def insert(self, entry: Entry) -> None:
        entries = self._lists.setdefault(entry.type, deque())
        if entries and entry < entries[-1]:
            insort(entries, entry)
        else:
            entries.append(entry)
        entry.queued = True
        self.count += 1
        self.weight += len(entry.body)

    def remove(self, entry: Entry) -> None:
        if not entry.queued:
            return
        entry.queued = False
        entries = self._lists[entry.type]
        if entries[0] is entry:
            entries.popleft()
        else:
            entries.remove(entry)
        if not entries:
            del self._lists[entry.type]
        self.count -= 1
        self.weight -= len(entry.body)

    def heads(self) -> list[Entry]:
        """Returns the first entry of each type, in their order."""
        return sorted(entries[0] for entries in self._lists.values())

    def all(self) -> Iterator[Entry]:
        for entries in self._lists.values():
            yield from entries

"""What every part of the core needs: the time, timers, and what the core asks for.

The core does no input and output. It takes events and the time, and appends what to do to Env.actions;
the client executes that in order after each event.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .errors import PenstockError
from .messages import Connection, Message, State, StateInfo

if TYPE_CHECKING:
    from ._formats import Format
    from ._topics import Sub


class Timer:
    """A function that is called once, unless the timer is canceled."""

    __slots__ = ("function", "timers", "when")

    def __init__(self, timers: Timers, when: float, function: Callable[[], None]) -> None:
        self.timers, self.when = timers, when
        self.function: Callable[[], None] | None = function

    def __lt__(self, other: Timer) -> bool:
        return self.when < other.when

    def cancel(self) -> None:
        if self.function is not None:
            self.function = None
            self.timers.canceled()


class Timers:
    """A heap of timers. Canceled ones leave it when they are the first, or the most."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._canceled = 0

    def add(self, when: float, function: Callable[[], None]) -> Timer:
        timer = Timer(self, when, function)
        heapq.heappush(self._heap, timer)
        return timer

    def canceled(self) -> None:
        self._canceled += 1
        if self._canceled > 64 and self._canceled > len(self._heap) // 2:
            self._heap = [t for t in self._heap if t.function is not None]
            heapq.heapify(self._heap)
            self._canceled = 0

    def next(self) -> float | None:
        while self._heap and self._heap[0].function is None:
            heapq.heappop(self._heap)
            self._canceled -= 1
        return self._heap[0].when if self._heap else None

    def run(self, now: float) -> None:
        while (when := self.next()) is not None and when <= now:
            timer = heapq.heappop(self._heap)
            function, timer.function = timer.function, None
            assert function is not None
            function()

    def clear(self) -> None:
        for timer in self._heap:
            timer.function = None
        self._heap.clear()
        self._canceled = 0


@dataclass(eq=False, slots=True)
class Link:
    """One connection, from the attempt to open it. Everything that belongs to a connection refers to its link."""

    expired: bool = False
    """The server has rejected the last token."""
    open: bool = False
    """The handshake is complete."""
    buffered: int = 0
    """Bytes that were not written to the socket yet."""
    open_calls: int = 0
    """Calls without an answer."""
    crowded: bool = False
    """The server permits no other call before one is answered."""
    retired: bool = False
    """The link has been replaced: only answers to its calls count."""
    serving: dict[str, ServerCall] = field(default_factory=dict)
    """Calls of the server whose handlers run."""
    about: Connection = field(default_factory=Connection)


@dataclass(eq=False, slots=True)
class ServerCall:
    """A call of the server."""

    link: Link
    id: str
    type: str
    payload: Any
    meta: dict[str, Any]
    over: bool = False
    """The server does not wait for the answer any more."""
    timer: Timer | None = None


@dataclass(slots=True)
class Dial:
    """Open a connection for the link."""

    link: Link


@dataclass(slots=True)
class Write:
    """Write a message."""

    link: Link
    data: bytes


@dataclass(slots=True)
class Ping:
    """Send a ping, and report its answer with Core.heard."""

    link: Link


@dataclass(slots=True)
class Close:
    """Close the connection of the link, or give up the attempt. Its further events are ignored."""

    link: Link
    code: int | None


@dataclass(slots=True)
class Serve:
    """Run the handler of a call of the server."""

    call: ServerCall


@dataclass(slots=True)
class CancelServe:
    """Cancel the handler of a call of the server."""

    call: ServerCall


@dataclass(slots=True)
class Refresh:
    """The identity is about to expire: authenticate with another token."""


@dataclass(slots=True)
class Deliver:
    """Pass a message to a subscription, or without one to the handlers of its type."""

    sub: Sub | None
    message: Message


@dataclass(slots=True)
class Subscribed:
    """The server has accepted a subscription."""

    sub: Sub


@dataclass(slots=True)
class Ended:
    """The server has ended a subscription."""

    sub: Sub
    error: PenstockError


@dataclass(slots=True)
class Report:
    """Report an error that belongs to no operation."""

    error: BaseException


@dataclass(slots=True)
class StateChanged:
    """The state of the client has changed."""

    state: State
    info: StateInfo


Action = (
    Dial | Write | Ping | Close | Serve | CancelServe | Refresh | Deliver | Subscribed | Ended | Report | StateChanged
)


class Env:
    """The time, timers, and actions of one client."""

    def __init__(self, now: Callable[[], float], random: Callable[[], float], form: Format) -> None:
        self.now = now
        """Seconds of a monotonic clock."""
        self.random = random
        """Returns numbers from 0 to 1, without 1."""
        self.format = form
        self.timers = Timers()
        self.actions: list[Action] = []
        self.welcome: dict[str, Any] = {}
        """The latest answer to a greeting."""

    def after(self, seconds: float, function: Callable[[], None]) -> Timer:
        return self.timers.add(self.now() + seconds, function)

    def do(self, action: Action) -> None:
        self.actions.append(action)

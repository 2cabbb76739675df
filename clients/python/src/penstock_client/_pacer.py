"""Models of the server's buckets.

They never hold more tokens than those do, unless other connections take from them. Times are in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ._env import Env
from .errors import PenstockError

SAFETY = 0.998  # of the refill rate: clocks differ by up to a tenth of a percent
ROUNDING = 0.003  # of the two times from which a rate is learned
MAX_LEARNED = 512  # messages by a learned rate, until one message checks it
PATIENCE = 1.0  # for a bucket whose level is unknown; after that, one message tries it
RESOLUTION = 0.001  # of waits, which are rounded up
FOR_ANSWER = 1e9  # longer than any timer

_UNCERTAIN = -1.0
"""In place of a wait: the message may be rejected."""


@dataclass(eq=False, slots=True)
class _Lane:
    """Messages that must not overtake each other: those of one type, or those that take tokens from one bucket."""

    awaited: str = ""
    """The message whose outcome is awaited."""
    not_before: float = 0
    """When its first message may be sent, which was rejected."""
    closed_in: int = 0
    """The last search in which one of its messages had to wait."""


class _Bucket:
    """rate is in tokens per second; 0: it is learned. exclusive: the level is exact."""

    def __init__(
        self,
        env: Env,
        capacity: float,
        costs: dict[str, float | None],
        keep: dict[str, float] | None = None,
        rate: float = 0,
        level: float = 0,
        exclusive: bool = False,
    ) -> None:
        self._env, self.capacity, self._costs, self._keep = env, capacity, costs, keep or {}
        self._rate, self._level, self._exclusive, self._learns = rate, level, exclusive, rate == 0
        self.lane = _Lane()
        self._at = env.now()  # of the level; in the future after a rejection
        self._unconfirmed = 0.0  # costs of messages that are not known to have arrived
        self._sure = 0.0 if self._learns else math.inf  # messages that may be sent by this model; then one at a time
        self._quota = 1
        self._admitted = 0.0  # cost since the first rejection
        self._first_ready = 0.0  # after the first rejection, by the clock of the server

    def applies(self, type: str) -> bool:
        return self._costs.get(type, 0) != 0

    def _need(self, type: str) -> float:
        return (self._costs.get(type) or 0) + self._keep.get(type, 0)

    def _refill(self) -> None:
        elapsed = self._env.now() - self._at
        if elapsed > 0:
            self._at += elapsed
            # While messages have not arrived, the full bucket of the server may lose what returns.
            most = max(self._level, self.capacity - self._unconfirmed)
            self._level = min(most, self._level + elapsed * self._rate)

    def wait(self, type: str) -> float:
        """Returns in how many seconds a message may be sent; 0: it is admitted; math.inf: it is never admitted."""
        tokens = self._need(type)
        if tokens > self.capacity:
            return math.inf
        self._refill()
        trusted = self._sure > 0
        pause = self._at - self._env.now()
        if self._rate and (trusted or not self._learns) and self._level < tokens:
            pause = max(pause, (tokens - self._level) / self._rate)
        if not self._exclusive and trusted and not self._learns and pause > PATIENCE:
            return _UNCERTAIN
        if pause > 0:
            return pause
        certain = self._rate and trusted and self._costs.get(type, 0) is not None
        return 0 if certain else _UNCERTAIN

    def take(self, type: str) -> Callable[[bool], None]:
        """Takes the cost of a message. The result is called when the message is known to have arrived."""
        self._refill()
        known = self._costs.get(type, 0)
        cost = self._level if known is None else known
        self._level = max(0, self._level - cost)
        self._unconfirmed += cost
        self._admitted += cost
        self._sure -= 1

        def arrived(rejected: bool) -> None:
            self._refill()
            self._unconfirmed -= cost
            if rejected:
                self._admitted -= cost
            elif known is None:
                self._level = 0

        return arrived

    def denied(self, type: str, retry_after: float, ready: float) -> None:
        """ready: when the message is admitted, by the clock of the server; 0: not because tokens have returned."""
        self._exclusive = True
        self._level = self._need(type)
        self._at = self._env.now() + retry_after
        self._sure = 0  # other connections take from the bucket
        if not self._learns:
            return
        if self._first_ready and ready:
            self._rate = self._admitted / (ready - self._first_ready + ROUNDING)
        else:
            self._first_ready = ready
            self._admitted = 0
        self._quota = min(2 * self._quota, MAX_LEARNED)
        self._sure = self._quota


class Pacer:
    """Says when a message may be sent."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._announced: list[_Bucket] = []
        self._types: dict[str, tuple[list[_Bucket], list[_Lane]]] = {}
        self._sent: dict[str, list[Callable[[bool], None]]] = {}  # that are not known to have arrived, in order
        self._search = 0

    def _of(self, type: str) -> tuple[list[_Bucket], list[_Lane]]:
        """Returns the buckets and lanes of a type."""
        if type not in self._types:
            buckets = [b for b in self._announced if b.applies(type)]
            self._types[type] = buckets, [_Lane(), *(b.lane for b in buckets)]
        return self._types[type]

    def _wait_of(self, type: str) -> float:
        """Returns the longest wait of the buckets. Negative: the message may be rejected."""
        waits = [b.wait(type) for b in self._of(type)[0]]
        longest = max(waits, default=0.0)
        if longest == math.inf:
            return longest
        if longest > 0:
            return math.ceil(longest / RESOLUTION) * RESOLUTION
        # A type without announced cost may have a limit that is not announced.
        return min(waits, default=_UNCERTAIN)

    def restart(self) -> None:
        """A connection begins: it is unknown what was admitted."""
        self._announced, self._types, self._sent = [], {}, {}

    def announce(self, limits: list[dict[str, Any]]) -> None:
        """Takes the limits of a welcome, before other messages are sent than those of the greeting."""
        self._types, self._announced = {}, []
        for limit in limits:
            exclusive = limit["scope"] == "connection"
            rate = limit["refill"] / limit["refillMs"] * 1000 * SAFETY
            for bucket in limit["buckets"]:
                costs, level = bucket["costs"], 0
                if exclusive:
                    greeting = (costs.get("$ws:hello") or 0) + (costs.get("$ws:resume") or 0)
                    level = max(0, limit["capacity"] - greeting)
                keep = bucket.get("keep")
                self._announced.append(_Bucket(self._env, limit["capacity"], costs, keep, rate, level, exclusive))

    def search(self) -> None:
        """Begins to look for a message that may be sent."""
        self._search += 1

    def wait(self, type: str, not_before: float) -> float:
        """Returns in how many seconds a message may be sent, which was rejected until not_before.

        If it must wait, so must those behind it in its lanes, in the same search. math.inf: it is never admitted.
        """
        lanes = self._of(type)[1]
        lanes[0].not_before = not_before
        wait = self._wait_of(type)
        if wait == math.inf:
            return wait
        if any(lane.awaited or lane.closed_in == self._search for lane in lanes):
            wait = FOR_ANSWER
        wait = max(not_before - self._env.now(), wait)
        if wait > 0:
            for lane in lanes:
                lane.closed_in = self._search
        return wait

    def sent(self, type: str, id: str, first: bool) -> None:
        """Takes the cost of a message. Behind one that may be rejected, nothing is sent in its lanes."""
        uncertain = id != "" and not first and self._wait_of(type) < 0
        buckets, lanes = self._of(type)
        arrivals = [b.take(type) for b in buckets]
        if id:
            self._sent[id] = arrivals
        else:
            for arrived in arrivals:  # without an answer
                arrived(False)
        if uncertain:
            for lane in lanes:
                lane.awaited = id

    def confirm(self, id: str, rejected: bool) -> None:
        """An answer to the message of the id shows that it has arrived, and all before it."""
        if id not in self._sent:
            return
        for each in list(self._sent):
            for arrived in self._sent.pop(each):
                arrived(rejected and each == id)
            if each == id:
                return

    def forget(self, type: str, id: str) -> None:
        """The outcome of a message is known, or does not matter any more."""
        if id:
            for lane in self._of(type)[1]:
                if lane.awaited == id:
                    lane.awaited = ""

    def rejected(self, type: str, error: PenstockError, timestamp: float) -> None:
        """A limit has rejected a message, at a time of the server's clock."""
        d = error.details
        pause = error.retry_after
        if d.get("kind") != "rate" or not pause or pause == math.inf:
            return
        buckets, lanes = self._of(type)
        exhausted = [b for b in buckets if b.capacity == d.get("limit")]
        if not exhausted:
            exhausted = [_Bucket(self._env, d.get("limit") or 0, {type: d.get("observed") or 0})]
            announced = [b for b in self._announced if b.applies(type)]
            self._types[type] = announced + exhausted, lanes
        for bucket in exhausted:
            bucket.denied(type, pause, 0 if d.get("reason") else timestamp + pause)

    def next_in(self, type: str) -> float:
        """Returns in how many seconds a message of the type may be sent."""
        return max(0.0, self._wait_of(type), self._of(type)[1][0].not_before - self._env.now())

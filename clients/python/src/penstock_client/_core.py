"""The client without input and output: it takes events and the time, and says what to do.

Each method is an event. Afterwards, take_actions returns what must be done, in order, and next_timer says when
run_timers must be called. All methods belong to one thread.
"""

from __future__ import annotations

import math
import random as _random
import time
from collections.abc import Callable
from typing import Any

from ._connection import Connection
from ._env import Action, Deliver, Env, Link, Refresh, Report, ServerCall
from ._formats import Format, JSONFormat
from ._outbox import MAX_BUFFERED_BYTES, Outbox
from ._pacer import Pacer
from ._queue import Done, Entry, Queue
from ._served import Served
from ._topics import Sub, Topics
from .errors import PenstockError
from .messages import Message


class Core:
    """The state machine of a client."""

    def __init__(
        self,
        *,
        form: Format | None = None,
        pacing: bool = False,
        resume: bool = False,
        queue: Queue | None = None,
        stop_on: Callable[[int], bool] = lambda _: False,
        now: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self._env = Env(now, random, form or JSONFormat())
        self._pacer = Pacer(self._env) if pacing else None
        self.outbox = Outbox(self._env, self._pacer, queue or Queue())
        self.topics = Topics(self._env, self.outbox)
        self.served = Served(self._env, self.outbox)
        self.connection = Connection(self._env, self._pacer, self.outbox, self.topics, self.served, resume, stop_on)

    # What to do

    def take_actions(self) -> list[Action]:
        actions, self._env.actions = self._env.actions, []
        return actions

    def next_timer(self) -> float | None:
        return self._env.timers.next()

    def run_timers(self) -> None:
        self._env.timers.run(self._env.now())

    # Events of connections. Those of links that the core has closed have no effect.

    def connected(self, link: Link) -> None:
        if self.connection.has(link):
            self.connection.connected(link)

    def failed(self, link: Link, cause: BaseException, final: bool = False) -> None:
        """An attempt has failed. final: the next one would fail like this."""
        if self.connection.has(link):
            (self.connection.unusable if final else self.connection.failed)(link, cause)

    def closed(self, link: Link, code: int, reason: str) -> None:
        if self.connection.has(link):
            self.connection.closed(link, code, reason)

    def heard(self, link: Link) -> None:
        """A pong has arrived."""
        if self.connection.has(link):
            self.connection.heard()

    def written(self, link: Link, size: int) -> None:
        """Data of a link was written to its socket."""
        was_full = link.buffered > MAX_BUFFERED_BYTES
        link.buffered -= size
        if was_full and link.buffered <= MAX_BUFFERED_BYTES:
            self.outbox.flush()

    def received(self, link: Link, data: str | bytes) -> None:
        """A message has arrived. One that cannot be decoded has no effect."""
        if not self.connection.has(link):
            return
        self.connection.heard()
        try:
            self._received(link, self._env.format.decode(data))
        except Exception as cause:  # a decoder may raise anything
            self._env.do(Report(cause))
        self.connection.drop_retired(link)

    def _received(self, link: Link, frame: dict[str, Any]) -> None:
        type, meta = frame["type"], frame["meta"]
        if not type.startswith(("$", "ERROR", "RPC_ERROR")) and "correlationId" not in meta:
            if not link.retired:
                self._message(frame)
        elif type == "$ws:goaway":
            if self.connection.is_current(link):
                self.connection.move(frame["payload"]["reconnectAfterMs"] / 1000)
        elif (meta.get("correlationId") or "").startswith("$ws:"):
            self.served.receive(link, frame)
        elif self.outbox.receive(link, frame) or link.retired:
            return
        elif type == "$ws:identity-expiring":
            pause = self._env.random() * frame["payload"]["expiresInMs"] / 2000
            self._env.after(pause, lambda: self._env.do(Refresh()))
        else:
            self._message(frame)

    def _message(self, frame: dict[str, Any]) -> None:
        """Handles what is no answer: a message of a topic, or one to the client."""
        if not self.topics.receive(frame):
            meta = frame["meta"]
            message = Message(
                frame["type"], frame.get("payload"), meta.get("topic"), timestamp=meta.get("timestamp") or 0
            )
            self._env.do(Deliver(None, message))

    # Events of the application

    def start(self) -> None:
        """Connects, unless that was asked for before. A closed client does not connect again."""
        if self.connection.state == "closed":
            raise PenstockError("UNAVAILABLE", "the client is closed")
        self.connection.start()

    def submit(
        self,
        type: str,
        payload: Any = None,
        *,
        within: float = math.inf,
        done: Done | None = None,
        one_way: bool = False,
        first: bool = False,
        idempotent: bool = False,
        meta: dict[str, Any] | None = None,
        on_progress: Callable[[Any], None] | None = None,
    ) -> Entry:
        """Sends a message, or adds it to the queue."""
        self.start()
        try:
            return self.outbox.submit(
                type,
                payload,
                within=within,
                done=done,
                one_way=one_way,
                first=first,
                idempotent=idempotent,
                meta=meta,
                on_progress=on_progress,
            )
        except (TypeError, ValueError, RecursionError) as cause:
            raise PenstockError("INVALID_ARGUMENT", f"the payload cannot be encoded: {cause}") from cause

    def subscribe(self, sub: Sub) -> None:
        self.start()
        self.topics.subscribe(sub)

    def finished(self, call: ServerCall, payload: Any = None, error: BaseException | None = None) -> None:
        """The handler of a call of the server has ended."""
        self.served.finished(call, payload, error)

    def next_allowed_in(self, type: str) -> float:
        """Returns in how many seconds the limits permit a message of the type; 0: now, as far as known."""
        return 0 if self._pacer is None else self._pacer.next_in(type)

    def close(self) -> None:
        self.connection.close()

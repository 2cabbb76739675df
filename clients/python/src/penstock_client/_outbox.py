"""What the client sends: the queue, and the messages that wait for an answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ._env import Env, Link, Report, Timer, Write
from ._pacer import FOR_ANSWER, Pacer
from ._queue import Done, Entry, Queue, Waiting
from .errors import PenstockError, decode_error

MAX_BUFFERED_BYTES = 1_000_000  # of a connection; what follows waits in the queue, where it can be canceled
IN_FLIGHT_RETRY = 1.0
_ORDER_FIRST = 1 << 40  # messages of the protocol precede those of the application


class Outbox:
    """What the client sends."""

    def __init__(self, env: Env, pacer: Pacer | None, queue: Queue) -> None:
        self._env, self._pacer, self._bounds = env, pacer, queue
        self._prefix = f"{int(env.random() * (1 << 40)):x}-"
        self._count = 0
        self._link: Link | None = None  # that messages are sent on
        self._flushing = False
        self._timer: Timer | None = None
        self._pending: dict[str, Entry] = {}
        self._waiting = Waiting()

    @property
    def waiting(self) -> int:
        """How many messages wait to be sent."""
        return self._waiting.count

    @property
    def unanswered(self) -> int:
        """How many messages have no answer."""
        return len(self._pending)

    def submit(
        self,
        type: str,
        payload: Any = None,
        *,
        on: Link | None = None,
        meta: dict[str, Any] | None = None,
        within: float = math.inf,
        one_way: bool = False,
        first: bool = False,
        idempotent: bool = False,
        done: Done | None = None,
        on_progress: Callable[[Any], None] | None = None,
    ) -> Entry:
        """Sends a message on a link at once, or adds it to the queue.

        within says how long it may wait: an event in the queue, a call for its answer. An event of the
        application is settled when the server has admitted it, one of the protocol (first) when it is sent.
        """
        env = self._env
        body = env.format.encode(type, payload)
        self._count += 1
        entry = Entry(type, body, self._count - (_ORDER_FIRST if first else 0), env.now() + within)
        entry.meta, entry.one_way, entry.first, entry.idempotent = meta, one_way, first, idempotent
        entry.done, entry.on_progress = done, on_progress
        entry.ack = not first and (one_way or self._pacer is not None)
        if on is not None:
            entry.direct = True
            self._send(entry, on)
        elif self._make_room(entry):
            self._wait(entry)
            self.flush()
        return entry

    def _make_room(self, entry: Entry) -> bool:
        while not entry.first and self._is_full(entry):
            full = PenstockError("RESOURCE_EXHAUSTED", "the queue is full", details={"kind": "queue"}, retryable=True)
            oldest = entry
            if self._bounds.overflow == "drop-oldest":
                oldest = next((e for e in self._waiting.heads() if not e.first), entry)
            self._settle(oldest, full)
            if oldest is entry:
                return False
        return True

    def _is_full(self, entry: Entry) -> bool:
        waiting, bounds = self._waiting, self._bounds
        too_heavy = waiting.count > 0 and waiting.weight + len(entry.body) > bounds.max_bytes
        return waiting.count >= bounds.max_messages or too_heavy

    def tell(self, to: Link | None, type: str, meta: dict[str, Any] | None = None) -> None:
        """Sends a message of the protocol that has no answer, on a link at once or before what waits."""
        self.submit(type, on=to, meta=meta, one_way=True, first=True)

    # Sending

    def _wait(self, entry: Entry) -> None:
        self._remove(entry)
        entry.id, entry.link = "", None
        self._waiting.insert(entry)
        if entry.timer is not None:
            entry.timer.cancel()
        if entry.due != math.inf:
            entry.timer = self._env.timers.add(entry.due, lambda: self._expire(entry))

    def _remove(self, entry: Entry) -> None:
        self._waiting.remove(entry)
        if entry.id and self._pending.pop(entry.id, None) is not None and not entry.one_way:
            assert entry.link is not None
            entry.link.open_calls -= 1
            entry.link.crowded = False
        if self._pacer is not None:
            self._pacer.forget(entry.type, entry.id)

    def _expire(self, entry: Entry) -> None:
        error = PenstockError("DEADLINE_EXCEEDED", "the time of the message is over", retryable=True)
        error.__cause__ = entry.cause
        self._settle(entry, error)

    def _wait_for(self, entry: Entry, link: Link) -> float:
        """Returns in how many seconds a message may be sent; math.inf: never. An answer may also end the wait."""
        if link.buffered > MAX_BUFFERED_BYTES:
            return FOR_ANSWER
        if entry.first:
            return 0
        if not entry.one_way:
            concurrency = self._env.welcome.get("concurrency") or math.inf
            if link.crowded or link.open_calls >= concurrency:
                return FOR_ANSWER
        paced = 0.0 if self._pacer is None else self._pacer.wait(entry.type, entry.not_before)
        return max(entry.not_before - self._env.now(), paced)

    def flush(self) -> None:
        """Sends what may be sent."""
        if self._flushing:
            return  # a message that is sent may be settled
        self._flushing = True
        if self._timer is not None:
            self._timer.cancel()
        while self._link is not None and self._waiting.count and not self._send_next(self._link):
            pass
        self._flushing = False

    def _send_next(self, link: Link) -> bool:
        """Sends the next message. Returns True if there is none that may be sent now."""
        soonest: float = FOR_ANSWER
        if self._pacer is not None:
            self._pacer.search()
        for entry in self._waiting.heads():
            wait = self._wait_for(entry, link)
            if 0 < wait < math.inf:
                soonest = min(soonest, wait)
                continue
            self._waiting.remove(entry)
            if wait > 0:
                message = "the message costs more than the limit can ever allow"
                self._settle(entry, PenstockError("FAILED_PRECONDITION", message, retry_after=math.inf))
            else:
                self._send(entry, link)
            return False
        if soonest < FOR_ANSWER:
            self._timer = self._env.after(soonest, self.flush)
        return True

    def _send(self, entry: Entry, to: Link) -> None:
        env = self._env
        if entry.due != math.inf and env.now() >= entry.due + 0.001:
            return self._expire(entry)  # the timer is late; a message that may not wait at all is not
        if entry.one_way and entry.timer is not None:
            entry.timer.cancel()  # only waiting is bounded
        meta: dict[str, Any] = {}
        if entry.ack or not entry.one_way:
            self._count += 1
            # Only IDs of calls end with a digit.
            entry.id = meta["correlationId"] = f"{self._prefix}{self._count}{'e' if entry.one_way else ''}"
            entry.link = to
            self._pending[entry.id] = entry
            if not entry.one_way:
                to.open_calls += 1
        if entry.ack:
            meta["ack"] = True
        if not entry.one_way and entry.due != math.inf:
            meta["timeoutMs"] = max(1, math.ceil((entry.due - env.now()) * 1000))
        if entry.meta is not None:
            meta.update(entry.meta)
        # type and meta come first, so that the server can answer a message that is too large.
        data = env.format.join({"type": entry.type, "meta": meta}, entry.body)
        limit = (env.welcome.get("maxMessageBytesByType") or {}).get(entry.type, env.welcome.get("maxMessageBytes"))
        if limit and len(data) > limit:
            return self._too_big(entry, len(data), limit)
        if self._pacer is not None:
            self._pacer.sent(entry.type, entry.id, entry.first)
        to.buffered += len(data)
        env.do(Write(to, data))
        if not entry.id:
            self._settle(entry)

    def _too_big(self, entry: Entry, observed: int, limit: int | None = None) -> None:
        details = {"kind": "payload", "observed": observed, "limit": limit}
        self._settle(
            entry,
            PenstockError("RESOURCE_EXHAUSTED", "message is too big", details=details, retry_after=math.inf),
        )

    # Outcomes

    def _settle(self, entry: Entry, error: PenstockError | None = None, payload: Any = None, id: str = "") -> None:
        if entry.over:
            return
        entry.over = True
        if entry.timer is not None:
            entry.timer.cancel()
        self._remove(entry)
        if entry.done is not None:
            entry.done(error, payload, id)
        self.flush()

    def cancel(self, entry: Entry) -> None:
        """Ends a message that its caller does not need any more."""
        if entry.over:
            return
        if not entry.one_way and entry.id in self._pending:
            self.tell(entry.link, "$ws:abort", {"correlationId": entry.id})
        self._settle(entry, PenstockError("CANCELLED", "canceled"))

    def grant(self, entry: Entry, credit: int) -> None:
        """Grants a stream further items."""
        if not entry.over and entry.link is not None:
            to = None if entry.link is self._link else entry.link
            self.tell(to, "$ws:credit", {"correlationId": entry.id, "credit": credit})

    def receive(self, link: Link, frame: dict[str, Any]) -> bool:
        """Handles a message if it is an answer or an error, and reports whether it is one."""
        type, id = frame["type"], frame["meta"].get("correlationId") or ""
        error = decode_error(frame.get("payload")) if type in ("ERROR", "RPC_ERROR") else None
        entry = self._pending.get(id)
        if entry is not None and entry.link is link:
            self._answered(entry, link, frame, error)
        elif error is not None and not id[-1:].isdigit():
            # The error has no ID, or that of an event which was admitted before its handler failed.
            self._env.do(Report(error))
        return bool(id) or error is not None

    def _answered(self, entry: Entry, link: Link, frame: dict[str, Any], error: PenstockError | None) -> None:
        rejected = error is not None and not entry.admitted
        if self._pacer is not None:
            self._pacer.confirm(entry.id, rejected)
        timestamp = frame["meta"].get("timestamp") or 0
        if error is not None and rejected and not entry.direct and self._rejected(entry, link, error, timestamp):
            return
        if frame["type"] == "$ws:rpc-progress":
            if entry.on_progress is not None:
                entry.on_progress(frame.get("payload"))
        elif frame["type"] == "$ws:ack":
            entry.admitted = True
            if self._pacer is not None:
                self._pacer.forget(entry.type, entry.id)
            if entry.one_way:
                self._settle(entry)
            self.flush()
        else:
            self._settle(entry, error, frame.get("payload"), entry.id)

    def _rejected(self, entry: Entry, link: Link, error: PenstockError, timestamp: float) -> bool:
        """Queues a message again, in order, if a limit has rejected it for some time."""
        in_flight = not entry.one_way and error.details.get("kind") == "in_flight"
        if self._pacer is not None:
            self._pacer.rejected(entry.type, error, timestamp / 1000)
        if in_flight:
            again = self._pacer is not None or error.details.get("limit") == self._env.welcome.get("concurrency")
        else:
            again = self._pacer is not None and bool(error.retry_after)
        if not (error.retryable and again):
            return False
        self._wait(entry)
        entry.cause = error
        link.crowded = in_flight and link.open_calls > 0
        pause = error.retry_after or (0 if link.crowded else IN_FLIGHT_RETRY)
        entry.not_before = self._env.now() + pause
        self.flush()
        return True

    # Connections

    def use(self, link: Link | None) -> None:
        """Sends what waits on a link. Without one, requests of the protocol end: they are made again."""
        self._link = link
        if link is None:
            for entry in sorted(e for e in self._waiting.all() if e.first):
                self._drop(entry)
        self.flush()

    def lost(self, link: Link, too_big: bool) -> None:
        """Ends what a link has sent and what has no answer. too_big: because of one of these messages."""
        entries = sorted(self._unanswered_on(link), key=lambda e: -len(e.body))
        for n, entry in enumerate(entries):
            self._drop(entry, too_big and n == 0)  # the server does not say which one was too big

    def is_idle(self, link: Link) -> bool:
        """Reports whether everything that a link has sent has an answer."""
        return not self._unanswered_on(link)

    def _unanswered_on(self, link: Link) -> list[Entry]:
        return [entry for entry in self._pending.values() if entry.link is link]

    def _drop(self, entry: Entry, too_big: bool = False) -> None:
        if too_big and entry.idempotent:
            self._too_big(entry, len(entry.body))
        elif entry.idempotent and not entry.over:
            self._wait(entry)
            self.flush()
        else:
            message = "the connection was lost; the message may have been handled"
            self._settle(entry, PenstockError("ABORTED", message, outcome_unknown=True))

    def end_all(self, error: PenstockError) -> None:
        """Ends everything that waits."""
        for entry in sorted(self._waiting.all()):
            self._settle(entry, error)

"""One connection at a time, reconnection, and the greeting."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from ._backoff import backoff_after, close_error
from ._closecodes import HEALTHY_AFTER, STOP, UNAUTHENTICATED, VIOLATION
from ._env import Close, Dial, Env, Link, Ping, StateChanged, Timer
from ._outbox import Outbox
from ._pacer import Pacer
from ._served import Served
from ._topics import Topics
from .errors import PenstockError, caused_by
from .messages import Connection as About
from .messages import State, StateInfo

CONNECT_TIMEOUT = 10.0
TOO_BIG = 1009  # a message of the client


class Connection:
    """The connection of a client, and the attempts to open another one."""

    def __init__(
        self,
        env: Env,
        pacer: Pacer | None,
        outbox: Outbox,
        topics: Topics,
        served: Served,
        resume: bool,
        stop_on: Callable[[int], bool],
    ) -> None:
        self._env, self._pacer, self._outbox, self._topics, self._served = env, pacer, outbox, topics, served
        self._resume, self._stop_on = resume, stop_on
        self.state: State = "idle"
        self._links: set[Link] = set()
        self._current: Link | None = None  # carries messages
        self._opening: Link | None = None  # until it is open
        self._attempts = 0
        self._opened_at = 0.0
        self._lost_at = 0.0
        self._heard = True  # something since the last ping
        self._heard_at = 0.0
        self._due = 0.0  # when the watch checks that
        self._failed_with = 0  # the close code after which the client stops at the second time
        self._session: dict[str, Any] | None = None
        self._silence = 25.0  # before a ping
        self._patience = 10.0  # for its answer
        self._deadline: Timer | None = None  # of the attempt
        self._retry_timer: Timer | None = None
        self._watch_timer: Timer | None = None

    @property
    def about(self) -> About | None:
        return self._current.about if self._current else None

    def is_current(self, link: Link) -> bool:
        return link is self._current

    def has(self, link: Link) -> bool:
        """Reports whether the events of a link count."""
        return link in self._links

    def _set_state(self, state: State, info: StateInfo | None = None) -> None:
        self.state = state
        self._env.do(StateChanged(state, info or StateInfo()))

    # Attempts

    def start(self, again: bool = False) -> None:
        """Connects. again: also after close."""
        if self.state == "idle" or (again and self.state == "closed"):
            self._dial()

    def _dial(self) -> None:
        _cancel(self._retry_timer)
        self._end_attempt()
        link = self._opening = Link(expired=self._failed_with == UNAUTHENTICATED)
        self._links.add(link)
        timeout = TimeoutError("the connection was not open after 10 s")
        self._deadline = self._env.after(CONNECT_TIMEOUT, lambda: self.failed(link, timeout))
        if self._current is None:
            self._set_state("connecting")
        self._env.do(Dial(link))

    def _end_attempt(self) -> None:
        _cancel(self._deadline)
        if self._opening is not None:
            self._drop(self._opening)

    def failed(self, link: Link, cause: BaseException) -> None:
        """The attempt has failed before there was a connection."""
        if link is self._opening:
            self._end_attempt()
            self._ended(1006, caused_by("UNAVAILABLE", cause))

    def unusable(self, link: Link, cause: BaseException) -> None:
        """The next attempt would fail like this one."""
        if link is self._opening:
            self._stop(StateInfo(caused_by("FAILED_PRECONDITION", cause)))

    def connected(self, link: Link) -> None:
        """Greets, and continues the session if there is one. The connection is open after the answer."""
        link.open = True
        self._heard_at = self._env.now()
        self._greet(link)

    def _greet(self, link: Link) -> None:
        session = self._session
        within = session["resumeWithinMs"] / 1000 if session else 0
        resumes = session is not None and (self._current is not None or self._env.now() - self._lost_at < within)
        if self._pacer is not None:
            self._pacer.restart()

        def welcomed(error: PenstockError | None, welcome: Any, _: str) -> None:
            if link is not self._opening:
                return
            if error is None:
                self._welcome(link, welcome, resumes)
            if not resumes:
                self._opened(link, None)

        hello: dict[str, Any] = {"version": 1}
        if self._resume and not resumes:
            hello["session"] = True
        self._outbox.submit("$ws:hello", hello, on=link, first=True, done=welcomed)
        if not resumes or session is None:
            return
        if self._current is None:
            return self._resume_session(link, session["token"])
        # The server rejects what arrives on the old link after the session has left it. This answer shows that all
        # has arrived.
        self._use(None)

        def arrived(*_: Any) -> None:
            if link is self._opening:
                self._resume_session(link, session["token"])

        self._outbox.submit("$ws:hello", {"version": 1}, on=self._current, first=True, done=arrived)

    def _welcome(self, link: Link, welcome: dict[str, Any], resumes: bool) -> None:
        if self._pacer is not None:
            self._pacer.announce(welcome.get("limits") or [])
        self._env.welcome = welcome
        self._silence = welcome["pingIntervalMs"] / 1000
        self._patience = welcome["pongTimeoutMs"] / 1000
        id = welcome["connId"]
        link.about = About(id, id, False, welcome.get("contractHash") or "")
        if not resumes:
            self._session = welcome.get("session")

    def _resume_session(self, link: Link, token: str) -> None:
        room = (self._env.welcome.get("maxMessageBytes") or 65_536) / 2
        shown = []  # the others are subscribed to afterwards
        for topic in self._topics.resumable():
            room -= len(json.dumps(topic))
            if room > 0:
                shown.append(topic)

        def resumed(error: PenstockError | None, answer: Any, id: str) -> None:
            if link is not self._opening:
                return
            if error is None:
                self._session = answer.get("session")
                link.about.member_id = answer["memberId"]
                self._outbox.tell(link, "$ws:ack", {"correlationId": id})
                self._opened(link, answer["topics"])
            elif error.retryable:
                self._end_attempt()
                self._ended(1013, error)
            else:
                self._session = None
                self._greet(link)

        payload = {"token": token, "topics": shown}
        self._outbox.submit("$ws:resume", payload, on=link, first=True, done=resumed)

    def _opened(self, link: Link, results: list[dict[str, Any]] | None) -> None:
        old = self._current
        self._use(None)
        self._current, self._opening = link, None
        _cancel(self._deadline)
        link.about.resumed = results is not None
        self._opened_at = self._env.now()
        self._watch(self._silence)
        self._topics.opened(results or [])
        self._outbox.use(link)
        if old is not None:
            old.retired = True
            self.drop_retired(old)
        self._set_state("open", StateInfo(resumed=link.about.resumed))

    # Ends

    def _drop(self, link: Link, code: int | None = None, too_big: bool = False) -> None:
        """Detaches a link, whose calls are lost, and closes it."""
        self._links.discard(link)
        if link is self._opening:
            self._opening = None
            if self._current is not None:
                self._use(self._current)  # which the session has not left
        if link is self._current:
            self._current = None
            _cancel(self._watch_timer)
            self._lost_at = self._env.now()
            self._end_backoff()
            self._use(None)
        self._outbox.lost(link, too_big)
        for call in list(link.serving.values()):
            self._served.cancel(call)
        self._env.do(Close(link, code))

    def _use(self, link: Link | None) -> None:
        """Without a link that carries messages, they wait."""
        self._topics.online(link is not None)
        self._outbox.use(link)

    def _end_backoff(self) -> None:
        """A connection that was open for a while ends the backoff."""
        if self._env.now() - self._opened_at >= HEALTHY_AFTER:
            self._attempts = self._failed_with = 0

    def closed(self, link: Link, code: int, reason: str) -> None:
        """The connection of a link has ended, or the server has refused it."""
        if link is self._opening:
            self._end_attempt()
        else:
            self._drop(link, None, code == TOO_BIG)
        if not link.retired:
            self._ended(code, close_error(code, reason))

    def drop_retired(self, link: Link) -> None:
        """Closes a link that was replaced when its calls are answered. If they take long, the server closes it."""
        if link.retired and link in self._links and self._outbox.is_idle(link):
            self._drop(link, 1000)

    def _ended(self, code: int, error: PenstockError) -> None:
        """The connection or an attempt has ended."""
        if self._opening is not None:
            return self._set_state("connecting")  # the attempt to move to another server goes on
        kind = code if code == UNAUTHENTICATED else int(code in VIOLATION)
        final = error.retry_after == math.inf and code >= 4000  # the server accepts no later connection either
        if code in STOP or final or (kind and kind == self._failed_with) or self._stop_on(code):
            return self._stop(StateInfo(error, code))
        self._failed_with = kind
        demanded = 0.0 if error.retry_after in (None, math.inf) else float(error.retry_after or 0)
        delay = demanded + backoff_after(code, demanded, self._attempts, self._env.random)
        self._attempts += 1
        self._retry(delay)
        if self._current is None:
            self._set_state("waiting", StateInfo(error, code, delay))

    def move(self, seconds: float) -> None:
        """Connects to another server, as this one asks, and uses the current link until then.

        A move counts as an attempt: a server that asks for it on every connection would be followed without a pause.
        """
        self._end_backoff()
        pause = backoff_after(1006, 0, self._attempts, self._env.random) if self._attempts else 0
        self._attempts += 1
        self._retry(max(0, seconds) + pause)

    def _retry(self, seconds: float) -> None:
        _cancel(self._retry_timer)
        self._retry_timer = self._env.after(seconds, self._dial)

    def _stop(self, info: StateInfo, code: int | None = None) -> None:
        _cancel(self._deadline)
        _cancel(self._retry_timer)
        self.state = "closed"
        self._opening = None
        for link in list(self._links):
            self._drop(link, code)
        self._session = None
        self._attempts = self._failed_with = 0
        self._topics.online(False, forget=True)
        self._outbox.end_all(info.error or PenstockError("CANCELLED", "the client is closed"))
        self._env.timers.clear()
        self._set_state("closed", info)

    def close(self) -> None:
        if self.state != "closed":
            self._stop(StateInfo(PenstockError("CANCELLED", "the client is closed")), 1000)  # the session ends

    # Silence

    def heard(self) -> None:
        """Something was received."""
        self._heard = True
        self._heard_at = self._env.now()

    def _watch(self, seconds: float) -> None:
        """Checks after a time whether something was received, and sends a ping after silence.

        Timers may be late: only silence by the clock counts, and after a suspension messages may wait unread.
        """
        self._due = self._env.now() + seconds
        _cancel(self._watch_timer)
        self._watch_timer = self._env.after(seconds, lambda: self._check(seconds))

    def _check(self, seconds: float) -> None:
        link, now = self._current, self._env.now()
        if link is None:
            return
        silent = now - self._heard_at
        if not self._heard and now <= self._due + seconds:
            self._drop(link)
            self._ended(1006, PenstockError("UNAVAILABLE", "the server does not answer pings"))
        elif self._heard and silent < self._silence:
            self._watch(self._silence - silent)
        else:
            self._heard = False
            self._env.do(Ping(link))
            self._watch(self._patience)


def _cancel(timer: Timer | None) -> None:
    if timer is not None:
        timer.cancel()

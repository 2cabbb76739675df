"""Subscriptions. What is wanted is the truth: requests follow from it, one at a time for each topic."""

from __future__ import annotations

from typing import Any

from ._backoff import backoff
from ._env import Deliver, Ended, Env, Report, Subscribed
from ._outbox import Outbox
from .errors import PenstockError, decode_error
from .messages import Loss, Member, Message, Position

MAX_REQUESTS = 16  # without an answer
RETRY = 1.0

Payload = dict[str, Any]


class Sub:
    """A subscription of the application."""

    def __init__(
        self,
        topic: str,
        since: Position | None = None,
        state: bool = False,
        presence: bool = False,
        last: int = 0,
        hidden: bool = False,
    ) -> None:
        self.topic, self.state, self.presence, self.last, self.hidden = topic, state, presence, last, hidden
        # Not requested yet, without an epoch if it begins with the latest publications.
        self.since = since if since and since.epoch else Position("", 0) if last > 0 else None
        self.handled = 0  # up to where it skips publications, because another one begins at an older position
        self.ended = False


def _member(m: Payload) -> Member:
    return Member(m.get("connId", ""), m.get("tenantId", ""), m.get("userId", ""), m.get("info", ""))


def _position(p: Any) -> Position | None:
    return Position(p["epoch"], p.get("offset", 0)) if isinstance(p, dict) and p.get("epoch") else None


class _Topic:
    def __init__(self, topics: Topics, name: str) -> None:
        self._topics, self._env, self._name = topics, topics.env, name
        self._subs: list[Sub] = []
        self._listeners = Sub(name)  # of the client, for all topics
        self._position: Position | None = None  # up to where publications were handled
        self._subscribed = False  # as far as the server has answered
        self._stale = False  # the subscription must be made again, for its state or its presence
        self._anew = False  # without the position, so that the server sends the state
        self._busy = False  # a request has no answer
        self._hidden = False  # in the last request
        self._by_server = False  # a handler of the server has subscribed
        self._state_left = 0.0  # publications of the state that follow; infinite until $ws:state
        self._members: dict[str, Member] = {}

    # What is wanted

    def _wants_state(self) -> bool:
        return any(s.state for s in self._subs)

    def _wants_presence(self) -> bool:
        return any(s.presence for s in self._subs)

    def _wants_hidden(self) -> bool:
        return bool(self._subs) and all(s.hidden for s in self._subs)

    def _known(self) -> Position | None:
        """Returns the position. A state that is not complete, or is asked for anew, has none."""
        return None if (self._anew and self._wants_state()) or self._state_left else self._position

    def position_of(self, sub: Sub) -> Position | None:
        at = self._known()
        if at is None:
            return None
        if sub.since is not None:
            return sub.since if sub.since.epoch else None
        return Position(at.epoch, max(at.offset, sub.handled))

    def _move_to(self, to: Position | None, late: Sub | None = None) -> None:
        at = self._position
        same = (to.epoch if to else None) == (at.epoch if at else None)
        for s in (self._listeners, *self._subs):
            s.handled = max(s.handled, at.offset if at else 0) if same and s is not late else 0
        self._position = to

    def _late(self) -> Sub | None:
        """Returns the subscription that begins at another position than the others, if there is one."""
        at = self._known()
        for sub in self._subs:
            if sub.since is None or (at is None and sub.since.epoch):
                continue
            if at is None or sub.since.epoch != at.epoch or sub.since.offset < at.offset:
                return sub
            sub.handled = sub.since.offset
            sub.since = None
        return None

    def request(self, at: Position | None = None) -> Payload:
        """Returns the request that subscribes, from a position or that of the topic."""
        at = at or self._known()
        payload: Payload = {"topic": self._name, "positions": True}
        if at is not None and at.epoch:
            payload |= {"epoch": at.epoch, "offset": at.offset}
        if last := max((s.last for s in self._subs), default=0):
            payload["last"] = last
        if self._wants_state():
            payload["state"] = True
        if self._wants_presence():
            payload["presence"] = True
        self._hidden = self._wants_hidden()
        if self._hidden:
            payload["hidden"] = True
        return payload

    def sync(self) -> None:
        """Sends the request that makes the server's subscription what is wanted."""
        topics, wanted = self._topics, bool(self._subs)
        if not (wanted or self._subscribed or self._busy):
            topics.forget(self._name)
        late = self._late()
        if not topics.may_request() or self._busy:
            return
        if wanted:
            as_wanted = self._wants_hidden() == self._hidden and not self._stale and late is None
            if self._subscribed and as_wanted:
                return
        elif not self._subscribed or self._by_server:
            return
        presented = late.since if late is not None else self._known()
        connection = topics.connections
        self._busy, self._stale = True, False
        topics.requests += 1

        def done(error: PenstockError | None, answer: Any, _: str) -> None:
            if connection != topics.connections:
                return  # asked again on the next connection
            self._busy = False
            topics.requests -= 1
            if error is not None:
                if topics.open:
                    self._failed(error)
            elif wanted:
                self._accepted(answer, presented, late)
                if "presence" in payload and "members" not in answer:
                    text = f"topic {self._name!r} has no presence; $members is not delivered"
                    self._env.do(Report(PenstockError("FAILED_PRECONDITION", text)))
            else:
                self._subscribed = False
            topics.sync()

        type = "$ws:subscribe" if wanted else "$ws:unsubscribe"
        payload = self.request(presented) if wanted else {"topic": self._name}
        topics.outbox.submit(type, payload, first=True, done=done)

    # Answers

    def _accepted(self, answer: Payload, presented: Position | None = None, late: Sub | None = None) -> None:
        self._subscribed = True
        self._anew = self._anew and self._stale  # asked for after the request
        at, recovered, state = _position(answer), bool(answer.get("recovered")), answer.get("state")
        ended = _position(answer.get("ended"))
        missed = state is None and presented is not None and at is not None and (ended is not None or not recovered)
        loss = Loss(self._name, ended=ended if recovered else None)
        if late is not None:
            late.since = None
            if at is None:
                text = f"topic {self._name!r} has no history; last has no effect"
                self._env.do(Report(PenstockError("FAILED_PRECONDITION", text)))
            if missed:
                self._deliver([late], Message("$loss", loss, self._name))
            before = self._position
            if before and state is None and not (at and at.epoch == before.epoch and at.offset <= before.offset):
                self._stale = True  # the others go on
                return
        if recovered and presented and at and presented.epoch == at.epoch and presented.offset > at.offset:
            at = presented
        # Messages that have arrived between the request and the answer come again.
        self._move_to(at, late)
        self._state_left = float("inf") if answer.get("more") else state or 0
        if state is not None:
            self._deliver([s for s in self._subs if s.state], Message("$reset", state, self._name))
        elif missed and late is None:
            self._lose(loss)
        if (members := answer.get("members")) is not None:
            self._members = {}
            self._change_presence({"joined": members})
        for sub in self._subs:
            self._env.do(Subscribed(sub))

    def _failed(self, error: PenstockError) -> None:
        if error.retryable:
            self._stale = True
            self._topics.pause((error.retry_after or RETRY) + backoff(0, self._env.random()))
        else:
            self._end(error, list(self._subs))

    def _end(self, error: PenstockError, ended: list[Sub]) -> None:
        """Ends subscriptions. Those that their handlers make stay."""
        for sub in ended:
            self._subs.remove(sub)
            sub.ended = True
            self._env.do(Ended(sub, error))
        self.sync()

    # Events

    def _deliver(self, subs: list[Sub], message: Message) -> None:
        for sub in subs:
            self._env.do(Deliver(sub, message))

    def _lose(self, loss: Loss) -> None:
        message = Message("$loss", loss, self._name)
        self._deliver(self._subs, message)
        self._env.do(Deliver(None, message))
        if self._wants_state():
            self._refresh(for_state=True)

    def _refresh(self, for_state: bool = False) -> None:
        """Subscribes again. With a position, the server would send what is missing instead of the state."""
        self._anew = self._anew or for_state
        self._stale = True
        self.sync()

    def _change_presence(self, change: Payload) -> None:
        for left in change.get("left") or ():
            self._members.pop(left.get("connId"), None)
        for joined in change.get("joined") or ():
            self._members[joined.get("connId")] = _member(joined)
        members = list(self._members.values())
        self._deliver([s for s in self._subs if s.presence], Message("$members", members, self._name))

    def add(self, sub: Sub) -> None:
        asked, ready = self._subscribed or self._busy, self._subscribed and not self._busy
        if not asked and self._position is None and sub.since and sub.since.epoch:
            self._position = sub.since
        self._subs.append(sub)
        if ready:
            self._env.do(Subscribed(sub))
        if asked and (sub.state or sub.presence):
            self._refresh(sub.state)
        self.sync()

    def remove(self, sub: Sub) -> None:
        if sub in self._subs:
            self._subs.remove(sub)
            self.sync()

    def opened(self, result: Payload | None) -> None:
        """A connection is open. result says how it continues."""
        self._subscribed = self._busy = False
        if result is not None:
            self._accepted(result, self._position)
        else:
            self._by_server = False

    def subscribed_by_server(self, notice: Payload) -> None:
        """A handler of the server has subscribed the connection."""
        self._by_server = True
        if not self._subscribed:
            self._accepted(notice)

    def forget_position(self) -> None:
        self._move_to(None)

    def receive(self, frame: Payload) -> None:
        type, payload = frame["type"], frame.get("payload")
        if type == "$ws:unsubscribed":
            self._by_server = self._subscribed = False
            error = payload.get("error") if isinstance(payload, dict) else None
            if not error:
                self._end(PenstockError("CANCELLED", "the server has ended the subscription"), list(self._subs))
            elif not self._busy:
                self._failed(decode_error(error))  # the state is not complete
            self.sync()
        elif type == "$ws:presence":
            self._change_presence(payload or {})
        elif type == "$ws:state":
            self._state_left = 0
        elif type == "$ws:position":
            self._moved(payload or {})
        else:
            self._publication(frame)

    def _moved(self, p: Payload) -> None:
        self._move_to(Position(p["epoch"], p["offset"]))
        lost, ended = p.get("lost"), _position(p.get("ended"))
        if lost or ended or p.get("reset"):
            first, last = (lost["from"], lost["to"]) if lost else (0, 0)
            self._lose(Loss(self._name, first, last, ended))

    def _publication(self, frame: Payload) -> None:
        meta, at = frame["meta"], self._position
        offset = meta.get("offset") or 0  # 0 if it is not in a history
        if offset and self._busy:
            return  # it follows the answer
        state = False
        if offset and at is not None:
            if offset <= at.offset:
                if not self._state_left:
                    return  # known
                self._state_left -= 1
                state = True
            elif offset > at.offset + 1:
                return self._refresh()  # the server sends again what is missing, and this publication
        position = Position(at.epoch, offset) if offset and at is not None else None
        message = Message(frame["type"], frame.get("payload"), self._name, position, state, meta.get("timestamp") or 0)
        for sub in (self._listeners, *self._subs):
            if not offset or state or (sub.since is None and offset > sub.handled):
                self._env.do(Deliver(None if sub is self._listeners else sub, message))
        if position is not None and not state:
            self._position = position


class Topics:
    """The topics of a client."""

    def __init__(self, env: Env, outbox: Outbox) -> None:
        self.env, self.outbox = env, outbox
        self.open = False  # a connection carries messages
        self.connections = 0
        self.requests = 0  # without an answer
        self._topics: dict[str, _Topic] = {}
        self._wait_until = 0.0

    def _find(self, name: str) -> _Topic:
        if name not in self._topics:
            self._topics[name] = _Topic(self, name)
        return self._topics[name]

    def may_request(self) -> bool:
        return self.open and self.requests < MAX_REQUESTS and self.env.now() >= self._wait_until

    def pause(self, seconds: float) -> None:
        """Sends no further requests for a time."""
        self._wait_until = self.env.now() + seconds
        self.env.timers.add(self._wait_until, self.sync)

    def forget(self, name: str) -> None:
        self._topics.pop(name, None)

    def sync(self) -> None:
        for topic in list(self._topics.values()):
            topic.sync()

    def subscribe(self, sub: Sub) -> None:
        self._find(sub.topic).add(sub)

    def unsubscribe(self, sub: Sub) -> None:
        if not sub.ended:
            sub.ended = True
            if sub.topic in self._topics:
                self._topics[sub.topic].remove(sub)

    def position(self, sub: Sub) -> Position | None:
        topic = self._topics.get(sub.topic)
        return topic.position_of(sub) if topic else None

    def resumable(self) -> list[Payload]:
        """Returns topics and positions for a new connection."""
        return [topic.request() for topic in self._topics.values()]

    def opened(self, results: list[Payload]) -> None:
        """A connection is open. results is the answer to the topics above if the session continues."""
        self.connections += 1
        self.open = True
        self.requests, self._wait_until = 0, 0.0
        resumed = {r["topic"]: r for r in results if not r.get("error")}  # others are subscribed again
        for name, topic in list(self._topics.items()):
            topic.opened(resumed.pop(name, None))
        for name, result in resumed.items():
            self._find(name).subscribed_by_server(result)
        self.sync()

    def online(self, open: bool, forget: bool = False) -> None:
        """Says whether a connection carries messages. forget: the next one may be of another user."""
        self.open = open
        if forget:
            for topic in self._topics.values():
                topic.forget_position()
        self.sync()

    def receive(self, frame: Payload) -> bool:
        """Handles a message of the server about a topic, and reports whether it is one."""
        type, payload = frame["type"], frame.get("payload")
        name = frame["meta"].get("topic")
        if name is None and type.startswith("$ws:") and isinstance(payload, dict):
            name = payload.get("topic")
        if not isinstance(name, str):
            return False
        if type == "$ws:subscribed":
            self._find(name).subscribed_by_server(payload or {})
            return True
        if topic := self._topics.get(name):
            topic.receive(frame)
            return True
        return False

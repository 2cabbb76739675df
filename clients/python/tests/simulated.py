"""A core with a clock and a server that tests control. Nothing does input or output."""

import json
from typing import Any

from penstock_client import _env as do
from penstock_client._core import Core
from penstock_client._env import Link
from penstock_client._queue import Entry
from penstock_client.errors import PenstockError

WELCOME: dict[str, Any] = {
    "connId": "C1",
    "pingIntervalMs": 25_000,
    "pongTimeoutMs": 10_000,
    "maxMessageBytes": 65_536,
    "callTimeoutMs": 30_000,
    "concurrency": 64,
}


class Simulated:
    """Executes the actions of a core: it records what the client does, and answers what a test says."""

    def __init__(self, **options: Any) -> None:
        self.time = 1_000.0
        self.core = Core(now=lambda: self.time, random=lambda: 0.5, **options)
        self.links: list[Link] = []
        self.dials: list[float] = []
        self.sent: list[dict[str, Any]] = []
        self.done: list[do.Action] = []
        self.settled: list[tuple[PenstockError | None, Any]] = []

    @property
    def link(self) -> Link:
        return self.links[-1]

    def run(self) -> None:
        while actions := self.core.take_actions():
            for action in actions:
                self.done.append(action)
                if isinstance(action, do.Dial):
                    self.links.append(action.link)
                    self.dials.append(self.time)
                elif isinstance(action, do.Write):
                    self.sent.append(json.loads(action.data))
                    self.core.written(action.link, len(action.data))

    def wait(self, seconds: float) -> None:
        """Lets time pass."""
        end = self.time + seconds
        while (when := self.core.next_timer()) is not None and when <= end:
            self.time = max(self.time, when)
            self.core.run_timers()
            self.run()
        self.time = end

    def open(self, **welcome: Any) -> None:
        """Opens the connection that the client has asked for."""
        self.core.connection.start()
        self.run()
        self.core.connected(self.link)
        self.run()
        self.answer(self.sent[-1], "$ws:welcome", WELCOME | welcome)

    def receive(self, type: str, payload: Any = None, **meta: Any) -> None:
        frame = {"type": type, "meta": {"timestamp": 1, **meta}}
        self.core.received(self.link, json.dumps(frame if payload is None else frame | {"payload": payload}))
        self.run()

    def answer(self, message: dict[str, Any], type: str, payload: Any = None) -> None:
        self.receive(type, payload, correlationId=message["meta"]["correlationId"])

    def cut(self) -> None:
        self.core.closed(self.link, 1006, "")
        self.run()

    def submit(self, type: str, **options: Any) -> Entry:
        entry = self.core.submit(
            type, {"n": 1}, done=lambda error, reply, _: self.settled.append((error, reply)), **options
        )
        self.run()
        return entry

    def of(self, type: str) -> list[dict[str, Any]]:
        """Returns the messages of a type that the client has sent."""
        return [message for message in self.sent if message["type"] == type]

"""The asyncio side of a client: it executes what the core asks for, and calls the functions of the application."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

from . import _env as do
from ._core import Core
from ._inbox import Inbox
from ._queue import Entry
from ._topics import Sub
from ._transport import Socket, Target
from .errors import PenstockError
from .messages import Loss, Message, State, StateInfo

_log = logging.getLogger("penstock_client")

MAX_UNREAD = 1_000  # messages that wait for the loop over a subscription


class Clock:
    """The time. For tests, it may run faster."""

    def __init__(self, scale: float = 1) -> None:
        self.scale = scale

    def now(self) -> float:
        return time.monotonic() * self.scale


class Receiver:
    """Who receives the messages of a subscription: a handler, or the inbox of a loop."""

    def __init__(self, handler: Callable[[Message], Any] | None, on_end: Callable[[PenstockError], Any] | None) -> None:
        self.handler, self.on_end = handler, on_end
        self.inbox: Inbox[Message] | None = Inbox() if handler is None else None
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ready.add_done_callback(lambda f: f.cancelled() or f.exception())  # it may be of no interest
        self._overflowed = False

    def put(self, inbox: Inbox[Message], message: Message) -> None:
        """Adds a message for the loop. If too many wait, those that follow are one loss."""
        if len(inbox) < MAX_UNREAD:
            self._overflowed = False
            inbox.put(message)
        elif not self._overflowed:
            self._overflowed = True
            inbox.put(Message("$loss", Loss(message.topic or ""), message.topic))


class Runtime:
    """Executes the actions of a core on the event loop that runs when the client is used."""

    def __init__(self, core: Core, target: Target, clock: Clock) -> None:
        self.core, self._target, self._clock = core, target, clock
        self.handlers: dict[str, list[Callable[[Any, Message], Any]]] = {}
        self.servers: dict[str, Callable[[Any], Any]] = {}
        self.state_listeners: list[Callable[[State, StateInfo], Any]] = []
        self.error_listeners: list[Callable[[BaseException], Any]] = []
        self.refresh: Callable[[], Awaitable[None]] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed = math.inf  # when the timer fires
        self._executing = False
        self._sockets: dict[do.Link, Socket] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._serving: dict[do.ServerCall, asyncio.Task[Any]] = {}
        self._receivers: dict[Sub, Receiver] = {}
        self._connecting: set[asyncio.Future[None]] = set()

    # Events of the application

    def loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                raise RuntimeError("a client belongs to one event loop")
            self._loop = loop
        return loop

    async def connect(self) -> None:
        future = self.loop().create_future()
        self._connecting.add(future)
        self.core.connection.start(again=True)
        self.execute()
        try:
            await future
        finally:
            self._connecting.discard(future)

    async def close(self) -> None:
        self.loop()
        sockets = list(self._sockets.values())
        self.core.close()
        self.execute()
        tasks = [s.task for s in sockets] + [t for t in self._tasks if t is not asyncio.current_task()]
        if tasks:
            _, pending = await asyncio.wait(tasks, timeout=self._target.close_timeout)
            for task in pending:
                task.cancel()
        if self._target.fallback is not None:
            await self._target.fallback.close(self._target.close_timeout)

    def submit(self, type: str, payload: Any, **options: Any) -> Entry:
        self.loop()
        try:
            return self.core.submit(type, payload, **options)
        finally:
            self.execute()

    async def request(
        self, type: str, payload: Any, *, on_progress: Callable[[Any], Any] | None = None, **options: Any
    ) -> Any:
        """Sends a message, and returns the payload of its reply. A caller that is canceled cancels the message."""
        if on_progress is not None:
            options["on_progress"] = functools.partial(self.call, on_progress)
        future: asyncio.Future[Any] = self.loop().create_future()

        def done(error: PenstockError | None, reply: Any, _: str) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(reply)

        entry = self.submit(type, payload, done=done, **options)
        try:
            return await future
        except asyncio.CancelledError:
            self.cancel(entry)
            raise

    def cancel(self, entry: Entry) -> None:
        self.core.outbox.cancel(entry)
        self.execute()

    def grant(self, entry: Entry, credit: int) -> None:
        self.core.outbox.grant(entry, credit)
        self.execute()

    def subscribe(self, sub: Sub, receiver: Receiver) -> None:
        self.loop()
        self._receivers[sub] = receiver
        try:
            self.core.subscribe(sub)
        except PenstockError:
            del self._receivers[sub]
            raise
        self.execute()

    def unsubscribe(self, sub: Sub) -> None:
        if (receiver := self._receivers.pop(sub, None)) is None:
            return
        self.core.topics.unsubscribe(sub)
        if receiver.inbox is not None:
            receiver.inbox.end()
        receiver.ready.cancel()
        self.execute()

    def from_any_thread(self, function: Callable[[Any], None], argument: Any) -> None:
        """Calls a function on the event loop, unless that is closed."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, argument)

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        """Runs a coroutine of the client or of the application, which close waits for."""
        task: asyncio.Task[Any] = self.loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Actions

    def execute(self) -> None:
        """Executes what the core asks for. It is called after each event."""
        if self._executing:
            return  # what follows is in the same list
        self._executing = True
        try:
            while actions := self.core.take_actions():
                for action in actions:
                    _EXECUTE[type(action)](self, action)
        finally:
            self._executing = False
        when = self.core.next_timer()
        if when is not None and when < self._armed:
            if self._timer is not None:
                self._timer.cancel()
            delay = max(0.0, when - self._clock.now()) / self._clock.scale
            self._armed, self._timer = when, self.loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._armed, self._timer = math.inf, None
        self.core.run_timers()
        self.execute()

    def _dial(self, action: do.Dial) -> None:
        socket = self._sockets[action.link] = Socket(self.core, action.link, self._target, self.execute)
        socket.task.add_done_callback(lambda _: self._sockets.pop(action.link, None))

    def _write(self, action: do.Write) -> None:
        if socket := self._sockets.get(action.link):
            socket.write(action.data)

    def _ping(self, action: do.Ping) -> None:
        if socket := self._sockets.get(action.link):
            socket.write(None)

    def _close(self, action: do.Close) -> None:
        if socket := self._sockets.get(action.link):
            socket.close(action.code)

    def _serve(self, action: do.Serve) -> None:
        call = action.call
        task = self._serving[call] = self.spawn(self._answer(call))
        task.add_done_callback(lambda _: self._answered(call, task))

    def _cancel_serve(self, action: do.CancelServe) -> None:
        if task := self._serving.get(action.call):
            task.cancel()

    async def _answer(self, call: do.ServerCall) -> Any:
        reply = self.servers[call.type](call.payload)
        return await reply if inspect.isawaitable(reply) else reply

    def _answered(self, call: do.ServerCall, task: asyncio.Task[Any]) -> None:
        """The handler has ended, or was canceled before it began."""
        del self._serving[call]
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self.core.finished(call, None if error else task.result(), error)
        self.execute()

    def _refresh(self, _: do.Refresh) -> None:
        if self.refresh is not None:
            self.spawn(self._reported(self.refresh()))

    def _deliver(self, action: do.Deliver) -> None:
        message = action.message
        if action.sub is None:
            for handler in tuple(self.handlers.get(message.type, ())):
                self.call(handler, message.payload, message)
        elif receiver := self._receivers.get(action.sub):
            if receiver.inbox is not None:
                receiver.put(receiver.inbox, message)
            elif receiver.handler is not None:
                self.call(receiver.handler, message)

    def _subscribed(self, action: do.Subscribed) -> None:
        receiver = self._receivers.get(action.sub)
        if receiver is not None and not receiver.ready.done():
            receiver.ready.set_result(None)

    def _ended(self, action: do.Ended) -> None:
        if (receiver := self._receivers.pop(action.sub, None)) is None:
            return
        if not receiver.ready.done():
            receiver.ready.set_exception(action.error)
        if receiver.inbox is not None:
            receiver.inbox.end(action.error)
        if receiver.on_end is not None:
            self.call(receiver.on_end, action.error)
        elif receiver.inbox is None:
            self._report(action.error)

    def _state_changed(self, action: do.StateChanged) -> None:
        error = action.info.error or PenstockError("CANCELLED", "the client is closed")
        for future in self._connecting:
            if action.state == "open" and not future.done():
                future.set_result(None)
            elif action.state == "closed" and not future.done():
                future.set_exception(error)
        if action.state == "closed":
            for sub in list(self._receivers):
                self.core.topics.unsubscribe(sub)
                self._ended(do.Ended(sub, error))
        for listener in tuple(self.state_listeners):
            self.call(listener, action.state, action.info)

    # Functions of the application

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Calls a function of the application, and reports what it raises."""
        try:
            result = function(*arguments)
        except Exception as error:
            return self._report(error)
        if result is not None and inspect.iscoroutine(result):
            self.spawn(self._reported(result))

    async def _reported(self, work: Awaitable[Any]) -> None:
        try:
            await work
        except Exception as error:
            self._report(error)

    def _report(self, error: BaseException) -> None:
        if not self.error_listeners:
            _log.error("%s", error, exc_info=error)
        for listener in tuple(self.error_listeners):
            try:
                listener(error)
            except Exception:
                _log.exception("a listener for errors has failed")


_EXECUTE: dict[type[Any], Callable[[Runtime, Any], None]] = {
    do.Dial: Runtime._dial,
    do.Write: Runtime._write,
    do.Ping: Runtime._ping,
    do.Close: Runtime._close,
    do.Serve: Runtime._serve,
    do.CancelServe: Runtime._cancel_serve,
    do.Refresh: Runtime._refresh,
    do.Deliver: Runtime._deliver,
    do.Subscribed: Runtime._subscribed,
    do.Ended: Runtime._ended,
    do.Report: lambda runtime, action: runtime._report(action.error),
    do.StateChanged: Runtime._state_changed,
}

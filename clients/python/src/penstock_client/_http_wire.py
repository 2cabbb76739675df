"""A connection over HTTP, section 15 of the protocol: events in responses, messages in numbered requests."""

from __future__ import annotations

import asyncio
import codecs
import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeVar

from ._http import Requests, Response, is_ours, retry_after
from ._wire import LOST, Ended

BATCH_BYTES = 64_000  # of the messages in one request, so that its body stays below 64 KiB
BUFFER_BYTES = 64_000  # that wait for a request, before send waits
ACK_BYTES = 16_384
ACK_AFTER = 5.0
REQUEST_TIMEOUT = 10.0
LOST_AFTER = 30.0  # without a request that succeeds
MUTE_AFTER = 3.0  # until the first byte of a stream
SILENT_AFTER = 25.0  # the server writes a comment every 15 s
POLL_WAIT = 25.0  # of the server for an event
POLL_TIMEOUT = 35.0
PAUSE = 1.0  # after a request that has failed, or a response without events

NO_CODE = 1005
TOO_LARGE = 1009
BUSY = 1013

Mode = Literal["stream", "poll"]
T = TypeVar("T")

_BLANK = re.compile(r"\r?\n\r?\n")
_FIELD = re.compile(r"(\w+): ?(.*)", re.DOTALL)


class Events:
    """Decodes Server-Sent Events, of which one may come in many parts."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._parts: list[str] = []

    def feed(self, data: bytes) -> list[dict[str, str]]:
        """Returns the fields of each event that is complete."""
        text = self._decoder.decode(data)
        self._parts.append(text)
        if "\n" not in text:
            return []
        *events, rest = _BLANK.split("".join(self._parts))
        self._parts = [rest]
        return [_fields(event) for event in events]


def _fields(event: str) -> dict[str, str]:
    # Messages may contain U+2028, which ends a line for splitlines.
    lines = (line.rstrip("\r") for line in event.split("\n"))
    return {found[1]: found[2] for line in lines if (found := _FIELD.fullmatch(line))}


class HTTPWire:
    """A connection over HTTP."""

    def __init__(
        self,
        requests: Requests,
        opening: Mapping[str, Any],
        headers: Mapping[str, str],
        mode: Mode,
        used: Callable[[Mode], None],
        scale: float = 1,
    ) -> None:
        """used is called with the mode when the connection is open, and when it changes."""
        self._requests, self._opening, self._headers, self._used, self._scale = requests, opening, headers, used, scale
        self._mode: Mode = mode
        self._reported: Mode | None = None
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._inbox: asyncio.Queue[str | Ended] = asyncio.Queue()
        self._secret: str | None = None  # once the connection is open
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._room = asyncio.Event()
        self._sequence = 0  # of the last batch
        self._received = 0  # the number of the last event
        self._events = 0  # with or without a number
        self._owed = 0  # bytes of events that are not acknowledged
        self._ack_timer: asyncio.TimerHandle | None = None
        self._acknowledging = False
        self._goodbye: dict[str, Any] | None = None
        self._doomed = False  # the server has refused messages: it may have closed the connection
        self._over = False
        self._sending: asyncio.Task[None] | None = None
        self._exchange: asyncio.Task[bool] | None = None  # that receives events
        self._tasks: set[asyncio.Task[Any]] = set()
        self._answered_at = 0.0
        self._status = 0  # of the last response that arrived
        self._demanded = 0.0
        self._ours = False
        self._cause: BaseException | None = None  # of one that did not
        self.refused_for_good = False

    async def open(self) -> None:
        """Opens the connection. It raises Ended, or an error of the network."""
        self.spawn(self._run())
        try:
            await self._opened
        except BaseException:
            self._finish(NO_CODE)
            raise

    async def recv(self) -> str:
        item = await self._inbox.get()
        if isinstance(item, Ended):
            raise item
        return item

    def deliver(self, text: str) -> None:
        """Lets recv return a text that the server has not sent."""
        self._inbox.put_nowait(text)

    async def send(self, data: bytes) -> None:
        while self._waiting_bytes > BUFFER_BYTES and not self._over:
            self._room.clear()
            await self._room.wait()
        if self._over:
            raise Ended(LOST)
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        self._flush()

    async def ping(self) -> Awaitable[Any]:
        answered = self._loop.create_future()
        answered.set_result(None)  # the requests find out whether the server is there
        return answered

    async def close(self, code: int) -> None:
        if self._over:
            return
        self._goodbye = {"code": code}
        self._flush()
        if self._sending is not None:
            await asyncio.wait({self._sending})

    def abort(self) -> None:
        if not self._over and self._secret is not None:
            body = _json({"secret": self._secret, "ack": self._received, "close": {}})
            farewell = self._loop.create_task(self._tell(body))
            _farewells.add(farewell)
            farewell.add_done_callback(_farewells.discard)
        self._finish(NO_CODE)

    @property
    def over(self) -> bool:
        return self._over

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        """Runs a coroutine until the connection has ended."""
        task: asyncio.Task[Any] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _finish(self, code: int, reason: str = "", cause: BaseException | None = None) -> None:
        if self._over:
            return
        self._over = True
        if self._ack_timer is not None:
            self._ack_timer.cancel()
        self._room.set()
        end = Ended(code, reason)
        if not self._opened.done():
            self._opened.set_exception(cause or end)
            self._opened.exception()  # open may not wait for it any more
        self._inbox.put_nowait(end)
        current = asyncio.current_task()
        for task in self._tasks | ({self._exchange} if self._exchange else set()):
            if task is not current:
                task.cancel()

    async def _within(self, seconds: float, work: Awaitable[T]) -> T:
        return await asyncio.wait_for(work, seconds / self._scale)

    def _pause(self, seconds: float) -> Awaitable[None]:
        return asyncio.sleep(seconds / self._scale)

    def _now(self) -> float:
        return self._loop.time() * self._scale

    async def _post(self, query: str, body: bytes) -> Response:
        headers = {**self._headers, "Content-Type": "text/plain;charset=UTF-8"}
        return await self._requests("POST", query, headers, body)

    async def _tell(self, body: bytes) -> tuple[int, float]:
        """Sends a request of which only the status counts, and what the server demands. 0: it has not answered."""

        async def exchange() -> tuple[int, float]:
            response = await self._post("up", body)
            try:
                while await response.read():
                    pass
            finally:
                response.close()
            return (response.status, retry_after(response)) if is_ours(response) else (0, 0)

        try:
            return await self._within(REQUEST_TIMEOUT, exchange())
        except Exception:  # of the network
            return 0, 0

    # Messages of the client

    def _flush(self) -> None:
        if self._secret is not None and (self._sending is None or self._sending.done()):
            self._sending = self.spawn(self._send_all())

    async def _send_all(self) -> None:
        """Sends what waits, one request at a time."""
        await asyncio.sleep(0)  # what is sent together shares a request
        while not self._over and not self._doomed and (self._waiting or self._goodbye):
            batch: list[bytes] = []
            size = 0
            while self._waiting and (not batch or size + len(self._waiting[0]) <= BATCH_BYTES):
                size += len(self._waiting[0])
                batch.append(self._waiting.popleft())
            close = None if self._waiting else self._goodbye
            head: dict[str, Any] = {"secret": self._secret, "ack": self._acknowledged()}
            if batch:
                self._sequence += 1
                head["seq"] = self._sequence
            if close is not None:
                head["close"] = close
            await self._deliver(b"\n".join([_json(head), *batch]))
            self._waiting_bytes -= size
            self._room.set()
            if close is not None:
                self._finish(NO_CODE)

    async def _deliver(self, body: bytes) -> None:
        """Sends the same bytes until the server has received them."""
        end = self._now() + LOST_AFTER
        while not self._over:
            status, demanded = await self._tell(body)
            wait = demanded or PAUSE
            if status == 204:
                return
            if status == 413:
                self._finish(TOO_LARGE)
            elif _is_final(status):
                self._doomed = True
                if self._exchange is not None:
                    self._exchange.cancel()
                return
            elif self._now() + wait > end:
                self._finish(LOST)
            else:
                await self._pause(wait)

    # Acknowledgments

    def _acknowledged(self) -> int:
        """Returns the number of the last event, for a request that acknowledges it."""
        if self._ack_timer is not None:
            self._ack_timer.cancel()
        self._ack_timer = None
        self._owed = 0
        return self._received

    def _owe(self, size: int) -> None:
        self._owed += size
        if self._owed >= ACK_BYTES:
            self._acknowledge()
        elif self._ack_timer is None:
            self._ack_timer = self._loop.call_later(ACK_AFTER / self._scale, self._acknowledge)

    def _acknowledge(self) -> None:
        """Acknowledges beside messages, which may wait for room that an acknowledgment makes."""
        self._ack_timer = None
        if not self._acknowledging and not self._over:
            self._acknowledging = True
            self.spawn(self._send_ack())

    async def _send_ack(self) -> None:
        # If it is lost, the next one acknowledges more.
        await self._tell(_json({"secret": self._secret, "ack": self._acknowledged()}))
        self._acknowledging = False
        if self._owed and not self._over:
            self._owe(0)

    # Events of the server

    async def _run(self) -> None:
        """Opens the connection, and receives events until it has ended."""
        self._answered_at = self._now()
        while not self._over:
            before, last = self._events, self._doomed
            streams = self._mode == "stream" and not last
            self._status, self._demanded, self._ours, self._cause = 0, 0.0, False, None
            self._exchange = self._loop.create_task(self._receive(streams, last))
            await asyncio.wait({self._exchange})
            mute = not self._exchange.cancelled() and self._exchange.result()
            if self._over:
                return
            if mute:
                self._mode = "poll"
            elif self._secret is None:
                self._refuse()
            elif last or (self._ours and _is_final(self._status)) or self._now() - self._answered_at > LOST_AFTER:
                self._finish(LOST)
            elif self._events == before and not self._doomed:
                await self._pause(PAUSE)

    async def _receive(self, streams: bool, last: bool) -> bool:
        """Receives one response. It reports whether that was a stream that is mute."""
        if self._secret is None:
            query, about = "open", dict(self._opening)
        else:
            query, about = "down", {"secret": self._secret, "ack": self._acknowledged()}
            if not streams:
                about["waitMs"] = 0 if last else round(POLL_WAIT * 1000 / self._scale)
        about["mode"] = "stream" if streams else "poll"
        limit = MUTE_AFTER if streams else POLL_TIMEOUT
        response: Response | None = None
        heard = False
        try:
            response = await self._within(limit, self._post(query, _json(about)))
            self._status, self._demanded, self._ours = response.status, retry_after(response), is_ours(response)
            if self._ours and response.status == 200:
                decoder = Events()
                while part := await self._within(SILENT_AFTER if heard else limit, response.read()):
                    heard = True
                    self._report_mode()
                    for event in decoder.feed(part):
                        self._event(event)
                self._answered_at = self._now()
        except asyncio.TimeoutError as cause:
            self._cause = cause
            return streams and not heard
        except Exception as cause:  # of the network: the next request continues
            self._cause = cause
        finally:
            if heard:
                self._answered_at = self._now()
            if response is not None:
                response.close()
        return streams and not heard and self._ours and self._status == 501

    def _report_mode(self) -> None:
        if self._secret is not None and self._reported != self._mode:
            self._reported = self._mode
            self._used(self._mode)

    def _refuse(self) -> None:
        """The connection was not opened."""
        if self._status in (429, 503):
            error = {"code": "UNAVAILABLE", "retryable": True, "retryAfterMs": round(self._demanded * 1000)}
            return self._finish(BUSY, json.dumps(error))
        self.refused_for_good = _is_final(self._status)
        text = f"the response has the status {self._status}" if self._status else "the response has no event"
        self._finish(LOST, cause=self._cause or ConnectionError(f"no connection over HTTP: {text}"))

    def _event(self, fields: dict[str, str]) -> None:
        number, name, data = fields.get("id"), fields.get("event"), fields.get("data", "")
        if self._over or (number and int(number) <= self._received):
            return
        if name or number:
            self._events += 1
        if number:
            if int(number) != self._received + 1:
                return self._finish(LOST)
            self._received += 1
            self._owe(len(data.encode()))
        if name == "open":
            self._secret = str(json.loads(data)["secret"])
            self._report_mode()
            if not self._opened.done():
                self._opened.set_result(None)
            self._flush()
        elif name == "close":
            end = json.loads(data)
            self.refused_for_good = self._secret is None
            self._finish(end["code"], end.get("reason") or "")
        elif not name and data:
            self._inbox.put_nowait(data)


_farewells: set[asyncio.Task[Any]] = set()  # which end by themselves


def _is_final(status: int) -> bool:
    """Reports whether the same request would have the same answer."""
    return 400 <= status < 500 and status != 429


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()

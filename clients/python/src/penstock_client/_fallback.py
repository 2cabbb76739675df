"""When WebSocket is blocked: when a client uses HTTP instead, and when it returns."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit, urlunsplit

from websockets.exceptions import InvalidProxy, InvalidStatus, InvalidURI

from ._http import HTTP, Requests, is_ours
from ._http_wire import HTTPWire, Mode
from ._wire import LOST, Ended, WebSocketWire, Wire, error_of

if TYPE_CHECKING:
    from ._transport import Target

PROOF = 5.0  # to the first message, and from there
CHECK_TIMEOUT = 2.0  # where HTTP takes longer, WebSocket may be slow and not blocked
USE_HTTP_FOR = 600.0
MIN_PROBE = 60.0
MAX_PROBE = 1_800.0
PROBE_TIMEOUT = 10.0  # the server sends two messages, 3 s apart

OUTAGE = (429, 502, 503, 504)  # responses that proxies also have during a deploy
OF_SERVER = (1012, 1013)  # and codes from 4000 on: no proxy closes with them
OF_CLIENT = (1000, 1001)  # which the server repeats

GOAWAY = '{"type":"$ws:goaway","meta":{},"payload":{"reconnectAfterMs":0}}'

Transport = Literal["websocket", "http-stream", "http-poll", "blocked"]
"""How a client is connected. blocked: WebSocket is blocked, and HTTP is not used."""


@dataclass(frozen=True)
class Fallback:
    """Where a client connects if WebSocket is blocked, and what it says about that."""

    url: str
    """Where the server has mounted Router.HTTPFallback, without a query: http: or https:."""
    on_transport: Callable[[Transport, BaseException | None], Any] | None = None
    """Called when the transport is known, and when it changes, with the failure of the last attempt by WebSocket."""
    mode: Literal["auto", "measure", "stream", "poll"] = "auto"
    """measure: uses WebSocket only, and reports blocked where it would use HTTP. It needs no Router.HTTPFallback: any
    URL of the server will do that has an answer with a status below 500. stream, poll: uses HTTP only, for tests."""


class Silent(TimeoutError):
    """An attempt by WebSocket without a message."""


class Rule:
    """Counts the outcomes of attempts by WebSocket. It does no input and output."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._worked = False  # a message has arrived by WebSocket
        self._failures = 0  # in a row, while plain HTTP worked
        self._until = -1.0  # HTTP is used until then
        self.permitted = False  # to use HTTP
        self.probe_wait = MIN_PROBE

    def uses_http(self) -> bool:
        return self._now() < self._until

    def suspects(self) -> bool:
        """Reports whether WebSocket may be blocked, and HTTP may be used."""
        return self._failures > 0 and self.permitted

    def works(self) -> None:
        """WebSocket works."""
        self._worked, self._failures, self._until, self.probe_wait = True, 0, -1.0, MIN_PROBE

    def try_websocket(self) -> None:
        """Lets the next attempt be one by WebSocket."""
        self._until = -1.0

    def failed(self, cause: BaseException, received: bool, works: bool, permitted: bool, usable: bool) -> bool:
        """An attempt has failed, and the server has answered over HTTP, or not. It reports whether WebSocket is
        blocked.

        received: a message has arrived before. usable: HTTP can carry the messages.
        """
        if not works:
            self._failures = 0  # an outage or a deploy
            return False
        self._failures += 1
        self.permitted = permitted
        self._worked = self._worked or received
        needed = 2  # the last moment of an outage looks like this, too
        if self._worked or (isinstance(cause, InvalidStatus) and cause.response.status_code in OUTAGE):
            needed = 3
        elif isinstance(cause, Silent):
            needed = 1
        if self._failures < needed:
            return False
        if permitted and usable:
            self._until, self.probe_wait = self._now() + USE_HTTP_FOR, MIN_PROBE
        return True


class Dialer:
    """Opens the connections of a client that falls back."""

    def __init__(
        self,
        options: Fallback,
        *,
        requests: Requests,
        now: Callable[[], float],
        scale: float,
        binary: bool,
        run: Callable[..., None],
        close: Callable[[float], Awaitable[None]],
    ) -> None:
        """run calls a function of the application. close closes the connections of requests that have ended."""
        self.close = close
        self._options, self._requests, self._scale, self._binary, self._run = options, requests, scale, binary, run
        self._rule = Rule(now)
        self._mode: Mode = "poll" if options.mode == "poll" else "stream"
        self._only_http = options.mode in ("stream", "poll")
        self._checking: asyncio.Task[None] | None = None
        self._reported: Transport | None = None
        self._cause: BaseException | None = None  # of the last failure
        self._tasks: set[asyncio.Task[Any]] = set()

    async def open(self, target: Target, url: str, headers: Mapping[str, str]) -> Wire:
        if self._checking is not None:
            await asyncio.shield(self._checking)
        if self._uses_http():
            return await self._over_http(target, url, headers)
        attempt = Attempt(self, target, url, headers)
        try:
            return await attempt.open()
        except (InvalidURI, InvalidProxy):
            raise
        except Exception:  # of the network
            if not self._uses_http():
                raise
        return await self._over_http(target, url, headers)

    def _uses_http(self) -> bool:
        return not self._binary and (self._only_http or self._rule.uses_http())

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Decisions

    async def failed(self, attempt: Attempt, cause: BaseException) -> None:
        """Waits until it is decided what a failure means. Those during one check count once."""
        if self._checking is None:
            self._checking = self._spawn(self._decide(attempt, cause))
        await asyncio.shield(self._checking)

    async def _decide(self, attempt: Attempt, cause: BaseException) -> None:
        try:
            works, permitted = await self._check(attempt.headers)
            if self._rule.failed(cause, attempt.received, works, permitted, not self._binary):
                self._cause = cause
                if not self._uses_http():
                    self.report("blocked", cause)
        finally:
            self._checking = None

    async def _check(self, headers: Mapping[str, str]) -> tuple[bool, bool]:
        """Returns whether plain HTTP works, and whether the server permits to use it."""
        measures = self._options.mode == "measure"
        try:
            response = await asyncio.wait_for(self._requests("GET", "", headers, None), CHECK_TIMEOUT / self._scale)
        except Exception:  # of the network
            return False, False
        response.close()
        if measures:
            return response.status < 500 and response.status != 429, False
        return response.status == 204 and is_ours(response), response.headers.get("penstock-fallback") != "0"

    def works(self) -> None:
        self._rule.works()
        self._spawn(self.close(0))

    def suspects(self) -> bool:
        return self._rule.suspects()

    def given_up(self) -> bool:
        """Reports whether an attempt that is silent ends, because HTTP is used instead."""
        return self._uses_http()

    def report(self, transport: Transport, cause: BaseException | None) -> None:
        changed, self._reported = transport != self._reported, transport
        if changed and self._options.on_transport is not None:
            self._run(self._options.on_transport, transport, cause)

    # Over HTTP

    async def _over_http(self, target: Target, url: str, headers: Mapping[str, str]) -> Wire:
        def used(mode: Mode) -> None:
            self._mode = mode
            self.report("http-stream" if mode == "stream" else "http-poll", self._cause)

        opening: dict[str, Any] = {"protocols": list(target.protocols)}
        if query := urlsplit(url).query:
            opening["query"] = query
        wire = HTTPWire(self._requests, opening, headers, self._mode, used, self._scale)
        try:
            await wire.open()
        except Exception:
            if wire.refused_for_good:  # perhaps for the reason for which the attempts by WebSocket have failed
                self._rule.try_websocket()
            raise
        if not self._only_http:
            wire.spawn(self._return(wire, target, headers))
        return wire

    async def _return(self, wire: HTTPWire, target: Target, headers: Mapping[str, str]) -> None:
        """Tries whether WebSocket works again. The client then opens a connection by it, and closes this one."""
        while not wire.over:
            wait = self._rule.probe_wait
            self._rule.probe_wait = min(2 * wait, MAX_PROBE)
            await asyncio.sleep(wait * (1 + random.random() / 2) / self._scale)
            if not wire.over and await self._probe(target, headers):
                self._rule.works()
                wire.deliver(GOAWAY)

    async def _probe(self, target: Target, headers: Mapping[str, str]) -> bool:
        """Reports whether a WebSocket lasts."""

        async def two_messages() -> None:
            parts = urlsplit(self._options.url)
            address = urlunsplit(parts._replace(scheme=parts.scheme.replace("http", "ws")))
            socket = await target.websocket(address, headers)
            try:
                for _ in range(2):
                    await socket.recv()
            finally:
                socket.transport.abort()

        try:
            await asyncio.wait_for(two_messages(), PROBE_TIMEOUT / self._scale)
        except Exception:  # of the network, or it takes too long
            return False
        return True

    @property
    def scale(self) -> float:
        return self._scale


class Attempt:
    """An attempt by WebSocket up to its outcome, and the wire that it opens."""

    def __init__(self, dialer: Dialer, target: Target, url: str, headers: Mapping[str, str]) -> None:
        self._dialer, self._target, self._url, self.headers = dialer, target, url, headers
        self._loop = asyncio.get_running_loop()
        self._wire: Wire | None = None
        self._settled = False  # the outcome is known
        self._opened_at = 0.0
        self.received = False
        self._timer = self._loop.call_later(PROOF / dialer.scale, self._expire)
        self._expiring: asyncio.Task[None] | None = None
        self._given_up: asyncio.Future[Any] = self._loop.create_future()

    def _settle(self) -> bool:
        """Reports whether the outcome was unknown."""
        self._timer.cancel()
        was, self._settled = self._settled, True
        return not was

    async def open(self) -> Wire:
        dialing: asyncio.Future[Any] = self._loop.create_task(self._dial())
        try:
            await asyncio.wait([dialing, self._given_up], return_when=asyncio.FIRST_COMPLETED)
            if not dialing.done():
                raise Silent("no message has arrived in 5 s")
            self._wire = await dialing
        except asyncio.CancelledError:  # the client has given up
            self._settle()
            raise
        except InvalidStatus as refusal:
            if "code" in error_of(refusal.response.body):
                self._settle()
                raise
            await self._fail(refusal)
            if self._dialer.suspects():  # a client would believe that the server has refused it for good
                raise ConnectionError(f"the handshake was answered with {refusal.response.status_code}") from refusal
            raise
        except (InvalidURI, InvalidProxy):
            self._settle()
            raise
        except Exception as cause:
            await self._fail(cause)
            raise
        finally:
            if not dialing.done():
                dialing.cancel()
        self._opened_at = self._loop.time()
        return self

    async def _dial(self) -> Wire:
        return WebSocketWire(await self._target.websocket(self._url, self.headers), self._target.binary)

    async def _fail(self, cause: BaseException) -> None:
        if self._settle():
            await self._dialer.failed(self, cause)
        elif self._expiring is not None:
            await asyncio.shield(self._expiring)

    def _expire(self) -> None:
        """Decides the outcome: a connection with messages has lasted, or the attempt is silent."""
        rest = self._opened_at + PROOF / self._dialer.scale - self._loop.time()
        if self.received and rest > 0:
            self._timer = self._loop.call_later(rest, self._expire)
        elif self._settle() and self.received:
            self._dialer.works()
        elif not self.received:
            self._expiring = self._loop.create_task(self._end_silence())

    async def _end_silence(self) -> None:
        await self._dialer.failed(self, Silent("no message has arrived in 5 s"))
        if not self._dialer.given_up() or self.received:
            return
        if not self._given_up.done():
            self._given_up.set_result(None)
        if self._wire is not None:
            self._wire.abort()

    # The wire

    async def recv(self) -> str | bytes:
        assert self._wire is not None
        try:
            data = await self._wire.recv()
        except Ended as end:
            self._ended(end)
            raise
        if not self.received:
            self.received = True
            self._dialer.report("websocket", None)
            if self._settled:  # it was taken for a failure
                self._dialer.works()
        return data

    def _ended(self, end: Ended) -> None:
        if not self._settle():
            return
        if end.code != LOST and (self.received or end.code in OF_SERVER or end.code >= 4000):
            self._dialer.works()
        elif end.code not in OF_CLIENT:
            self._expiring = self._loop.create_task(self._dialer.failed(self, end))

    async def send(self, data: bytes) -> None:
        assert self._wire is not None
        await self._wire.send(data)

    async def ping(self) -> Awaitable[Any]:
        assert self._wire is not None
        return await self._wire.ping()

    async def close(self, code: int) -> None:
        self._settle()  # a connection that the client closes itself has no outcome
        assert self._wire is not None
        await self._wire.close(code)

    def abort(self) -> None:
        self._settle()
        assert self._wire is not None
        self._wire.abort()


def new(
    options: Fallback | str,
    *,
    ssl: Any,
    proxy: str | bool,
    now: Callable[[], float],
    scale: float,
    binary: bool,
    run: Callable[..., None],
    requests: Requests | None = None,
) -> Dialer:
    """Returns what opens the connections. It raises ValueError if the URL is not one."""
    if isinstance(options, str):
        options = Fallback(options)
    parts = urlsplit(options.url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            f"the URL of the fallback is {options.url!r}; it must have the scheme http or https, a host, and no query"
        )
    if requests is not None:
        return Dialer(options, requests=requests, now=now, scale=scale, binary=binary, run=run, close=_nothing)
    sent = HTTP(options.url, ssl, proxy)
    return Dialer(options, requests=sent, now=now, scale=scale, binary=binary, run=run, close=sent.close)


async def _nothing(_: float) -> None:
    pass

"""The client for asyncio."""

from __future__ import annotations

import asyncio
import inspect
import math
import ssl as _ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from . import _fallback
from ._core import Core
from ._fallback import Fallback
from ._formats import CBORFormat, Format, JSONFormat
from ._handles import Stream, Subscription
from ._queue import Queue
from ._runtime import Clock, Receiver, Runtime
from ._topics import Sub
from ._transport import Target
from .errors import PenstockError
from .messages import Connection, Message, Position, State, StateInfo

CLOSE_TIMEOUT = 2.0  # of a server that does not answer the close frame
DEFAULT_CREDIT = 16
TOKEN_TIMEOUT = 10.0  # the next refresh waits no longer for one that hangs

F = TypeVar("F", bound=Callable[..., Any])


class Client:
    """A client of a Penstock server, which connects with its first message, or with `async with`.

    url: that of the server, ws: or wss:, or a function that returns it before each attempt.
    token: returns the token for the handshake. It is called before each attempt, and when the identity is about to
        expire; its argument says whether the server has rejected the last token.
    timeout: seconds of a call without one.
    queue: bounds of what waits for a connection.
    resume: asks for a session, so that the next connection restores what handlers of the server have subscribed to.
    pacing: sends only what the limits of the server permit, and repeats rejected messages in order.
    cbor: payloads are CBOR, which needs the extra cbor.
    fallback: where the client connects if WebSocket is blocked: the URL of Router.HTTPFallback, or a Fallback.
    stop_on: returns True if the client must not connect again after a close code of the application.
    ssl, proxy, headers, protocols, compression: as in the library websockets. proxy=True is that of the environment.
    """

    def __init__(
        self,
        url: str | Callable[[], str | Awaitable[str]],
        *,
        token: str | Callable[[bool], str | Awaitable[str]] | None = None,
        timeout: float = 30.0,
        queue: Queue | None = None,
        resume: bool = False,
        pacing: bool = False,
        cbor: bool = False,
        fallback: str | Fallback | None = None,
        stop_on: Callable[[int], bool] = lambda _: False,
        ssl: _ssl.SSLContext | None = None,
        proxy: str | bool = True,
        headers: Mapping[str, str] | None = None,
        protocols: Sequence[str] = (),
        compression: bool = True,
        clock: Clock | None = None,
    ) -> None:
        form: Format = CBORFormat() if cbor else JSONFormat()
        if form.subprotocol is not None:
            protocols = [form.subprotocol, *protocols]
        self._url, self._token, self._clock = url, token, clock or Clock()
        self._timeout, self._queue = timeout, queue or Queue()
        self._core = Core(
            form=form, pacing=pacing, resume=resume, queue=self._queue, stop_on=stop_on, now=self._clock.now
        )
        dialer = None
        if fallback is not None:
            dialer = _fallback.new(
                fallback,
                ssl=ssl,
                proxy=proxy,
                now=self._clock.now,
                scale=self._clock.scale,
                binary=form.binary,
                run=lambda function, *arguments: self._runtime.call(function, *arguments),
            )
        target = Target(
            url=self._get_url,
            token=self._get_token,
            protocols=tuple(protocols),
            headers=headers or {},
            ssl=ssl,
            proxy=proxy,
            compression=compression,
            binary=form.binary,
            close_timeout=CLOSE_TIMEOUT / self._clock.scale,
            fallback=dialer,
        )
        self._runtime = Runtime(self._core, target, self._clock)
        self._runtime.refresh = self.authenticate
        self._authenticating: asyncio.Task[None] | None = None

    # What is known

    @property
    def state(self) -> State:
        return self._core.connection.state

    @property
    def connection(self) -> Connection | None:
        """What the server has said about the connection; None if there is none."""
        return self._core.connection.about

    def next_allowed_in(self, type: str) -> float:
        """Returns in how many seconds the limits permit a message of the type; 0: now, as far as known."""
        return self._core.next_allowed_in(type)

    # Connecting

    async def connect(self) -> None:
        """Waits until the client is connected. It raises the error if the client stops."""
        if self.state != "open":
            await self._runtime.connect()

    async def close(self) -> None:
        """Ends everything that waits, and closes the connection."""
        await self._runtime.close()

    async def __aenter__(self) -> Client:
        try:
            await self.connect()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def authenticate(self) -> None:
        """Refreshes the identity of the connection with a new token."""
        if self._authenticating is None or self._authenticating.done():
            self._authenticating = self._runtime.loop().create_task(self._authenticate())
        await asyncio.shield(self._authenticating)

    async def _authenticate(self) -> None:
        token = await asyncio.wait_for(self._get_token(False), TOKEN_TIMEOUT / self._clock.scale)
        await self._runtime.request("$ws:auth", {"token": token}, within=self._timeout, first=True)

    # Messages

    async def call(
        self,
        type: str,
        payload: Any = None,
        *,
        timeout: float | None = None,
        idempotent: bool = False,
        on_progress: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Sends a call, and returns the payload of its reply.

        timeout: seconds until the answer, waiting in the queue included. The server learns what remains.
        idempotent: the call is sent again if the connection is lost before its answer.
        """
        within = self._timeout if timeout is None else timeout
        return await self._runtime.request(type, payload, within=within, idempotent=idempotent, on_progress=on_progress)

    async def send(self, type: str, payload: Any = None, *, max_wait: float | None = None) -> None:
        """Sends an event. It returns when the server has admitted it, before its handler runs.

        max_wait: seconds that the event may wait to be sent. Queue.max_wait by default.
        """
        within = self._queue.max_wait if max_wait is None else max_wait
        await self._runtime.request(type, payload, within=within, one_way=True)

    def stream(
        self, type: str, payload: Any = None, *, timeout: float | None = None, credit: int = DEFAULT_CREDIT
    ) -> Stream[Any, Any]:
        """Returns the items of a stream, for a loop.

        credit: the most items that wait for the loop.
        """
        return Stream(self._runtime, type, payload, math.inf if timeout is None else timeout, credit)

    def subscribe(
        self,
        topic: str,
        handler: Callable[[Message], Any] | None = None,
        *,
        since: Position | None = None,
        state: bool = False,
        presence: bool = False,
        last: int = 0,
        hidden: bool = False,
        on_end: Callable[[PenstockError], None] | None = None,
    ) -> Subscription:
        """Subscribes to a topic, for a loop over its messages, or with a handler that is called with them.

        The subscription is made again after each interruption, and what was missed comes first. Besides publications,
        there are messages with the types "$loss", "$reset" (with state) and "$members" (with presence).

        since: begins behind this position instead of now. One without an epoch is none.
        last: without since, and after "$loss", begins with that many of the latest publications: fewer if the history
            has no more, and more if another subscription of the topic asks for more, or begins earlier. on_error
            learns if the topic has none.
        hidden: subscribes without being present, which the server must permit. The client is present nevertheless
            while another subscription of the topic is not hidden.
        on_end: called when the server has ended the subscription, or rejected it for good. A loop raises the error.
        """
        receiver = Receiver(handler, on_end)
        return Subscription(self._runtime, Sub(str(topic), since, state, presence, last, hidden), receiver)

    # Listeners

    def on(self, type: str) -> Callable[[F], F]:
        """Decorates a function that is called with the payload of each message of a type, and the message.

        Messages of topics are included.
        """

        def add(handler: F) -> F:
            self._runtime.handlers.setdefault(type, []).append(handler)
            return handler

        return add

    def handle(self, type: str, reply_type: str) -> Callable[[F], F]:
        """Decorates a function that answers calls of the server: it takes the payload, and returns that of the reply.

        It is canceled when the server stops waiting. The server receives a PenstockError that it raises.
        """

        def add(handler: F) -> F:
            self._runtime.servers[type] = handler
            self._core.served.reply_types[type] = reply_type
            return handler

        return add

    def on_state(self, listener: Callable[[State, StateInfo], Any]) -> None:
        """Adds a function that is called when the state of the client has changed."""
        self._runtime.state_listeners.append(listener)

    def on_error(self, listener: Callable[[BaseException], Any]) -> None:
        """Adds a function that is called with errors that no operation raises. Without one, they are logged."""
        self._runtime.error_listeners.append(listener)

    # Functions of the application

    async def _get_url(self) -> str:
        if isinstance(self._url, str):
            return self._url
        url = self._url()
        return await url if inspect.isawaitable(url) else url

    async def _get_token(self, expired: bool) -> str | None:
        if self._token is None or isinstance(self._token, str):
            return self._token
        token = self._token(expired)
        return await token if inspect.isawaitable(token) else token

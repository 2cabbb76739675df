"""The connection of a link: how it is opened, read and written."""

from __future__ import annotations

import asyncio
import logging
import ssl as _ssl
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidProxy, InvalidStatus, InvalidURI
from websockets.typing import Subprotocol

from ._core import Core
from ._env import Link
from ._fallback import Dialer
from ._http import USER_AGENT
from ._wire import LOST, Ended, WebSocketWire, Wire, refusal

MAX_MESSAGE_BYTES = 16 << 20  # that the server sends
HTTP_BASE = 4000  # the close code of a refused handshake is this plus the status


class _Connect(connect):
    """Follows no redirects, as browsers do: another address might receive the token."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


@dataclass(frozen=True)
class Target:
    """What a connection is opened with."""

    url: Callable[[], Awaitable[str]]
    token: Callable[[bool], Awaitable[str | None]]
    protocols: tuple[str, ...]
    headers: Mapping[str, str]
    ssl: _ssl.SSLContext | None
    proxy: str | bool
    compression: bool
    binary: bool
    close_timeout: float
    fallback: Dialer | None = None

    async def open(self, expired: bool) -> Wire:
        url, token = await asyncio.gather(self.url(), self.token(expired))
        headers = dict(self.headers)
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        if self.fallback is None:
            return WebSocketWire(await self.websocket(url, headers), self.binary)
        return await self.fallback.open(self, url, headers)

    async def websocket(self, url: str, headers: Mapping[str, str]) -> ClientConnection:
        options: dict[str, Any] = {"ssl": self.ssl} if self.ssl is not None and urlsplit(url).scheme == "wss" else {}
        return await _Connect(
            url,
            additional_headers=headers,
            subprotocols=[Subprotocol(p) for p in self.protocols] or None,
            compression="deflate" if self.compression else None,
            proxy=None if self.proxy is False else self.proxy,
            user_agent_header=USER_AGENT,
            open_timeout=None,  # the core bounds attempts, and sends pings
            ping_interval=None,
            close_timeout=self.close_timeout,
            max_size=MAX_MESSAGE_BYTES,
            logger=_silent,
            **options,
        )


_silent = logging.getLogger("penstock_client.websockets")
_silent.setLevel(logging.CRITICAL)  # the client reports what matters


class Socket:
    """Opens a connection, reads it in one task, and writes it in another one."""

    def __init__(self, core: Core, link: Link, target: Target, changed: Callable[[], None]) -> None:
        self._core, self._link, self._target, self._changed = core, link, target, changed
        self._out: deque[bytes | None] = deque()  # None: a ping
        self._code: int | None = None  # of the close frame that follows what is written
        self._closing = False
        self._wake = asyncio.Event()
        self._wire: Wire | None = None
        self.task = asyncio.get_running_loop().create_task(self._run())

    def write(self, data: bytes | None) -> None:
        """Writes a message, or a ping, whose answer is reported to the core."""
        self._out.append(data)
        self._wake.set()

    def close(self, code: int | None) -> None:
        """Closes the connection after what was written, with a close frame, or without a code at once."""
        self._closing = True
        self._code = code
        if self._wire is None:
            self.task.cancel()
        elif code is None:
            self._wire.abort()
        else:
            self._wake.set()

    async def _run(self) -> None:
        core, link = self._core, self._link
        try:
            wire = await self._target.open(link.expired)
        except InvalidStatus as refused:
            response = refused.response
            reason = refusal(response.status_code, response.headers, response.body)
            core.closed(link, HTTP_BASE + response.status_code, reason)
        except Ended as refused:
            core.closed(link, refused.code, refused.reason)
        except (InvalidURI, InvalidProxy) as error:
            core.failed(link, error, final=True)
        except Exception as error:  # of the network, or the functions of the application
            core.failed(link, error)
        else:
            await self._use(wire)
        self._changed()

    async def _use(self, wire: Wire) -> None:
        core, link = self._core, self._link
        self._wire = wire
        if self._closing:
            return wire.abort()
        writing = asyncio.get_running_loop().create_task(self._write(wire))
        try:
            core.connected(link)
            self._changed()
            while True:
                data = await wire.recv()
                core.received(link, data)
                self._changed()
        except Ended as end:
            core.closed(link, end.code, end.reason)
        finally:
            writing.cancel()

    async def _write(self, wire: Wire) -> None:
        out = self._out
        try:
            while True:
                while out:
                    data = out.popleft()
                    if data is None:
                        asyncio.ensure_future(await wire.ping()).add_done_callback(self._pong)
                        continue
                    await wire.send(data)
                    self._core.written(self._link, len(data))
                    self._changed()
                if self._closing:
                    await asyncio.wait_for(wire.close(self._code or LOST), 2 * self._target.close_timeout)
                    return
                self._wake.clear()
                await self._wake.wait()
        except Ended:
            pass  # the reader reports it
        except asyncio.TimeoutError:
            wire.abort()

    def _pong(self, waiter: asyncio.Future[float]) -> None:
        if not waiter.cancelled() and waiter.exception() is None:
            self._core.heard(self._link)

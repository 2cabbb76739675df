"""What carries the messages of a link: a WebSocket, or requests over HTTP."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

LOST = 1006  # without a close frame


class Ended(Exception):
    """The connection has ended, or was refused."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"{code} {reason}".rstrip())
        self.code, self.reason = code, reason


class Wire(Protocol):
    """An open connection. Its methods raise Ended when it has ended."""

    async def recv(self) -> str | bytes: ...

    async def send(self, data: bytes) -> None: ...

    async def ping(self) -> Awaitable[Any]:
        """Sends a ping, and returns what waits for its answer."""
        ...

    async def close(self, code: int) -> None:
        """Closes the connection with a close frame."""
        ...

    def abort(self) -> None:
        """Ends the connection at once."""
        ...


class WebSocketWire:
    """A connection of the library websockets."""

    def __init__(self, socket: ClientConnection, binary: bool) -> None:
        self.socket, self._text = socket, not binary

    async def recv(self) -> str | bytes:
        try:
            return await self.socket.recv()
        except ConnectionClosed as closed:
            raise _ended(closed) from closed

    async def send(self, data: bytes) -> None:
        try:
            await self.socket.send(data, text=self._text)
        except ConnectionClosed as closed:
            raise _ended(closed) from closed

    async def ping(self) -> Awaitable[Any]:
        try:
            return await self.socket.ping()
        except ConnectionClosed as closed:
            raise _ended(closed) from closed

    async def close(self, code: int) -> None:
        await self.socket.close(code)

    def abort(self) -> None:
        self.socket.transport.abort()


def _ended(closed: ConnectionClosed) -> Ended:
    end = closed.rcvd
    return Ended(end.code if end else LOST, end.reason if end else "")


def refusal(status: int, headers: Mapping[str, str], body: bytes | bytearray | None) -> str:
    """Returns the close reason with the meaning of a response."""
    error = error_of(body)
    error.setdefault("code", "UNAVAILABLE")
    error.setdefault("message", f"the server has refused the connection with {status}")
    seconds = headers.get("Retry-After", "")
    if "retryAfterMs" not in error and seconds.isdigit():
        error["retryAfterMs"] = int(seconds) * 1000
    return json.dumps(error)


def error_of(body: bytes | bytearray | None) -> dict[str, Any]:
    """Returns the payload of an error in a response; it is empty if the response is that of a proxy."""
    try:
        error = json.loads(body or b"")
    except ValueError:
        return {}
    return error if isinstance(error, dict) else {}

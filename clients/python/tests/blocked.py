"""A server and a proxy, of which a test says what they answer: websockets, and requests over HTTP."""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosedError, ConnectionClosedOK, InvalidStatus
from websockets.frames import Close
from websockets.http11 import Response as HandshakeResponse

from penstock_client import Fallback
from penstock_client import _fallback as fallback


def seconds(text: str) -> float | None:
    """Returns a duration such as 9m59s, or None."""
    if not re.fullmatch(r"(\d+(ms|m|s))+", text):
        return None
    units = {"ms": 0.001, "s": 1, "m": 60}
    return sum(int(n) * units[unit] for n, unit in re.findall(r"(\d+)(ms|m|s)", text))


class Response:
    """A response whose parts a test writes."""

    def __init__(self, status: int, ours: bool = True, **headers: str) -> None:
        self.status = status
        self.headers: Mapping[str, str] = headers | ({"penstock-fallback": "1"} if ours else {})
        self.parts: asyncio.Queue[bytes] = asyncio.Queue()
        self.closed = False

    def write(self, text: str) -> None:
        self.parts.put_nowait(text.encode())

    async def read(self) -> bytes:
        return await self.parts.get()

    def close(self) -> None:
        self.closed = True

    def end(self) -> "Response":
        self.parts.put_nowait(b"")
        return self


async def answer(text: str) -> Response:
    """Returns the response that a text describes: after a time, a status, and whether it is the server's."""
    first, _, rest = text.partition(" ")
    if (delay := seconds(first)) is not None:
        await asyncio.sleep(delay)
        return await answer(rest)
    if first == "reset":
        raise ConnectionResetError("unreachable")
    if first == "hangs":
        await asyncio.Event().wait()
    more = {"penstock-fallback": "0"} if rest == "forbids" else {}
    return Response(int(first), rest.startswith("ours"), **more).end()


class Socket:
    """A WebSocket as the library has it."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[str | Exception] = asyncio.Queue()
        self.transport = self

    async def recv(self) -> str:
        item = await self.messages.get()
        if isinstance(item, Exception):
            self.messages.put_nowait(item)
            raise item
        return item

    def end(self, code: int | None = None) -> None:
        close = None if code is None else Close(code, "")
        kind = ConnectionClosedOK if code in (1000, 1001) else ConnectionClosedError
        self.messages.put_nowait(kind(close, None, None))

    def abort(self) -> None:
        self.end()

    async def close(self, code: int) -> None:
        self.end(code)


class Scene:
    """What is asked for, in order. An open is answered with 503, so that a client with that answer has dialer back."""

    protocols: tuple[str, ...] = ()
    binary = False

    def __init__(self, mode: Any = "auto", binary: bool = False) -> None:
        self.binary = binary
        self.websocket_answer, self.check_answer = "403", "204 ours"
        self.exchanges: list[str] = []
        self.reports: list[str] = []
        self.socket = Socket()  # the last one
        self.probes: deque[Callable[[Socket], None]] = deque()
        self.bodies: list[tuple[str, bytes]] = []
        self.open_answer: Callable[[], Awaitable[Response]] = lambda: answer("503 ours")
        options = Fallback("http://example.com/http", lambda transport, _: self.reports.append(transport), mode)
        self.dialer = fallback.new(
            options,
            ssl=None,
            proxy=False,
            now=asyncio.get_running_loop().time,
            scale=1,
            binary=binary,
            run=lambda function, *arguments: function(*arguments),
            requests=self.request,
        )

    async def request(self, method: str, query: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        self.exchanges.append(query or "check")
        self.bodies.append((query, body or b""))
        return await (answer(self.check_answer) if method == "GET" else self.open_answer())

    async def websocket(self, url: str, headers: Mapping[str, str]) -> Any:
        probes = url.endswith("/http")
        self.exchanges.append("probe" if probes else "websocket")
        socket = Socket()
        if probes:
            self.probes.popleft()(socket)
            return socket
        self.socket = socket
        first, _, rest = self.websocket_answer.partition(" ")
        if first == "upgrades":
            await asyncio.sleep(seconds(rest) or 0)
            return socket
        response = await answer(self.websocket_answer)
        body = b'{"code":"UNAUTHENTICATED"}' if "refusal" in self.websocket_answer else b""
        raise InvalidStatus(HandshakeResponse(response.status, "", Headers(), body))

    async def attempt(self) -> Any:
        self.exchanges.clear()
        return await self.dialer.open(self, "ws://example.com/", {})  # type: ignore[arg-type]

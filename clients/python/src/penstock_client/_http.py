"""HTTP requests with http.client, each on a thread of its own until its response has ended."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import socket
import ssl as _ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 60.0  # of a thread that nothing waits for any more
IDLE = 5.0  # for which a connection is kept; servers end theirs later
PART = 65_536
USER_AGENT = "penstock-client (Python)"
OURS = "penstock-fallback"  # the header of answers that are not a proxy's


class Response(Protocol):
    status: int
    headers: Mapping[str, str]
    """The names are in lower case."""

    async def read(self) -> bytes:
        """Returns the next part of the body; it is empty at the end."""
        ...

    def close(self) -> None: ...


class Requests(Protocol):
    """Sends a request to the URL of the fallback, with a query. Tests have another one."""

    async def __call__(self, method: str, query: str, headers: Mapping[str, str], body: bytes | None) -> Response: ...


class HTTP:
    """Requests to one server. Connections that are idle are used again."""

    def __init__(self, url: str, ssl: _ssl.SSLContext | None, proxy: str | bool) -> None:
        self._url = urlsplit(url)
        self._ssl = ssl
        self._proxy = proxy
        self._lock = threading.Lock()  # of _idle
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []
        self._closed = False  # connections are not kept
        self._active: set[asyncio.Future[None]] = set()  # done when the thread of a request has ended

    async def __call__(self, method: str, query: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        answer = Answer(self, method, query, headers, body)
        self._closed = False
        self._active.add(answer.ended)
        answer.ended.add_done_callback(self._active.discard)
        try:
            await answer.begin()
        except BaseException:
            answer.close()
            raise
        return answer

    def take(self) -> http.client.HTTPConnection | None:
        """Returns a connection that is idle."""
        with self._lock:
            while self._idle:
                since, connection = self._idle.pop()
                if time.monotonic() - since < IDLE:
                    return connection
                connection.close()
        return None

    def put(self, connection: http.client.HTTPConnection) -> None:
        now = time.monotonic()
        with self._lock:
            old = [c for since, c in self._idle if now - since >= IDLE]
            self._idle = [(since, c) for since, c in self._idle if now - since < IDLE]
            if self._closed:
                old.append(connection)
            else:
                self._idle.append((now, connection))
        for each in old:
            each.close()

    async def close(self, timeout: float) -> None:
        """Closes what is idle, and waits for the threads of requests that have ended."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()
        if self._active:
            await asyncio.wait(self._active, timeout=timeout)

    def connect(self) -> http.client.HTTPConnection:
        """Returns a connection that is not open yet."""
        url, proxy = self._url, self._find_proxy()
        secure = url.scheme == "https"
        host, port = url.hostname or "", url.port or (443 if secure else 80)
        at = (host, port) if proxy is None else (proxy.hostname or "", proxy.port or 80)
        if not secure:
            return http.client.HTTPConnection(*at, timeout=CONNECT_TIMEOUT)
        if self._ssl is None:
            self._ssl = _ssl.create_default_context()
        connection = http.client.HTTPSConnection(*at, timeout=CONNECT_TIMEOUT, context=self._ssl)
        if proxy is not None:
            connection.set_tunnel(host, port, _credential(proxy))
        return connection

    def route(self, query: str) -> tuple[str, dict[str, str]]:
        """Returns the target of a request, and the headers for a proxy that reads them."""
        path = (self._url.path or "/") + ("?" + query if query else "")
        proxy = self._find_proxy()
        if proxy is None or self._url.scheme == "https":
            return path, {}
        return f"http://{self._url.netloc}{path}", _credential(proxy)

    def _find_proxy(self) -> SplitResult | None:
        found: str | None = self._proxy if isinstance(self._proxy, str) else None
        if self._proxy is True and not proxy_bypass(self._url.netloc):
            proxies = getproxies()
            found = proxies.get(self._url.scheme) or proxies.get("all")
        if not found:
            return None
        proxy = urlsplit(found if "://" in found else "http://" + found)
        if proxy.scheme != "http":
            raise ValueError(f"the scheme of the proxy is {proxy.scheme}; over HTTP, the client uses proxies with http")
        return proxy


def _credential(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair).decode()}


class Answer:
    """A request, and its response."""

    status = 0
    headers: Mapping[str, str]

    def __init__(self, requests: HTTP, method: str, query: str, headers: Mapping[str, str], body: bytes | None) -> None:
        self._requests, self._method, self._query, self._body = requests, method, query, body
        self._headers = {"User-Agent": USER_AGENT, **headers}
        self._loop = asyncio.get_running_loop()
        self._begun: asyncio.Future[None] = self._loop.create_future()
        self._parts: asyncio.Queue[bytes | BaseException] = asyncio.Queue()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._connection: http.client.HTTPConnection | None = None
        self._closed = False

    async def begin(self) -> None:
        threading.Thread(target=self._run, name="penstock-client-http", daemon=True).start()
        await self._begun

    async def read(self) -> bytes:
        part = await self._parts.get()
        if isinstance(part, BaseException):
            raise part
        return part

    def close(self) -> None:
        """Ends the request. The thread that reads sees the end of its connection."""
        self._closed = True
        sock = self._connection.sock if self._connection is not None else None
        if sock is not None:
            with contextlib.suppress(OSError):  # it has ended
                sock.shutdown(socket.SHUT_RDWR)

    def _tell(self, function: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            self._closed = True  # the loop is closed

    def _run(self) -> None:
        self._exchange()
        self._tell(self._end)

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def _exchange(self) -> None:
        try:
            response = self._send()
            self._tell(self._begin, response)
            while part := response.read1(PART):
                self._tell(self._parts.put_nowait, part)
            response.close()  # or the connection would believe that it is not read yet
            # Before the end is known: close must not end a connection that another request uses.
            connection, self._connection = self._connection, None
            if connection is not None and not self._closed and not response.will_close:
                self._requests.put(connection)
            elif connection is not None:
                connection.close()
            self._tell(self._parts.put_nowait, b"")
        except Exception as error:  # of the network, or what http.client raises after close
            if self._connection is not None:
                self._connection.close()
            self._tell(self._fail, error)

    def _send(self) -> http.client.HTTPResponse:
        """Sends the request, again on a new connection if the server has ended the one that was idle."""
        # An open that is sent twice would open two connections.
        if self._query != "open" and (idle := self._requests.take()) is not None:
            try:
                return self._send_on(idle)
            except ConnectionError:
                idle.close()
        return self._send_on(self._requests.connect())

    def _send_on(self, connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
        self._connection = connection
        if connection.sock is None:
            connection.connect()
            if connection.sock is not None:
                connection.sock.settimeout(READ_TIMEOUT)
        if self._closed:
            raise ConnectionAbortedError("the request was canceled")
        target, headers = self._requests.route(self._query)
        connection.request(self._method, target, self._body, self._headers | headers)
        return connection.getresponse()

    def _begin(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        if not self._begun.done():
            self._begun.set_result(None)

    def _fail(self, error: Exception) -> None:
        if not self._begun.done():
            self._begun.set_exception(error)
        else:
            self._parts.put_nowait(error)


def is_ours(response: Response) -> bool:
    return OURS in response.headers


def retry_after(response: Response) -> float:
    """Returns the seconds that the server demands, or 0."""
    seconds = response.headers.get("retry-after", "")
    return float(seconds) if seconds.isdigit() else 0.0

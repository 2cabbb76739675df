"""A WebSocket client (RFC 6455) of the size that a Penstock client needs, on asyncio."""

import asyncio
import base64
import os
import struct
from urllib.parse import urlsplit

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class WebSocket:
    """A connection. close_code and close_reason are set when it has ended; 1006 means that there was no close frame."""

    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer
        self.close_code, self.close_reason = 1006, ""

    @classmethod
    async def connect(cls, url, token=None):
        """Opens a connection to a ws: URL. It raises OSError if the server refuses."""
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
        try:
            lines = [
                f"GET {parts.path or '/'} HTTP/1.1", f"Host: {parts.netloc}", "Connection: Upgrade", "Upgrade: websocket",
                "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + base64.b64encode(os.urandom(16)).decode(),
            ]
            if token is not None:
                lines.append("Authorization: Bearer " + token)
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
            head = await reader.readuntil(b"\r\n\r\n")
            if b" 101 " not in head.split(b"\r\n")[0]:
                raise ConnectionError(head.split(b"\r\n")[0].decode())
            return cls(reader, writer)
        except BaseException as problem:
            writer.transport.abort()
            if isinstance(problem, asyncio.IncompleteReadError):
                raise ConnectionError("the server has closed the connection") from problem
            raise

    def send(self, text):
        """Sends a text message."""
        self._write(TEXT, text.encode())

    def _write(self, opcode, payload):
        if self._writer.is_closing():
            return
        mask, n = os.urandom(4), len(payload)
        if n < 126:
            head = struct.pack("!BB", 0x80 | opcode, 0x80 | n)
        elif n < 1 << 16:
            head = struct.pack("!BBH", 0x80 | opcode, 0xFE, n)
        else:
            head = struct.pack("!BBQ", 0x80 | opcode, 0xFF, n)
        repeated = (mask * (n // 4 + 1))[:n]
        masked = (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(n, "big")
        self._writer.write(head + mask + masked)

    async def receive(self):
        """Returns the next message, or None if the connection has ended. A ping is returned as "" after its answer."""
        message = b""
        try:
            while True:
                first, second = await self._reader.readexactly(2)
                n = second & 0x7F
                if n == 126:
                    (n,) = struct.unpack("!H", await self._reader.readexactly(2))
                elif n == 127:
                    (n,) = struct.unpack("!Q", await self._reader.readexactly(8))
                payload, opcode = await self._reader.readexactly(n), first & 0x0F
                if opcode == PING:
                    self._write(PONG, payload)
                    return ""
                if opcode == CLOSE:
                    self._closed(payload)
                    return None
                if opcode == PONG:
                    continue
                message += payload
                if first & 0x80:
                    return message.decode()
        except (OSError, asyncio.IncompleteReadError, UnicodeDecodeError):
            self.abort()
            return None

    def _closed(self, payload):
        self.close_code = 1005
        if len(payload) >= 2:
            self.close_code, self.close_reason = struct.unpack("!H", payload[:2])[0], payload[2:].decode(errors="replace")
        self._write(CLOSE, payload[:2])
        self._writer.close()

    def start_close(self, code=1000):
        """Sends a close frame. The answer ends receive."""
        self._write(CLOSE, struct.pack("!H", code))

    def abort(self):
        """Ends the connection at once."""
        self._writer.transport.abort()

"""How messages are written and read: JSON, or CBOR as section 11 of the protocol defines it."""

from __future__ import annotations

import json
from typing import Any, Protocol

CBOR_SUBPROTOCOL = "penstock.v1.cbor"


class Format(Protocol):
    """Encodes and decodes messages."""

    subprotocol: str | None
    binary: bool

    def encode(self, type: str, payload: Any) -> bytes:
        """Returns the payload of a message; None: it has none."""

    def join(self, head: dict[str, Any], body: bytes) -> bytes:
        """Returns a message."""

    def decode(self, data: str | bytes) -> dict[str, Any]:
        """Returns a message that was received."""


_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _json(value: Any) -> bytes:
    return _encoder.encode(value).encode()


def _checked(frame: Any) -> dict[str, Any]:
    if not isinstance(frame, dict) or not isinstance(frame.get("type"), str):
        raise ValueError("a message of the server has no type")
    if not isinstance(frame.setdefault("meta", {}), dict):
        raise ValueError("meta of a message of the server is no object")
    return frame


class JSONFormat:
    """Messages are JSON."""

    subprotocol: str | None = None
    binary = False

    def encode(self, type: str, payload: Any) -> bytes:
        return b"" if payload is None else _json(payload)

    def join(self, head: dict[str, Any], body: bytes) -> bytes:
        text = _json(head)
        return b"".join((text[:-1], b',"payload":', body, b"}")) if body else text

    def decode(self, data: str | bytes) -> dict[str, Any]:
        return _checked(json.loads(data))


def _is_json(type: str) -> bool:
    """Reports whether a payload is one of the protocol: those are JSON in every format."""
    return type in ("ERROR", "RPC_ERROR") or (type.startswith("$") and type != "$ws:rpc-progress")


class CBORFormat:
    """Payloads of the application are CBOR: times are datetime, and bytes are bytes, where JSON has strings."""

    subprotocol: str | None = CBOR_SUBPROTOCOL
    binary = True

    def __init__(self) -> None:
        try:
            import cbor2
        except ImportError as missing:
            raise ImportError("payloads in CBOR need the extra cbor: pip install penstock-client[cbor]") from missing
        self._cbor: Any = cbor2

    def encode(self, type: str, payload: Any) -> bytes:
        if payload is None:
            return b""
        if _is_json(type):
            return _json(payload)
        body: bytes = self._cbor.dumps(payload)
        return body

    def join(self, head: dict[str, Any], body: bytes) -> bytes:
        text = _json(head)
        return b"".join((len(text).to_bytes(2, "big"), text, body))

    def decode(self, data: str | bytes) -> dict[str, Any]:
        if isinstance(data, str):
            raise ValueError(f"the server has not selected the subprotocol {CBOR_SUBPROTOCOL}")
        end = 2 + int.from_bytes(data[:2], "big")
        frame = _checked(json.loads(data[2:end]))
        if body := data[end:]:
            frame["payload"] = json.loads(body) if _is_json(frame["type"]) else self._cbor.loads(body)
        return frame

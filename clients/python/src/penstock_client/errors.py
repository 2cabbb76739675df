"""The one exception of the client."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


class PenstockError(Exception):
    """The error of a message: from the server, or from the client if the message has no outcome."""

    code: str
    """One of the codes in section 4 of the protocol, or a code of the application."""
    message: str
    """A description for people."""
    details: dict[str, Any]
    """Data for programs, for example the kind of a limit."""
    retryable: bool
    """Whether the same message may succeed later, and is safe to send again."""
    retry_after: float | None
    """Seconds to wait before the next attempt. None: unknown. math.inf: no wait helps."""
    outcome_unknown: bool
    """The connection was lost before the outcome was known: the server may have handled the message."""

    def __init__(
        self,
        code: str,
        message: str = "",
        *,
        details: Mapping[str, Any] | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
        outcome_unknown: bool = False,
    ) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message
        self.details = dict(details or {})
        self.retryable = retryable
        self.retry_after = retry_after
        self.outcome_unknown = outcome_unknown


def caused_by(code: str, cause: BaseException) -> PenstockError:
    """Returns an error whose message is the text of its cause."""
    error = PenstockError(code, str(cause) or type(cause).__name__)
    error.__cause__ = cause
    return error


def decode_error(payload: Any) -> PenstockError:
    """Returns the error in the payload of ERROR or RPC_ERROR, or in the reason of a close frame."""
    p = payload if isinstance(payload, dict) else {}
    details = p.get("details")
    retry_after: float | None = None
    if "retryAfterMs" in p:
        ms = p["retryAfterMs"]
        retry_after = math.inf if ms is None else max(0, ms) / 1000  # or the client would not wait at all
    return PenstockError(
        str(p.get("code") or "INTERNAL"),
        str(p.get("message") or ""),
        details=details if isinstance(details, dict) else None,
        retryable=p.get("retryable") is True,
        retry_after=retry_after,
    )


def encode_error(error: PenstockError) -> dict[str, Any]:
    """Returns the payload of an error for the server."""
    payload: dict[str, Any] = {"code": error.code, "message": error.message, "retryable": error.retryable}
    if error.details:
        payload["details"] = error.details
    if error.retry_after is not None:
        payload["retryAfterMs"] = None if error.retry_after == math.inf else math.ceil(error.retry_after * 1000)
    return payload

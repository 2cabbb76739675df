"""When the client connects again after a connection has ended; section 5 of the protocol."""

from __future__ import annotations

import json
from collections.abc import Callable

from ._closecodes import (
    BUSY,
    BUSY_BACKOFF,
    LEAST_DELAY,
    MAX_BACKOFF,
    MIN_BACKOFF,
    RESTART,
    RESTART_SPREAD,
)
from .errors import PenstockError, decode_error


def close_error(code: int, reason: str) -> PenstockError:
    """Returns the error of a close frame. A reason that is not the JSON of an error is text for developers."""
    try:
        payload = json.loads(reason)
    except ValueError:
        payload = None
    if isinstance(payload, dict):
        return decode_error(payload)
    return PenstockError("UNAVAILABLE", f"the connection has ended with {code} {reason}".rstrip())


def backoff(attempt: int, random: float, least: float = MIN_BACKOFF) -> float:
    """Returns a random delay, whose upper bound doubles with each attempt."""
    return LEAST_DELAY + random * min(MAX_BACKOFF, least * 2.0 ** min(attempt, 30))


def backoff_after(code: int, demanded: float, attempt: int, random: Callable[[], float]) -> float:
    """Returns what is added to the delay that the server demands, or 0."""
    spread = 0.0 if demanded or attempt or code not in RESTART else random() * RESTART_SPREAD
    return spread + backoff(attempt, random(), MIN_BACKOFF if demanded or code not in BUSY else BUSY_BACKOFF)

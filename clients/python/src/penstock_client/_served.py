"""Calls of the server."""

from __future__ import annotations

from typing import Any

from ._env import CancelServe, Env, Link, Report, Serve, ServerCall
from ._outbox import Outbox
from .errors import PenstockError, caused_by, encode_error

MAX_SERVED = 64  # at the same time


class Served:
    """The calls of the server whose handlers run."""

    def __init__(self, env: Env, outbox: Outbox) -> None:
        self._env, self._outbox = env, outbox
        self.reply_types: dict[str, str] = {}  # by the type of a call

    def receive(self, link: Link, frame: dict[str, Any]) -> None:
        """Handles a call of the server, or its end."""
        meta = frame["meta"]
        id = meta["correlationId"]
        if frame["type"] == "$ws:abort":
            if (serving := link.serving.get(id)) is not None:
                self.cancel(serving)
            return
        call = ServerCall(link, id, frame["type"], frame.get("payload"), meta)
        if len(link.serving) >= MAX_SERVED:
            return self._fail(call, PenstockError("RESOURCE_EXHAUSTED", "too many calls", retryable=True))
        if call.type not in self.reply_types:
            return self._fail(call, PenstockError("UNIMPLEMENTED", "no handler has this type"))
        link.serving[id] = call
        if timeout := meta.get("timeoutMs"):
            call.timer = self._env.after(timeout / 1000, lambda: self.cancel(call))
        self._env.do(Serve(call))

    def cancel(self, call: ServerCall) -> None:
        """The server does not wait any more. The call counts until its handler has ended."""
        if not call.over:
            call.over = True
            self._env.do(CancelServe(call))

    def finished(self, call: ServerCall, payload: Any, error: BaseException | None) -> None:
        """The handler of a call has ended."""
        if call.link.serving.get(call.id) is call:
            del call.link.serving[call.id]
        if call.timer is not None:
            call.timer.cancel()
        if call.over:
            return
        call.over = True
        if error is None:
            self._reply(call, payload)
        elif isinstance(error, PenstockError):
            self._fail(call, error)
        else:
            self._unexpected(call, error)

    def _reply(self, call: ServerCall, payload: Any) -> None:
        def done(error: PenstockError | None, _payload: Any, _id: str) -> None:
            if error is not None:
                self._unexpected(call, error)  # it is too big

        try:
            meta = {"correlationId": call.id}
            type = self.reply_types[call.type]
            self._outbox.submit(type, payload, on=call.link, meta=meta, one_way=True, first=True, done=done)
        except (TypeError, ValueError) as cause:
            self._unexpected(call, caused_by("INTERNAL", cause))

    def _unexpected(self, call: ServerCall, error: BaseException) -> None:
        self._env.do(Report(error))
        # The text of the error may contain what the server must not see.
        self._fail(call, PenstockError("INTERNAL", "the handler has failed"))

    def _fail(self, call: ServerCall, error: PenstockError) -> None:
        meta = {"correlationId": call.id}
        self._outbox.submit("RPC_ERROR", encode_error(error), on=call.link, meta=meta, one_way=True, first=True)

"""A Penstock client in Python, with the standard library only. It is written for one purpose: to show how the pieces of
docs/protocol.md become a client. All methods must be called on the event loop."""

import asyncio
import json
import random
import time

from topics import Topic
from websocket import WebSocket

CREDIT = 16  # items that a stream may have under way


class Failure(Exception):
    """The error of an operation. unknown means that the server may have handled the message."""

    def __init__(self, code, message="", unknown=False, retry_after_ms=0, details=None):
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.unknown, self.retry_after_ms, self.details = code, message, unknown, retry_after_ms, details or {}

    @classmethod
    def of(cls, payload):
        return cls(payload.get("code", "INTERNAL"), payload.get("message", ""), False, payload.get("retryAfterMs") or 0, payload.get("details"))


LOST = ("ABORTED", "the connection was lost; the server may have handled the message", True)


class Operation:
    """A message of the application that waits, or that has no answer yet. done is called once, with a message or a Failure."""

    def __init__(self, kind, typ, payload, done):
        self.kind, self.typ, self.payload, self.done = kind, typ, payload, done
        self.id, self.deadline, self.timer, self.over = "", None, None, False
        self.on_item = None


class Client:
    """Connects when it is used, and again when the connection is lost. scale is how much faster its clock runs than real time."""

    def __init__(self, url, on_state, on_error, on_message, on_loss, on_call, token=None, scale=1, max_messages=1000, oldest=False, expire=30.0, call_timeout=30.0):
        self.url, self.token, self.scale = url, token, scale
        self.on_state, self.on_error, self.on_message, self.on_loss, self.on_call = on_state, on_error, on_message, on_loss, on_call
        self.max_messages, self.oldest, self.expire, self.call_timeout = max_messages, oldest, expire, call_timeout
        self.state, self.socket, self.runner = "", None, None
        self.queue, self.pending, self.requests, self.topics, self.served = [], {}, {}, {}, {}
        self.connecting = []  # callbacks of connect
        self.last_id, self.prefix = 0, f"{random.getrandbits(40):x}-"
        self.attempts = self.violations = self.rejections = 0
        self.last_received, self.events = 0.0, {}

    # Time

    def now(self):
        return time.monotonic() * self.scale

    def later(self, seconds, function):
        return asyncio.get_running_loop().call_later(seconds / self.scale, function)

    async def sleep(self, seconds):
        await asyncio.sleep(seconds / self.scale)

    # The connection

    @property
    def is_open(self):
        return self.state == "open"

    def set_state(self, state):
        if state != self.state:
            self.state = state
            self.on_state(state)

    def start(self):
        if self.runner is None and self.state != "closed":
            self.runner = asyncio.ensure_future(self.run())

    def connect(self, done):
        """Calls done when the client is connected, with None or a Failure."""
        if self.state == "closed":
            done(Failure("CANCELLED", "the client is closed"))
        elif self.is_open:
            done(None)
        else:
            self.connecting.append(done)
            self.start()

    async def run(self):
        """Keeps a connection open until the client is closed or a close code stops it."""
        while True:
            self.set_state("connecting")
            code, reason, opened = 1006, "", self.now()
            try:
                socket, early = await asyncio.wait_for(self.attempt(), 10 / self.scale)
                opened = self.now()
                if self.state == "closed":  # wait_for may lose a cancellation that comes with the result
                    socket.abort()
                    return
                await self.use(socket, early)
                code, reason = socket.close_code, socket.close_reason
            except Refused as refused:
                code, reason = refused.socket.close_code, refused.socket.close_reason
            except (OSError, asyncio.TimeoutError, Failure):
                pass
            if self.state == "closed":
                return
            if self.now() - opened >= 5:
                self.attempts = 0
            delay = self.after(code, reason)
            if delay is None:
                self.stop(Failure(parse_reason(reason).get("code") or "FAILED_PRECONDITION", f"the server has closed the connection with {code}"))
                return
            self.set_state("waiting")
            await self.sleep(delay)

    async def attempt(self):
        """Opens a connection and greets the server. It returns the messages that came before the welcome, too."""
        early = []
        token = await self.token() if self.token else None
        socket = await WebSocket.connect(self.url, token)
        try:
            self.write(socket, "$ws:hello", {"correlationId": self.next_id()}, {})
            while True:
                text = await socket.receive()
                if text is None:
                    raise Refused(socket)
                message = decode(text)
                if message and message["type"] in ("$ws:welcome", "RPC_ERROR"):
                    return socket, early
                if message:
                    early.append(message)
        except BaseException:
            socket.abort()
            raise

    def after(self, code, reason):
        """Returns the delay before the next attempt, or None if the client stops."""
        parsed = parse_reason(reason)
        self.violations = self.violations + 1 if code in (1002, 1003, 1007) else 0
        self.rejections = self.rejections + 1 if code == 4401 else 0
        final = code in (4403, 4409) or code >= 4000 and "retryAfterMs" in parsed and parsed["retryAfterMs"] is None
        if final or self.violations > 1 or self.rejections > 1:
            return None
        upper, hint = min(0.5 * 2**self.attempts, 20), parsed.get("retryAfterMs")
        delay = 0
        if hint:
            delay = hint / 1000
        elif code in (1013, 4429):
            upper = max(upper, 5)
        elif code in (1012, 4503) and self.attempts == 0:
            delay = random.uniform(0, 10)
        self.attempts += 1
        return delay + 0.1 + random.uniform(0, upper)

    async def use(self, socket, early):
        """Sends what waits, and reads until the connection ends."""
        self.socket, self.last_received = socket, self.now()
        self.set_state("open")
        waiting, self.connecting = self.connecting, []
        for done in waiting:
            done(None)
        self.flush()
        for topic in list(self.topics.values()):
            topic.synchronize()
        heartbeat = asyncio.ensure_future(self.heartbeat(socket))
        try:
            for message in early:
                self.receive(socket, message)
            while (text := await socket.receive()) is not None:
                self.last_received = self.now()
                message = decode(text)
                if message:
                    self.receive(socket, message)
        finally:
            heartbeat.cancel()
            self.disconnected()

    async def heartbeat(self, socket):
        """Probes a silent connection, and ends one that does not answer."""
        while True:
            silent = self.now() - self.last_received
            if silent >= 35:
                socket.abort()
                return
            if silent >= 25:
                self.write(socket, "__heartbeat", None, None)
            await self.sleep(5 if silent >= 20 else 25 - silent)

    def disconnected(self):
        self.socket = None
        if self.state == "open":
            self.set_state("waiting")
        pending, self.pending, self.requests = self.pending, {}, {}
        for operation in pending.values():
            self.finish(operation, Failure(*LOST))
        served, self.served = self.served, {}
        for handler in served.values():
            handler.cancel()
        for topic in self.topics.values():
            topic.disconnected()

    # Messages

    def next_id(self):
        self.last_id += 1
        return self.prefix + str(self.last_id)

    def write(self, socket, typ, meta, payload):
        message = {"type": typ}
        if meta:
            message["meta"] = meta
        if payload is not None:
            message["payload"] = payload
        socket.send(json.dumps(message))

    def request(self, typ, payload, answered):
        """Sends a call of the protocol, which has no meaning on another connection."""
        request = self.next_id()
        self.requests[request] = answered
        self.write(self.socket, typ, {"correlationId": request}, payload)
        return request

    def submit(self, operation, timeout=None):
        """Sends an operation, or lets it wait for a connection."""
        if self.state == "closed":
            self.finish(operation, Failure("CANCELLED", "the client is closed"))
            return
        if timeout:
            operation.deadline = self.now() + timeout
            operation.timer = self.later(timeout, lambda: self.give_up(operation, Failure("DEADLINE_EXCEEDED", "the deadline has passed")))
        if self.is_open:
            self.transmit(operation)
            return
        self.queue.append(operation)
        if len(self.queue) > self.max_messages:
            self.give_up(self.queue[0 if self.oldest else -1], Failure("RESOURCE_EXHAUSTED", "too many messages wait"))
        self.start()

    def flush(self):
        queue, self.queue = self.queue, []
        for operation in queue:
            self.transmit(operation)

    def transmit(self, operation):
        operation.id = self.next_id()
        meta = {"correlationId": operation.id}
        if operation.kind == "call":
            meta["timeoutMs"] = max(1, int((operation.deadline - self.now()) * 1000))
        if operation.kind == "stream":
            meta["credit"] = CREDIT
        self.write(self.socket, operation.typ, meta, operation.payload)
        if operation.kind == "event":
            self.events[operation.id] = True
            if len(self.events) > 1000:
                self.events.pop(next(iter(self.events)))
            self.finish(operation, None)
        else:
            self.pending[operation.id] = operation

    def finish(self, operation, outcome):
        if operation.over:
            return
        operation.over = True
        if operation.timer:
            operation.timer.cancel()
        self.pending.pop(operation.id, None)
        operation.done(outcome)

    def give_up(self, operation, failure):
        """Ends an operation before its answer."""
        if operation in self.queue:
            self.queue.remove(operation)
        self.finish(operation, failure)

    def abort(self, operation):
        """Cancels an operation."""
        if operation.over:
            return
        self.cancel_on_server(operation)
        self.give_up(operation, Failure("CANCELLED", "canceled"))

    def cancel_on_server(self, operation):
        if operation.id in self.pending and self.socket:
            self.write(self.socket, "$ws:abort", {"correlationId": operation.id}, None)

    def grant(self, operation, credit):
        if operation.id in self.pending and self.socket:
            self.write(self.socket, "$ws:credit", {"correlationId": operation.id, "credit": credit}, None)

    def receive(self, socket, message):
        """Handles a message of the server."""
        typ, meta, payload = message["type"], message["meta"], message.get("payload")
        request = meta.get("correlationId") or ""
        if request.startswith("$ws:"):
            self.serve(socket, typ, request, meta, payload)
        elif typ == "$ws:rpc-progress":
            operation = self.pending.get(request)
            if operation and operation.on_item:
                operation.on_item(payload)
        elif request in self.requests:
            self.requests.pop(request)(message)
        elif request in self.pending:
            if typ != "$ws:ack":
                self.finish(self.pending[request], Failure.of(payload or {}) if typ == "RPC_ERROR" else message)
        elif typ == "ERROR" or typ == "RPC_ERROR" and request in self.events:
            self.events.pop(request, None)
            self.on_error(Failure.of(payload or {}))
        elif not request:
            self.receive_event(typ, meta, payload)

    def receive_event(self, typ, meta, payload):
        if typ.startswith(("$", "__")):
            topic = self.topics.get((payload or {}).get("topic"))
            handle = {"$ws:position": "moved", "$ws:presence": "presence"}.get(typ)
            if topic and handle:
                getattr(topic, handle)(payload)
            elif topic and typ == "$ws:state":
                topic.complete = True
            elif topic and typ == "$ws:unsubscribed":
                topic.unsubscribed(payload.get("error"))
            return
        name, offset = meta.get("topic"), meta.get("offset")
        handled, of_state = True, False
        if name is not None:
            topic = self.topics.get(name)
            if topic is None:
                return
            handled, of_state = topic.publication(offset)
        if handled:
            self.on_message(typ, payload or {}, name or "", offset or 0, of_state)

    def report_loss(self, topic, first, last, ended):
        self.on_loss(topic, first, last, ended)

    def serve(self, socket, typ, request, meta, payload):
        """Handles a call of the server."""
        if typ == "$ws:abort":
            handler = self.served.pop(request, None)
            if handler:
                handler.cancel()
            return
        if len(self.served) >= 64:
            self.write(socket, "RPC_ERROR", {"correlationId": request}, {"code": "RESOURCE_EXHAUSTED", "retryable": True})
            return
        handler = asyncio.ensure_future(self.handle(socket, typ, request, payload or {}))
        self.served[request] = handler
        if meta.get("timeoutMs"):
            timer = self.later(meta["timeoutMs"] / 1000, handler.cancel)
            handler.add_done_callback(lambda _: timer.cancel())

    async def handle(self, socket, typ, request, payload):
        try:
            reply, answer = await self.on_call(typ, payload)
        except Failure as failure:
            reply, answer = "RPC_ERROR", {"code": failure.code, "message": failure.message, "retryable": False}
        except Exception:  # its text is none of the server's business
            reply, answer = "RPC_ERROR", {"code": "INTERNAL", "message": "the handler has failed", "retryable": False}
        if self.served.get(request) is asyncio.current_task():
            del self.served[request]
            self.write(socket, reply, {"correlationId": request}, answer)

    # The application

    def call(self, typ, payload, done, timeout=None):
        operation = Operation("call", typ, payload, done)
        self.submit(operation, timeout or self.call_timeout)
        return operation

    def send(self, typ, payload, done):
        operation = Operation("event", typ, payload, done)
        self.submit(operation, self.expire)
        return operation

    def subscribe(self, subscription, since=None, state=False):
        topic = self.topics.get(subscription.topic)
        if topic is None:
            topic = self.topics[subscription.topic] = Topic(self, subscription.topic, since, state)
        topic.uses.append(subscription)
        if topic.status == "subscribed":
            subscription.succeed()
        topic.synchronize()
        self.start()

    def unsubscribe(self, subscription):
        subscription.over = True
        topic = self.topics.get(subscription.topic)
        if topic and subscription in topic.uses:
            topic.uses.remove(subscription)
            topic.synchronize()
            if not topic.uses and topic.status == "none":
                self.topics.pop(topic.name)

    def stop(self, failure):
        """Ends everything that goes on, for good."""
        self.set_state("closed")
        operations, self.queue = self.queue + list(self.pending.values()), []
        for operation in operations:
            self.finish(operation, failure)
        waiting, self.connecting = self.connecting, []
        for done in waiting:
            done(failure)
        for topic in list(self.topics.values()):
            topic.over({"code": failure.code})

    async def close(self):
        """Closes the client. It waits for the server at most 2 s."""
        if self.state == "closed":
            return
        socket = self.socket
        self.stop(Failure("CANCELLED", "the client was closed"))
        if socket:
            socket.start_close()
            await asyncio.wait([self.runner], timeout=2 / self.scale)
            socket.abort()
        if self.runner:
            self.runner.cancel()
            await asyncio.wait([self.runner])


class Refused(Exception):
    """The server has closed a connection before its welcome."""

    def __init__(self, socket):
        super().__init__("refused")
        self.socket = socket


def decode(text):
    """Returns a message with a type and meta, or None if the text is none."""
    try:
        message = json.loads(text)
    except ValueError:
        return None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        return None
    message["meta"] = message.get("meta") if isinstance(message.get("meta"), dict) else {}
    return message


def parse_reason(reason):
    """Returns the object in the reason of a close frame, or {} if the reason is another text."""
    try:
        parsed = json.loads(reason)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}

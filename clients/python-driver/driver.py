"""Operates the client in penstock.py for `penstock conformance`: reads commands from standard input and writes events to
standard output, one line of JSON each. docs/writing-a-client.md describes both."""

import asyncio
import json
import sys

from penstock import CREDIT, Client, Failure, Operation
from topics import Subscription

SCALE = int(sys.argv[1]) if len(sys.argv) > 1 else 5


def report(name, **more):
    sys.stdout.write(json.dumps({"name": name, **more}) + "\n")
    sys.stdout.flush()


def failure(error):
    if error is None:
        return {}
    return {"code": error.code, "unknown": error.unknown, "retryAfterMs": error.retry_after_ms, "detail": error.details.get("reason", "")}


def settle(operation):
    """Returns a function that reports the end of an operation."""

    def done(outcome):
        if isinstance(outcome, Failure):
            report("settled", id=operation, **failure(outcome))
        else:
            report("settled", id=operation, n=((outcome or {}).get("payload") or {}).get("n", 0))

    return done


class Stream:
    """A stream of rows, whose items are handed over one by one."""

    def __init__(self, client, name, n):
        self.client, self.name, self.n = client, name, n
        self.operation, self.items, self.wanted, self.consumed = None, [], 0, 0
        self.outcome, self.settled = None, False  # outcome is a tuple when the stream has ended

    def next(self):
        self.wanted += 1
        if self.operation is None and self.outcome is None:
            self.operation = Operation("stream", "EXPORT", {"n": self.n}, self.ended)
            self.operation.on_item = self.item
            self.client.submit(self.operation)
        self.hand_over()

    def item(self, payload):
        self.items.append(payload)
        self.hand_over()

    def ended(self, outcome):
        self.outcome = (outcome,)
        self.hand_over()

    def hand_over(self):
        while self.wanted and self.items and not self.settled:
            self.wanted -= 1
            report("item", id=self.name, n=self.items.pop(0)["n"])
            self.consumed += 1
            if self.consumed == CREDIT // 2:
                self.consumed = 0
                self.client.grant(self.operation, CREDIT // 2)
        if self.wanted and self.outcome and not self.settled:
            self.settled = True
            settle(self.name)(self.outcome[0] if isinstance(self.outcome[0], Failure) else None)

    def leave(self):
        if not self.settled:
            self.settled = True
            settle(self.name)(None)
        if self.operation:
            self.client.abort(self.operation)


class Driver:
    def __init__(self):
        self.client, self.operations, self.streams, self.subscriptions = None, {}, {}, {}

    def create(self, c):
        o = c.get("opts", {})
        tokens = o.get("tokens")

        async def token():
            report("token", expired=self.client.rejections > 0)
            value = tokens.pop(0) if len(tokens) > 1 else tokens[0]
            if value == "!hang":
                await asyncio.Event().wait()
            if value == "!fail":
                raise Failure("UNAVAILABLE", "no token")
            return value

        self.client = Client(
            o["url"],
            on_state=lambda state: report("state", state=state),
            on_error=lambda error: report("error", **failure(error)),
            on_message=lambda typ, m, topic, offset, state: report("message", n=m.get("n", 0), topic=topic, offset=offset, fromState=state),
            on_loss=lambda topic, first, last, ended: report("loss", topic=topic, to=last, ended=ended, **{"from": first}),
            on_call=self.serve,
            token=token if tokens else None,
            scale=SCALE,
            max_messages=o.get("messages", 1000),
            oldest=o.get("oldest", False),
            expire=o.get("expireMs", 30_000) / 1000,
            call_timeout=o.get("timeoutMs", 30_000) / 1000,
        )

    async def serve(self, typ, payload):
        if typ != "CONFIRM":
            raise Failure("UNIMPLEMENTED", "no handler has this type")
        n, what = payload.get("n", 0), payload.get("do")
        report("served", n=n)
        if what == "wait":
            try:
                await asyncio.Event().wait()
            finally:
                report("served-ended", n=n)
        if what == "slow":
            await asyncio.shield(self.client.sleep(5))
        if what == "fail":
            raise Failure("PERMISSION_DENIED", "the user said no")
        if what == "throw":
            raise ValueError("secret")
        return "CONFIRMED", {"n": n}

    def connect(self, c):
        self.client.connect(settle(c["id"]))

    def call(self, c):
        timeout = c.get("opts", {}).get("timeoutMs", 0) / 1000
        self.operations[c["id"]] = self.client.call("ASK", {"n": c.get("n", 0)}, settle(c["id"]), timeout)

    def send(self, c):
        self.operations[c["id"]] = self.client.send("SAY", {"n": c.get("n", 0)}, settle(c["id"]))

    def stream(self, c):
        self.streams[c["id"]] = Stream(self.client, c["id"], c.get("n", 0))

    def next(self, c):
        self.streams[c["id"]].next()

    def abort(self, c):
        operation = self.operations.get(c["id"]) or self.streams[c["id"]].operation
        self.client.abort(operation)

    def subscribe(self, c):
        o, name = c.get("opts", {}), c["id"]

        def failed(error):
            report("settled", id=name, code=error.get("code", "CANCELLED"), retryAfterMs=error.get("retryAfterMs") or 0)

        self.subscriptions[name] = s = Subscription(
            c["topic"],
            on_ready=lambda: report("settled", id=name),
            on_fail=failed,
            on_end=lambda error: report("ended", topic=c["topic"], code=error.get("code", "CANCELLED")),
            on_presence=(lambda n: report("presence", topic=c["topic"], n=n)) if o.get("presence") else None,
        )
        self.client.subscribe(s, (o["epoch"], o.get("offset", 0)) if o.get("epoch") else None, o.get("state", False))

    def unsubscribe(self, c):
        self.client.unsubscribe(self.subscriptions[c["id"]])

    def position(self, c):
        topic = self.client.topics.get(self.subscriptions[c["id"]].topic)
        epoch, offset = topic.position if topic else (None, 0)
        report("position", id=c["id"], epoch=epoch or "", offset=offset)

    async def close(self, c):
        await self.client.close()
        report("settled", id=c["id"])


async def main():
    report("driver", protocol=1, client="Python", scale=SCALE, levels=["minimal", "calls", "streams", "topics"], formats=["json"])
    driver, lines = Driver(), asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    background = set()
    while line := await lines.readline():
        c = json.loads(line)
        result = driver.streams[c["id"]].leave() if c["do"] == "break" else getattr(driver, c["do"])(c)
        if asyncio.iscoroutine(result):
            background.add(loop.create_task(result))


asyncio.run(main())

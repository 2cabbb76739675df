"""Operates the client for `penstock conformance`: reads commands from standard input and writes events to standard
output, one line of JSON each. docs/writing-a-client.md describes both."""

import asyncio
import json
import sys
from collections.abc import Coroutine
from typing import Any

from penstock_client import Client, Fallback, Loss, Message, PenstockError, Position, Queue, Stream, Subscription
from penstock_client._runtime import Clock

Command = dict[str, Any]


def report(name: str, **more: Any) -> None:
    sys.stdout.write(json.dumps({"name": name, **more}) + "\n")
    sys.stdout.flush()


def failure(error: BaseException) -> dict[str, Any]:
    if isinstance(error, asyncio.CancelledError):
        return {"code": "CANCELLED"}
    if not isinstance(error, PenstockError):
        return {"code": "INTERNAL", "detail": repr(error)}
    ms = 0 if error.retry_after in (None, float("inf")) else round(error.retry_after * 1000)
    detail = error.details.get("reason", "")
    return {"code": error.code, "unknown": error.outcome_unknown, "retryAfterMs": ms, "detail": detail}


class Driver:
    """The state of a scenario."""

    client: Client

    def __init__(self, scale: float, mode: Any) -> None:
        self.clock, self.mode = Clock(scale), mode
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.streams: dict[str, Stream[Any, Any]] = {}
        self.subscriptions: dict[str, Subscription] = {}

    def start(self, id: str, work: Coroutine[Any, Any, Any]) -> None:
        """Starts an operation, and reports its end."""

        def done(task: asyncio.Task[Any]) -> None:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if error is not None:
                report("settled", id=id, **failure(error))
            else:
                reply = task.result()
                report("settled", id=id, n=reply.get("n", 0) if isinstance(reply, dict) else 0)

        self.tasks[id] = asyncio.get_running_loop().create_task(work)
        self.tasks[id].add_done_callback(done)

    def create(self, c: Command) -> None:
        o = c.get("opts", {})
        tokens = o.get("tokens", [])

        async def token(expired: bool) -> str:
            report("token", expired=expired)
            value: str = tokens.pop(0) if len(tokens) > 1 else tokens[0]
            if value == "!hang":
                await asyncio.Event().wait()
            if value == "!fail":
                raise RuntimeError("no token")
            return value

        self.client = Client(
            o["url"],
            token=token if tokens else None,
            timeout=o.get("timeoutMs", 30_000) / 1000,
            queue=Queue(
                max_messages=o.get("messages", 1_000),
                max_wait=o.get("expireMs", 30_000) / 1000,
                overflow="drop-oldest" if o.get("oldest") else "drop-newest",
            ),
            resume=o.get("session", False),
            pacing=o.get("pacing", False),
            cbor=o.get("cbor", False),
            clock=self.clock,
            fallback=Fallback("http" + o["url"][2:] + "http", mode=self.mode) if self.mode else None,
        )
        self.client.on_state(lambda state, _: report("state", state=state))
        self.client.on_error(lambda error: report("error", **failure(error)))
        self.client.on("SAID")(self.said)
        self.client.on("$loss")(self.lost)
        self.client.handle("CONFIRM", "CONFIRMED")(self.confirm)

    def said(self, _: Any, m: Message) -> None:
        offset = m.position.offset if m.position else 0
        report("message", n=m.payload.get("n", 0), topic=m.topic or "", offset=offset, fromState=m.state)
        if m.payload.get("throw"):
            raise RuntimeError("the handler fails")

    def lost(self, loss: Loss, _: Message) -> None:
        report("loss", topic=loss.topic, **{"from": loss.first}, to=loss.last, ended=loss.ended is not None)

    async def confirm(self, request: Any) -> Any:
        n, what = request.get("n", 0), request.get("do")
        report("served", n=n)
        if what == "wait":
            try:
                await asyncio.Event().wait()
            finally:
                report("served-ended", n=n)
        if what == "slow":  # and does not look at its cancellation
            await asyncio.shield(asyncio.sleep(5 / self.clock.scale))
        if what == "fail":
            raise PenstockError("PERMISSION_DENIED", "the user said no")
        if what == "throw":
            raise RuntimeError("secret")
        return {"n": n}

    def connect(self, c: Command) -> None:
        self.start(c["id"], self.client.connect())

    def call(self, c: Command) -> None:
        ms = c.get("opts", {}).get("timeoutMs")
        work = self.client.call("ASK", {"n": c.get("n", 0)}, timeout=ms / 1000 if ms else None)
        self.start(c["id"], work)

    def send(self, c: Command) -> None:
        pad = c.get("opts", {}).get("pad", 0)
        self.start(c["id"], self.client.send("SAY", {"n": c.get("n", 0)} | ({"pad": "x" * pad} if pad else {})))

    def abort(self, c: Command) -> None:
        self.tasks[c["id"]].cancel()

    def stream(self, c: Command) -> None:
        self.streams[c["id"]] = self.client.stream("EXPORT", {"n": c.get("n", 0)})

    def next(self, c: Command) -> None:
        id, stream = c["id"], self.streams[c["id"]]

        async def step() -> None:
            try:
                item = await anext(stream)
            except StopAsyncIteration:
                report("settled", id=id)
            except (PenstockError, asyncio.CancelledError) as error:
                report("settled", id=id, **failure(error))
                await stream.aclose()
            else:
                report("item", id=id, n=item["n"])

        self.tasks[id] = asyncio.get_running_loop().create_task(step())

    def leave(self, c: Command) -> None:
        self.start(c["id"], self.streams[c["id"]].aclose())

    def consume(self, c: Command) -> None:
        async def loop() -> None:
            async for item in self.client.stream("EXPORT", {"n": c.get("n", 0)}):
                report("item", id=c["id"], n=item["n"])

        self.start(c["id"], loop())

    def subscribe(self, c: Command) -> None:
        o, id, topic = c.get("opts", {}), c["id"], c["topic"]

        def handler(m: Message) -> None:
            if m.type == "$members":
                report("presence", topic=topic, n=len(m.payload))

        def ended(error: PenstockError) -> None:
            if self.tasks[id].done():
                report("ended", topic=topic, **failure(error))

        since = Position(o["epoch"], o.get("offset", 0)) if o.get("epoch") else None
        wants = {option: o.get(option, False) for option in ("state", "presence", "hidden")}
        wants["last"] = o.get("last", 0)
        sub = self.subscriptions[id] = self.client.subscribe(topic, handler, since=since, on_end=ended, **wants)
        self.start(id, sub.ready())

    def unsubscribe(self, c: Command) -> None:
        self.subscriptions[c["id"]].unsubscribe()

    def position(self, c: Command) -> None:
        at = self.subscriptions[c["id"]].position
        report("position", id=c["id"], epoch=at.epoch if at else "", offset=at.offset if at else 0)

    def allowed(self, c: Command) -> None:
        report("allowed", id=c["id"], ms=round(self.client.next_allowed_in(c["id"]) * 1000))

    def close(self, c: Command) -> None:
        self.start(c["id"], self.client.close())


async def main(scale: str = "5", mode: str = "") -> None:
    report("driver", protocol=1, client="Python", scale=int(scale), formats=["json", "cbor"])
    driver, lines = Driver(int(scale), mode), asyncio.StreamReader(limit=1 << 20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        command = json.loads(line)
        getattr(driver, {"break": "leave"}.get(command["do"], command["do"]))(command)


asyncio.run(main(*sys.argv[1:]))

import assert from "node:assert/strict";
import { test } from "node:test";

import { PenstockError } from "../src/index.ts";
import { connected, createFixture, outcome, settled } from "./fixture.ts";

test("rule 16: a reply settles a call, and later answers are ignored", async () => {
  const f = await connected();
  const call = f.client.call("ASK", { n: 1 });
  const sent = f.first.last("ASK");
  assert.deepEqual(sent.payload, { n: 1 });
  f.first.answer(sent, "ANSWER", { n: 2 });
  f.first.answer(sent, "ANSWER", { n: 3 });
  f.first.reject(sent, "INTERNAL");
  assert.deepEqual(await call, { n: 2 });
  assert.deepEqual(f.errors, [], "rule 21");
});

test("type and meta precede the payload, and a message without payload has none", async () => {
  const f = await connected();
  void f.client.call("ASK", { n: 1 });
  void f.client.call("EMPTY");
  assert.match(f.first.raw.at(-2)!, /^\{"type":"ASK","meta":\{.*\},"payload":\{"n":1\}\}$/);
  assert.match(f.first.raw.at(-1)!, /^\{"type":"EMPTY","meta":\{[^}]*\}\}$/);
});

test("rule 38: an error has the code, details and waiting time of the server", async () => {
  const f = await connected();
  const call = outcome(f.client.call("ASK"));
  f.first.reject(f.first.last("ASK"), "RESOURCE_EXHAUSTED", { message: "slow down", retryable: true, retryAfterMs: 1250, details: { kind: "rate" } });
  const { error } = (await call)!;
  assert.ok(error instanceof PenstockError);
  assert.equal(error.message, "slow down");
  assert.deepEqual([error.code, error.retryable, error.retryAfterMs, error.details.kind, error.mayHaveExecuted], ["RESOURCE_EXHAUSTED", true, 1250, "rate", undefined]);
});

test("an error whose details are null has none", async () => {
  const f = await connected();
  const result = outcome(f.client.call("ASK"));
  f.first.reject(f.first.last("ASK"), "NOT_FOUND", { details: null });
  assert.deepEqual((await result)?.error.details, {});
});

test("rule 17: the deadline starts with the call, and the server learns what remains", async () => {
  const f = createFixture();
  const call = f.client.call("ASK", {}, { timeoutMs: 5_000 });
  await f.clock.advance(1_500);
  await f.greet();
  assert.equal(f.socket.last("ASK").meta.timeoutMs, 3_500);
  await f.clock.advance(3_499);
  assert.equal(f.socket.all("$ws:abort").length, 0);
  await f.clock.advance(1);
  assert.equal((await outcome(call))?.error.code, "DEADLINE_EXCEEDED");
});

test("rule 19: a call that has expired in the queue is not sent", async () => {
  const f = createFixture();
  const call = f.client.call("ASK", {}, { timeoutMs: 1_000 });
  const other = f.client.call("OTHER", {});
  await f.clock.advance(1_000);
  assert.equal((await outcome(call))?.error.code, "DEADLINE_EXCEEDED");
  await f.greet();
  assert.equal(f.socket.all("ASK").length, 0);
  f.socket.answer(f.socket.last("OTHER"), "ANSWER", 1);
  assert.equal(await other, 1);
});

test("rule 18: a lost connection rejects sent calls, whose outcome is unknown, and resends idempotent ones", async () => {
  const f = await connected();
  const call = outcome(f.client.call("ASK"));
  const event = outcome(f.client.sendWithAck("SAY", {}));
  const idempotent = f.client.call("READ", {}, { idempotent: true });
  const old = f.first.last("READ").meta.correlationId;
  f.first.end(1006);
  for (const { error } of [(await call)!, (await event)!]) {
    assert.deepEqual([error.code, error.mayHaveExecuted, error.retryable], ["ABORTED", true, false]);
  }
  const queued = f.client.call("LATER");
  await f.clock.advance(1_000);
  await f.greet();
  assert.deepEqual(
    f.socket.sent.map((s) => s.type),
    ["$ws:hello", "READ", "LATER"],
  );
  assert.notEqual(f.socket.last("READ").meta.correlationId, old, "rule 20: an ID per attempt");
  f.socket.answer(f.socket.last("READ"), "DATA", 1);
  f.socket.answer(f.socket.last("LATER"), "DATA", 2);
  assert.deepEqual([await idempotent, await queued], [1, 2]);
});

test("rule 20: correlation IDs have a random prefix and a counter", async () => {
  const ids = new Set<string>();
  for (const random of [0.1, 0.2]) {
    const f = await connected({ random: () => random });
    for (let i = 0; i < 3; i++) {
      void f.client.call("ASK");
      ids.add(f.first.last("ASK").meta.correlationId!);
    }
  }
  assert.equal(ids.size, 6);
  for (const id of ids) assert.match(id, /^\w+-\d+$/);
});

test("rule 23: an aborted signal sends nothing; a later abort is sent once", async () => {
  const f = await connected();
  const before = await outcome(f.client.call("ASK", {}, { signal: AbortSignal.abort("never") }));
  assert.equal(before?.error.code, "CANCELLED");
  assert.equal(before?.error.cause, "never");
  assert.equal(f.first.all("ASK").length, 0);
  const controller = new AbortController();
  const call = outcome(f.client.call("ASK", {}, { signal: controller.signal }));
  const id = f.first.last("ASK").meta.correlationId;
  controller.abort();
  controller.abort();
  assert.equal((await call)?.error.code, "CANCELLED");
  assert.deepEqual(f.first.all("$ws:abort").map((s) => s.meta.correlationId), [id]);
  f.first.reject(f.first.last("ASK"), "CANCELLED");
  assert.deepEqual(f.errors, []);
});

test("rules 19 and 23: a call that is aborted in the queue is not sent", async () => {
  const f = createFixture();
  const controller = new AbortController();
  const call = outcome(f.client.call("ASK", {}, { signal: controller.signal }));
  controller.abort();
  assert.equal((await call)?.error.code, "CANCELLED");
  await f.greet();
  assert.deepEqual(f.socket.sent.map((s) => s.type), ["$ws:hello"]);
});

test("rule 22: the listener of a signal is removed on settlement", async () => {
  const f = await connected();
  let listeners = 0;
  const signal = {
    aborted: false,
    addEventListener: () => listeners++,
    removeEventListener: () => listeners--,
  } as unknown as AbortSignal;
  const call = f.client.call("ASK", {}, { signal });
  assert.equal(listeners, 1);
  f.first.answer(f.first.last("ASK"), "ANSWER");
  await call;
  assert.equal(listeners, 0);
});

test("progress reaches the call that asked for it", async () => {
  const f = await connected();
  const progress: unknown[] = [];
  const call = f.client.call("ASK", {}, { onProgress: (p) => progress.push(p) });
  void f.client.call("OTHER");
  f.first.answer(f.first.last("ASK"), "$ws:rpc-progress", { percent: 50 });
  f.first.answer(f.first.last("OTHER"), "$ws:rpc-progress", { percent: 60 });
  f.first.answer(f.first.last("ASK"), "ANSWER");
  await call;
  assert.deepEqual(progress, [{ percent: 50 }]);
});

test("an event is resolved when the server has admitted it, and rejected with its error", async () => {
  const f = await connected();
  const one = f.client.sendWithAck("SAY", { text: "hi" });
  assert.equal(f.first.last("SAY").meta.ack, true);
  assert.equal(await outcome(one), undefined);
  f.first.answer(f.first.last("SAY"), "$ws:ack");
  await one;
  const two = outcome(f.client.sendWithAck("SAY", { text: "" }));
  f.first.reject(f.first.last("SAY"), "RESOURCE_EXHAUSTED", { retryable: true, retryAfterMs: 10 });
  assert.equal((await two)?.error.retryAfterMs, 10);
});

test("an error of the server without ID reaches onError", async () => {
  const f = await connected();
  f.first.receive("ERROR", { code: "INVALID_ARGUMENT", retryable: false });
  assert.equal((f.errors[0] as PenstockError).code, "INVALID_ARGUMENT");
});

test("rule 31: handlers outlive connections and run once; one that throws is reported", async () => {
  const f = await connected();
  const notes: unknown[] = [];
  const off = f.client.on("NOTE", (payload, meta) => notes.push([payload, meta.timestamp]));
  f.client.on("NOTE", () => {
    throw new Error("broken");
  });
  f.first.end(1006);
  await f.clock.advance(1_000);
  await f.greet();
  f.socket.receive("NOTE", { text: "hi" });
  off();
  f.socket.receive("NOTE", { text: "hi" });
  assert.deepEqual(notes, [[{ text: "hi" }, 1730000000000]]);
  assert.equal(f.errors.length, 2);
});

test("rule 57: a rejection that no code awaits ends nothing", async () => {
  const f = await connected();
  void f.client.call("ASK");
  void f.client.sendWithAck("SAY", {});
  void f.client.connect();
  f.first.end(1006);
  await settled();
});

test("calls of the server are answered with the type of the reply", async () => {
  const f = await connected();
  f.client.handle("ASK_USER", "USER_ANSWER", async ({ question }) => ({ yes: question === "?" }));
  f.first.receive("ASK_USER", { question: "?" }, { correlationId: "$ws:1", timeoutMs: 30_000 });
  await settled();
  assert.deepEqual(f.first.last("USER_ANSWER"), { type: "USER_ANSWER", meta: { correlationId: "$ws:1" }, payload: { yes: true } });
  assert.equal(f.clock.timers, 1, "the heartbeat only");
});

test("rule 25: a served call without handler is UNIMPLEMENTED, and a failed one INTERNAL without its text", async () => {
  const f = await connected();
  f.client.handle("FAIL", "DONE", () => {
    throw new Error("secret");
  });
  f.client.handle("REFUSE", "DONE", () => {
    throw new PenstockError("PERMISSION_DENIED", "the user said no");
  });
  for (const [i, type] of ["NONE", "FAIL", "REFUSE"].entries()) f.first.receive(type, {}, { correlationId: "$ws:" + i });
  await settled();
  const answers = f.first.all("RPC_ERROR").map((s) => [s.meta.correlationId, s.payload.code, s.payload.message]);
  assert.deepEqual(answers, [
    ["$ws:0", "UNIMPLEMENTED", "UNIMPLEMENTED"],
    ["$ws:1", "INTERNAL", "INTERNAL"],
    ["$ws:2", "PERMISSION_DENIED", "the user said no"],
  ]);
  assert.equal((f.errors[0] as Error).message, "secret");
});

test("rule 25: a served call ends when the server stops waiting, its time is over, or the connection is lost", async () => {
  for (const end of ["abort", "time", "loss"]) {
    const f = await connected();
    let signal!: AbortSignal;
    f.client.handle("ASK", "ANSWER", (_, context) => {
      signal = context.signal;
      return new Promise((resolve) => signal.addEventListener("abort", () => resolve({})));
    });
    f.first.receive("ASK", {}, { correlationId: "$ws:1", timeoutMs: 1_000 });
    await f.clock.advance(end === "time" ? 1_000 : 10);
    if (end === "abort") f.first.receive("$ws:abort", undefined, { correlationId: "$ws:1" });
    if (end === "loss") f.first.end(1006);
    await settled();
    assert.equal(signal.aborted, true, end);
    assert.equal(f.first.all("ANSWER").length, 0, end);
  }
});

test("rule 25: served calls are bounded", async () => {
  const f = await connected();
  f.client.handle("ASK", "ANSWER", () => new Promise(() => {}));
  for (let i = 0; i < 70; i++) f.first.receive("ASK", {}, { correlationId: "$ws:" + i });
  await settled();
  assert.deepEqual(f.first.all("RPC_ERROR").map((s) => s.payload.code), Array(6).fill("RESOURCE_EXHAUSTED"));
});

test("a served call whose answer JSON cannot encode is INTERNAL, and the cause of an error stays here", async () => {
  const f = await connected();
  const circular: any = {};
  circular.self = circular;
  const outcomes: { [type: string]: () => unknown } = {
    BIG: () => 1n,
    CIRCULAR: () => circular,
    DETAILS: () => {
      throw new PenstockError("NO_ROOM", "full", { details: { n: 1n } });
    },
    CAUSE: () => {
      throw new PenstockError("NO_ROOM", "full", { retryable: true, retryAfterMs: 5, details: { room: "go" }, cause: new Error("secret") });
    },
  };
  const answers = [];
  for (const [type, handler] of Object.entries(outcomes)) {
    f.client.handle(type, "DONE", handler);
    f.first.receive(type, {}, { correlationId: "$ws:" + type });
    await settled();
    answers.push(f.first.sent.at(-1));
  }
  const internal = { code: "INTERNAL", message: "INTERNAL", retryable: false, details: {} };
  assert.deepEqual(answers.map((a) => [a!.type, a!.payload]), [
    ["RPC_ERROR", internal],
    ["RPC_ERROR", internal],
    ["RPC_ERROR", internal],
    ["RPC_ERROR", { code: "NO_ROOM", message: "full", retryable: true, retryAfterMs: 5, details: { room: "go" } }],
  ]);
  assert.equal(f.errors.length, 3);
});

test("an answer above the limit of the server is an error that says so", async () => {
  const f = await connected();
  f.client.handle("ASK", "ANSWER", () => "x".repeat(70_000));
  f.first.receive("ASK", {}, { correlationId: "$ws:1" });
  await settled();
  const { code, details } = f.first.last("RPC_ERROR").payload;
  assert.deepEqual([code, details.kind, details.limit], ["RESOURCE_EXHAUSTED", "payload", 65_536]);
  assert.equal(f.first.sent.length, 2);
});

test("without serving, calls of the server are UNIMPLEMENTED, and handle says what is missing", async () => {
  const f = await connected({ serving: undefined as any });
  f.first.receive("ASK", {}, { correlationId: "$ws:1" });
  assert.deepEqual([f.first.last("RPC_ERROR").meta.correlationId, f.first.last("RPC_ERROR").payload.code], ["$ws:1", "UNIMPLEMENTED"]);
  assert.throws(() => f.client.handle("ASK", "ANSWER", () => ({})), PenstockError);
});

import assert from "node:assert/strict";
import { test } from "node:test";

import { PenstockError } from "../src/index.ts";
import { stream } from "../src/streams.ts";
import { createFixture, connected, outcome, settled } from "./fixture.ts";

test("messages wait for a connection, and are sent in order", async () => {
  const f = createFixture();
  void f.client.sendWithAck("A", 1);
  void f.client.call("B", 2);
  void f.client.sendWithAck("C", 3);
  await f.greet();
  assert.deepEqual(f.socket.sent.slice(1).map((s) => s.type), ["A", "B", "C"]);
});

test("rule 43: a full queue rejects the new message", async () => {
  const f = createFixture({ queue: { maxMessages: 2 } });
  const outcomes = [1, 2, 3].map((n) => outcome(f.client.sendWithAck("A", n)));
  const last = (await outcomes[2])!.error;
  assert.deepEqual([last.code, last.details.kind, last.retryable], ["RESOURCE_EXHAUSTED", "queue", true]);
  await f.greet();
  assert.deepEqual(f.socket.all("A").map((s) => s.payload), [1, 2]);
});

test("rule 43: drop-oldest rejects the message that has waited longest", async () => {
  const f = createFixture({ queue: { maxMessages: 2, overflow: "drop-oldest" } });
  const first = outcome(f.client.sendWithAck("A", 1));
  void f.client.sendWithAck("A", 2);
  void f.client.sendWithAck("A", 3);
  assert.equal((await first)?.error.code, "RESOURCE_EXHAUSTED");
  await f.greet();
  assert.deepEqual(f.socket.all("A").map((s) => s.payload), [2, 3]);
});

test("rule 43: the bytes of the queue are bounded, but one message always fits", async () => {
  const f = createFixture({ queue: { maxBytes: 10 } });
  void f.client.sendWithAck("A", "x".repeat(100));
  const second = outcome(f.client.sendWithAck("A", "x"));
  assert.equal((await second)?.error.code, "RESOURCE_EXHAUSTED");
  await f.greet();
  assert.equal(f.socket.all("A").length, 1);
});

test("rule 44: queued events expire", async () => {
  const f = createFixture();
  const stale = f.client.sendWithAck("TYPING", {});
  const brief = f.client.sendWithAck("TYPING", {}, { maxWaitMs: 100 });
  await f.clock.advance(100);
  assert.equal((await outcome(brief))?.error.code, "DEADLINE_EXCEEDED");
  await f.clock.advance(29_900);
  assert.equal((await outcome(stale))?.error.code, "DEADLINE_EXCEEDED");
});

test("rule 44: what has expired is not sent, even if its timer is late", async () => {
  const f = createFixture();
  const late = [f.client.sendWithAck("SAY", {}, { maxWaitMs: 5_000 }), f.client.call("ASK", {}, { timeoutMs: 5_000 })];
  await settled();
  f.clock.sleep(6_000);
  await f.greet();
  for (const promise of late) assert.equal((await outcome(promise))?.error.code, "DEADLINE_EXCEEDED");
  assert.deepEqual(f.socket.sent.map((s) => s.type), ["$ws:hello"]);
  void f.client.sendWithAck("SAY", {}, { maxWaitMs: 0 });
  assert.ok(f.socket.last("SAY"), "which need not wait");
});

test("an event that was sent does not expire", async () => {
  const f = await connected();
  const sent = f.client.sendWithAck("A", {});
  await f.clock.advance(24_000);
  f.first.receive("NOTE", {});
  await f.clock.advance(10_000);
  f.first.answer(f.first.last("A"), "$ws:ack");
  assert.deepEqual(await outcome(sent), { value: undefined });
});

test("rule 41: nothing is sent while the socket buffers more than a megabyte", async () => {
  const f = await connected();
  f.first.bufferedAmount = 2 << 20;
  void f.client.sendWithAck("A", 1);
  await f.clock.advance(1_000);
  assert.equal(f.first.all("A").length, 0);
  f.first.bufferedAmount = 0;
  await f.clock.advance(50);
  assert.equal(f.first.all("A").length, 1);
});

test("10,000 messages that wait are sent without recursion", async () => {
  const f = createFixture({ queue: { maxMessages: 20_000 } });
  for (let i = 0; i < 10_000; i++) void f.client.sendWithAck("A", i);
  await f.greet();
  assert.equal(f.socket.all("A").length, 10_000);
});

test("rule 51: after 1009 nothing that was sent is sent again", async () => {
  const f = await connected();
  const large = outcome(f.client.call("UPLOAD", "x".repeat(60_000)));
  f.first.end(1009, { code: "RESOURCE_EXHAUSTED", retryAfterMs: null, message: "message is too big" });
  assert.equal((await large)?.error.code, "ABORTED");
  await f.clock.advance(1_000);
  await f.greet();
  assert.deepEqual(f.socket.sent.map((s) => s.type), ["$ws:hello"]);
});

test("rule 51: after 1009 the largest idempotent call fails, and the others are sent again", async () => {
  const f = await connected();
  const ask = (text: string) => f.client.call("ASK", text, { idempotent: true });
  const [small, large, other] = [ask("a"), ask("x".repeat(60_000)), ask("b")];
  f.first.end(1009);
  const { error } = (await outcome(large))!;
  assert.deepEqual([error.code, error.retryable, error.retryAfterMs, error.details.kind, error.details.observed], ["RESOURCE_EXHAUSTED", false, null, "payload", 60_002]);
  await f.clock.advance(1_000);
  const second = await f.greet();
  assert.deepEqual(second.all("ASK").map((s) => s.payload), ["a", "b"]);
  for (const sent of second.all("ASK")) second.answer(sent, "ANSWER", sent.payload);
  assert.deepEqual([await small, await other], ["a", "b"]);
});

test("a message above the limit that the server has announced fails at once, and nothing else does", async () => {
  const f = await connected({}, { maxMessageBytesByType: { UPLOAD: 100_000, TINY: 90 } });
  const other = f.client.call("ASK", 1);
  const calls = [
    f.client.call("ASK", "x".repeat(70_000), { idempotent: true }),
    f.client.sendWithAck("SAY", "x".repeat(70_000)),
    stream(f.client, "EXPORT", "x".repeat(70_000)).next(),
    f.client.call("UPLOAD", "x".repeat(100_000)),
    f.client.call("TINY", "x".repeat(90)),
    f.client.call("ASK", "\u20ac".repeat(22_000)), // 66,000 bytes
  ].map(outcome);
  const failures = (await Promise.all(calls)).map((o) => o!.error);
  for (const { code, retryable, retryAfterMs, details } of failures) {
    assert.deepEqual([code, retryable, retryAfterMs, details.kind], ["RESOURCE_EXHAUSTED", false, null, "payload"]);
    assert.ok(details.observed > details.limit);
  }
  assert.deepEqual(failures.map((e) => e.details.limit), [65_536, 65_536, 65_536, 100_000, 90, 65_536]);
  assert.deepEqual(f.first.sent.map((s) => s.type), ["$ws:hello", "ASK"]);
  f.first.answer(f.first.last("ASK"), "ANSWER", 2);
  assert.equal(await other, 2);
  void f.client.call("UPLOAD", "x".repeat(70_000));
  void f.client.call("ASK", "\u20ac".repeat(21_000));
  assert.equal(f.first.sent.length, 4, "what fits is sent");
  assert.equal(f.client.inspect().unanswered, 2);
});

test("what waits for a connection and is above the limit of the server fails when that is known", async () => {
  const f = createFixture();
  const large = f.client.call("ASK", "x".repeat(70_000), { idempotent: true });
  const small = f.client.call("ASK", 1);
  await f.greet();
  const { kind, observed, limit } = (await outcome(large))?.error.details;
  assert.deepEqual([kind, observed > 70_000, limit], ["payload", true, 65_536]);
  f.socket.answer(f.socket.last("ASK"), "ANSWER", 2);
  assert.equal(await small, 2);
});

test("what JSON cannot encode is an invalid argument", async () => {
  const f = await connected();
  const circular: any = {};
  circular.self = circular;
  const calls = [f.client.call("ASK", circular), f.client.sendWithAck("SAY", 1n as any), stream(f.client, "EXPORT", circular).next()].map(outcome);
  for (const call of calls) {
    const { error } = (await call)!;
    assert.ok(error instanceof PenstockError);
    assert.deepEqual([error.name, error.code, (error.cause as Error).name], ["PenstockError", "INVALID_ARGUMENT", "TypeError"]);
  }
  assert.deepEqual(f.first.sent.map((s) => s.type), ["$ws:hello"]);
  assert.equal(f.client.inspect().unanswered + f.client.inspect().waiting, 0);
});

test("rule 48: close drops what waits", async () => {
  const f = createFixture();
  const waits = outcome(f.client.sendWithAck("A", 1));
  f.client.close();
  assert.equal((await waits)?.error.code, "CANCELLED");
  void f.client.connect();
  await f.greet();
  assert.equal(f.socket.all("A").length, 0);
});

test("an error after the acknowledgment of an event reaches onError", async () => {
  const f = await connected();
  const sent = outcome(f.client.sendWithAck("SAY", {}));
  const { correlationId } = f.first.last("SAY").meta;
  f.first.receive("$ws:ack", undefined, { correlationId });
  assert.equal((await sent)?.error, undefined);
  f.first.receive("RPC_ERROR", { code: "NOT_FOUND", retryable: false }, { correlationId });
  assert.deepEqual(f.errors.map((error: any) => error.code), ["NOT_FOUND"]);
});

test("the late answer of a call that was canceled is ignored", async () => {
  const f = await connected();
  const controller = new AbortController();
  const call = outcome(f.client.call("ASK", {}, { signal: controller.signal }));
  const { correlationId } = f.first.last("ASK").meta;
  controller.abort();
  assert.equal((await call)?.error.code, "CANCELLED");
  f.first.receive("RPC_ERROR", { code: "CANCELLED", retryable: false }, { correlationId });
  assert.deepEqual(f.errors, []);
});

test("calls wait while the server permits no more without an answer, and events do not", async () => {
  const f = createFixture({ queue: { maxMessages: 1_000 } });
  const calls = Array.from({ length: 200 }, (_, n) => f.client.call("ASK", n));
  void f.client.sendWithAck("SAY", "hi");
  await f.greet({ concurrency: 64 });
  assert.equal(f.socket.all("ASK").length, 64);
  assert.equal(f.socket.all("SAY").length, 1);
  for (let n = 0; n < 200; n++) {
    const sent = f.socket.all("ASK");
    assert.ok(sent.length - n <= 64);
    f.socket.answer(sent[n]!, "ANSWER", n);
  }
  assert.deepEqual(await Promise.all(calls), Array.from({ length: 200 }, (_, n) => n));
});

test("a call that ends without an answer makes room for another one", async () => {
  const f = await connected({}, { concurrency: 1 });
  const controller = new AbortController();
  const canceled = f.client.call("ASK", 1, { signal: controller.signal });
  const brief = f.client.call("ASK", 2, { timeoutMs: 1_000 });
  const last = f.client.call("ASK", 3);
  controller.abort();
  assert.equal((await outcome(canceled))?.error.code, "CANCELLED");
  await f.clock.advance(1_000);
  assert.equal((await outcome(brief))?.error.code, "DEADLINE_EXCEEDED");
  f.first.answer(f.first.last("ASK"), "ANSWER", 3);
  assert.deepEqual(await outcome(last), { value: 3 });
});

test("a call that the server rejects at the announced number is sent again without pacing", async () => {
  const f = await connected({}, { concurrency: 2 });
  void f.client.call("ASK", 1);
  const second = f.client.call("ASK", 2);
  f.first.reject(f.first.last("ASK"), "RESOURCE_EXHAUSTED", { retryable: true, details: { kind: "in_flight", observed: 3, limit: 2 } });
  assert.equal(f.first.all("ASK").length, 2);
  f.first.answer(f.first.all("ASK")[0]!, "ANSWER", 1);
  f.first.answer(f.first.last("ASK"), "ANSWER", 2);
  assert.deepEqual(await outcome(second), { value: 2 });
});

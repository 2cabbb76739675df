import assert from "node:assert/strict";
import { test } from "node:test";

import { pacing } from "../src/pacing.ts";
import { connected, createFixture, outcome, settled, welcome, type Fixture, type SentFrame } from "./fixture.ts";

interface Limit {
  capacity: number;
  perSecond: number;
  delayMs: number; // of a message, and of its answer
  level?: number;
  cost?: (type: string) => number;
  stallEveryMs?: number; // messages then wait for stallMs
  stallMs?: number;
}

/** A server with one exact bucket behind a network with a delay. Each connection has one server. */
function serve(f: Fixture, { capacity, perSecond, delayMs, level = capacity, cost = () => 1, stallEveryMs = 0, stallMs = 0 }: Limit) {
  const { clock, socket } = f;
  const stats = { admitted: [] as unknown[], rejected: 0, rejectedInWait: 0, maxRejectedInWait: 0, from: clock.now(), until: 0, blockedUntil: 0 };
  let at = clock.now();
  const receive = (frame: SentFrame) => {
    if (frame.type.startsWith("$")) return;
    const now = clock.now();
    level = Math.min(capacity, level + ((now - at) * perSecond) / 1000);
    at = now;
    const price = cost(frame.type);
    const id = { correlationId: frame.meta.correlationId, timestamp: 1e12 + now };
    if (level + 1e-9 >= price) {
      level -= price;
      stats.admitted.push(frame.payload);
      stats.until = now;
      clock.setTimeout(() => socket.receive("$ws:ack", undefined, id), delayMs);
      return;
    }
    const retryAfterMs = Math.ceil(((price - level) * 1000) / perSecond);
    stats.rejected++;
    stats.rejectedInWait = now < stats.blockedUntil ? stats.rejectedInWait + 1 : 1;
    stats.maxRejectedInWait = Math.max(stats.maxRejectedInWait, stats.rejectedInWait);
    stats.blockedUntil = now + retryAfterMs;
    const payload = { code: "RESOURCE_EXHAUSTED", details: { kind: "rate", observed: price, limit: capacity }, retryable: true, retryAfterMs };
    clock.setTimeout(() => socket.receive("RPC_ERROR", payload, id), delayMs);
  };
  let last = 0;
  const send = socket.send.bind(socket);
  socket.send = (data) => {
    send(data);
    const frame = JSON.parse(data);
    let arrival = clock.now() + delayMs;
    if (stallEveryMs && arrival % stallEveryMs < stallMs) arrival += stallMs - (arrival % stallEveryMs);
    last = Math.max(last, arrival); // the network keeps the order
    clock.setTimeout(() => receive(frame), last - clock.now());
  };
  return stats;
}

const announced = (capacity: number, perSecond: number, scope = "connection", costs: object = { A: 1 }, keep?: object) => ({
  limits: [{ name: "messages", capacity, refill: perSecond, refillMs: 1000, scope, buckets: [{ costs, keep }] }],
});

/** Sends messages at once, and returns when all are settled. */
async function sendAll(f: Fixture, count: number): Promise<void> {
  let done = 0;
  for (let i = 0; i < count; i++) f.client.sendWithAck("A", i).then(() => done++);
  while (done < count) await f.clock.advance(1_000);
}

const queue = { maxMessages: 20_000, maxWaitMs: Infinity };

for (const scope of ["connection", "user"]) {
  test(`announced limits of the scope ${scope}: 10,000 messages in order, none rejected, at 99 % of the rate`, async () => {
    const f = await connected({ pacing, queue }, announced(20, 100, scope));
    const stats = serve(f, { capacity: 20, perSecond: 100, delayMs: 25 });
    await sendAll(f, 10_000);
    assert.equal(stats.rejected, 0);
    assert.deepEqual(stats.admitted, Array.from({ length: 10_000 }, (_, i) => i));
    const rate = (10_000 - 20) / ((stats.until - stats.from) / 1000);
    assert.ok(rate >= 99, `${rate} per second`);
  });
}

test("announced limits: stalls of the network cause no rejection", async () => {
  const f = await connected({ pacing, queue }, announced(20, 100));
  const stats = serve(f, { capacity: 20, perSecond: 100, delayMs: 10, stallEveryMs: 2_000, stallMs: 300 });
  await sendAll(f, 1_000);
  assert.equal(stats.rejected, 0);
  assert.equal(stats.admitted.length, 1_000);
});

test("unknown limits, r * t < 1: in order, one rejection per wait, at 95 % of the rate", async () => {
  const f = await connected({ pacing, queue });
  const stats = serve(f, { capacity: 20, perSecond: 100, delayMs: 2 });
  await sendAll(f, 10_000);
  assert.deepEqual(stats.admitted, Array.from({ length: 10_000 }, (_, i) => i));
  assert.equal(stats.maxRejectedInWait, 1);
  assert.ok(stats.rejected < 60, `${stats.rejected} rejections`);
  const rate = (10_000 - 20) / ((stats.until - stats.from) / 1000);
  assert.ok(rate >= 95, `${rate} per second`);
});

test("unknown limits, r * t > 1: one message at a time, in order", async () => {
  const f = await connected({ pacing, queue });
  const stats = serve(f, { capacity: 20, perSecond: 1000, delayMs: 25 });
  await sendAll(f, 200);
  assert.equal(stats.rejected, 0);
  assert.deepEqual(stats.admitted, Array.from({ length: 200 }, (_, i) => i));
});

test("unknown limits: a slow bucket", async () => {
  const f = await connected({ pacing, queue });
  const stats = serve(f, { capacity: 20, perSecond: 5, delayMs: 60 });
  await sendAll(f, 400);
  assert.equal(stats.maxRejectedInWait, 1);
  assert.deepEqual(stats.admitted, Array.from({ length: 400 }, (_, i) => i));
  const rate = (400 - 20) / ((stats.until - stats.from) / 1000);
  assert.ok(rate >= 4.75, `${rate} per second`);
});

test("a bucket that other connections use: messages are sent one at a time after a rejection", async () => {
  const f = await connected({ pacing, queue }, announced(20, 100, "user"));
  const stats = serve(f, { capacity: 20, perSecond: 50, delayMs: 5 });
  await sendAll(f, 300);
  assert.equal(new Set(stats.admitted).size, 300);
  assert.ok(stats.maxRejectedInWait <= 2, `${stats.maxRejectedInWait}`);
});

test("a type without announced cost is sent one at a time", async () => {
  const f = await connected({ pacing }, announced(20, 100, "connection", { A: 1, B: 0 }));
  void f.client.sendWithAck("B", 1);
  void f.client.sendWithAck("B", 2);
  assert.equal(f.first.all("B").length, 1);
  f.first.answer(f.first.last("B"), "$ws:ack");
  assert.equal(f.first.all("B").length, 2);
});

test("rule 40: a message above the capacity fails at once", async () => {
  const f = await connected({ pacing }, announced(20, 100, "connection", { A: 21, B: 20 }, { B: 1 }));
  for (const type of ["A", "B"]) {
    const { error } = (await outcome(f.client.sendWithAck(type, 1)))!;
    assert.deepEqual([error.code, error.retryAfterMs], ["FAILED_PRECONDITION", null]);
  }
  assert.equal(f.first.all("A").length, 0);
});

test("rule 39: nothing is sent behind a message of unknown cost until its outcome is known", async () => {
  const f = await connected({ pacing }, announced(20, 100, "connection", { A: 1, FIND: null }));
  void f.client.call("FIND", 1);
  void f.client.sendWithAck("A", 2);
  assert.deepEqual(f.first.sent.slice(1).map((s) => s.type), ["FIND"]);
  f.first.answer(f.first.last("FIND"), "$ws:ack");
  await f.clock.advance(10);
  assert.equal(f.first.all("A").length, 0, "the bucket may be empty");
  await f.clock.advance(1);
  assert.equal(f.first.all("A").length, 1);
});

test("rule 40: 20,000 messages above the capacity fail without recursion", async () => {
  const f = createFixture({ pacing, queue: { maxMessages: 30_000 } });
  for (let i = 0; i < 20_000; i++) void f.client.sendWithAck("A", i);
  await f.greet(announced(20, 100, "connection", { A: 21 }));
  assert.equal(f.socket.all("A").length, 0);
  assert.deepEqual(f.errors, []);
});

test("an unknown cost may have emptied the bucket until its message has arrived", async () => {
  const f = await connected({ pacing }, announced(20, 100, "connection", { A: 1, FIND: null }));
  for (let i = 0; i < 15; i++) void f.client.sendWithAck("A", i);
  f.first.answer(f.first.last("A"), "$ws:ack");
  void f.client.call("FIND", 1);
  await f.clock.advance(100);
  f.first.answer(f.first.last("FIND"), "$ws:ack");
  void f.client.sendWithAck("A", 15);
  assert.equal(f.first.all("A").length, 15);
  await f.clock.advance(11);
  assert.equal(f.first.all("A").length, 16);
});

test("after the rejection of a message that the model admits, one message is sent at a time", async () => {
  const f = await connected({ pacing }, announced(20, 100));
  for (let i = 0; i < 3; i++) void f.client.sendWithAck("A", i);
  const limit = { retryable: true, retryAfterMs: 100, details: { kind: "rate", observed: 1, limit: 20 } };
  for (const sent of f.first.all("A")) f.first.reject(sent, "RESOURCE_EXHAUSTED", limit);
  await f.clock.advance(500);
  assert.deepEqual(f.first.all("A").map((s) => s.payload), [0, 1, 2, 0]);
  f.first.answer(f.first.last("A"), "$ws:ack");
  assert.deepEqual(f.first.all("A").map((s) => s.payload), [0, 1, 2, 0, 1]);
});

test("rule 42: the greeting and heartbeats are counted", async () => {
  const f = await connected({ pacing }, announced(3, 0.001, "connection", { A: 1, "$ws:hello": 1, __heartbeat: 1 }));
  await f.clock.advance(25_000);
  f.first.receive("__heartbeat_ack");
  void f.client.sendWithAck("A", 1);
  void f.client.sendWithAck("A", 2);
  assert.equal(f.first.all("A").length, 1);
});

test("a slow bucket of unknown level is tried by one message", async () => {
  const f = await connected({ pacing }, announced(5, 0.1, "user"));
  void f.client.sendWithAck("A", 1);
  void f.client.sendWithAck("A", 2);
  assert.equal(f.first.all("A").length, 1);
  f.first.answer(f.first.last("A"), "$ws:ack");
  assert.equal(f.first.all("A").length, 2);
  f.first.reject(f.first.last("A"), "RESOURCE_EXHAUSTED", { retryable: true, retryAfterMs: 9_000, details: { kind: "rate", observed: 1, limit: 5 } });
  assert.equal(f.client.nextAllowedAt("A"), f.clock.now() + 9_000);
  await f.clock.advance(8_999);
  assert.equal(f.first.all("A").length, 2);
  await f.clock.advance(1);
  assert.equal(f.first.all("A").length, 3);
});

test("without pacing, a rejection reaches the caller, and nothing is known about limits", async () => {
  const f = await connected({}, announced(2, 1));
  const sent = outcome(f.client.sendWithAck("A", 1));
  f.first.reject(f.first.last("A"), "RESOURCE_EXHAUSTED", { retryable: true, retryAfterMs: 1_250, details: { kind: "rate", observed: 1, limit: 20 } });
  assert.equal((await sent)?.error.retryAfterMs, 1_250);
  assert.equal(f.client.nextAllowedAt("A"), undefined);
});

test("nextAllowedAt follows the announced limits", async () => {
  const f = await connected({ pacing }, announced(2, 1));
  void f.client.sendWithAck("A", 1);
  void f.client.sendWithAck("A", 2);
  const at = f.client.nextAllowedAt("A")!;
  assert.ok(at - f.clock.now() > 999 && at - f.clock.now() < 1_010);
  for (const sent of f.first.all("A")) f.first.answer(sent, "$ws:ack");
  await f.clock.advance(1_010);
  assert.equal(f.client.nextAllowedAt("A"), undefined);
});

test("rule 38: a paced message that cannot succeed is rejected, others wait", async () => {
  const f = await connected({ pacing }, announced(1000, 100, "connection", { A: 1, B: 1, ASK: 1 }));
  const one = f.client.sendWithAck("A", 1);
  const two = f.client.sendWithAck("A", 2);
  const [first, second] = f.first.all("A");
  f.first.reject(first!, "RESOURCE_EXHAUSTED", { retryable: false, retryAfterMs: null });
  f.first.reject(second!, "RESOURCE_EXHAUSTED", { retryable: true, retryAfterMs: 500, details: { kind: "quota" } });
  assert.equal((await outcome(one))?.error.retryAfterMs, null);
  await f.clock.advance(499);
  assert.equal(f.first.all("A").length, 2);
  await f.clock.advance(1);
  f.first.answer(f.first.last("A"), "$ws:ack");
  assert.deepEqual(await outcome(two), { value: undefined });
});

test("rule 24: a paced call above the concurrency waits for a moment", async () => {
  const f = await connected({ pacing }, announced(1000, 100, "connection", { A: 1, B: 1, ASK: 1 }));
  const call = f.client.call("ASK");
  f.first.reject(f.first.last("ASK"), "RESOURCE_EXHAUSTED", { retryable: true, details: { kind: "in_flight", observed: 65, limit: 64 } });
  await f.clock.advance(1_000);
  assert.equal(f.first.all("ASK").length, 2);
  f.first.answer(f.first.last("ASK"), "ANSWER", 1);
  assert.deepEqual(await outcome(call), { value: 1 });
});

test("rule 24: a paced call above the concurrency is sent when another call has settled", async () => {
  const f = await connected({ pacing }, announced(1000, 100, "connection", { ASK: 1 }));
  void f.client.call("ASK", 1);
  void f.client.call("ASK", 2);
  const [first, second] = f.first.all("ASK");
  f.first.reject(second!, "RESOURCE_EXHAUSTED", { retryable: true, details: { kind: "in_flight", observed: 2, limit: 1 } });
  assert.equal(f.first.all("ASK").length, 2);
  f.first.answer(first!, "ANSWER");
  assert.deepEqual(f.first.all("ASK").map((s) => s.payload), [1, 2, 2]);
});

test("an error of a handler is not repeated", async () => {
  const f = await connected({ pacing }, announced(1000, 100, "connection", { A: 1, B: 1, ASK: 1 }));
  const call = outcome(f.client.call("ASK"));
  f.first.answer(f.first.last("ASK"), "$ws:ack");
  f.first.reject(f.first.last("ASK"), "UNAVAILABLE", { retryable: true, retryAfterMs: 10 });
  assert.equal((await call)?.error.code, "UNAVAILABLE");
});

test("rejected messages are sent again before those that waited behind them", async () => {
  const f = await connected({ pacing }, announced(1000, 100, "connection", { A: 1, B: 1, ASK: 1 }));
  for (let i = 0; i < 3; i++) void f.client.sendWithAck("A", i);
  const sent = f.first.all("A");
  const limit = { retryable: true, retryAfterMs: 100, details: { kind: "rate", observed: 1, limit: 20 } };
  f.first.reject(sent[2]!, "RESOURCE_EXHAUSTED", limit);
  f.first.reject(sent[1]!, "RESOURCE_EXHAUSTED", limit);
  void f.client.sendWithAck("B", 9);
  await f.clock.advance(100);
  f.first.answer(f.first.last("A"), "$ws:ack");
  await f.clock.advance(200);
  f.first.answer(f.first.last("A"), "$ws:ack");
  assert.deepEqual(f.first.sent.slice(4).map((s) => s.payload), [1, 2, 9]);
});

test("a new connection forgets what the old one learned", async () => {
  const f = createFixture({ pacing });
  void f.client.connect();
  await f.greet(announced(1, 1));
  void f.client.sendWithAck("A", 1);
  assert.ok(f.client.nextAllowedAt("A"));
  f.socket.end(1006);
  await f.clock.advance(1_000);
  await settled();
  f.socket.open();
  f.socket.answer(f.socket.last("$ws:hello"), "$ws:welcome", welcome);
  assert.equal(f.client.nextAllowedAt("A"), undefined);
});

const hours = { retryable: true, retryAfterMs: 5 * 3_600_000, details: { kind: "rate", observed: 1, limit: 20 } };

for (const [name, limits] of [["nothing announced", {}], ["a bucket for each type", { limits: ["A", "B", "ASK"].map((type) => ({ capacity: 20, refill: 100, refillMs: 1000, scope: "connection", buckets: [{ costs: { [type]: 1 } }] })) }]] as const) {
  test(`a rejection for five hours delays its type alone, also on the next connection: ${name}`, async () => {
    const f = await connected({ pacing, queue: { maxWaitMs: 6 * 3_600_000 } }, limits);
    const waits = f.client.sendWithAck("A", 1);
    f.first.reject(f.first.last("A"), "RESOURCE_EXHAUSTED", hours);
    void f.client.sendWithAck("A", 2);
    for (const connection of [1, 2]) {
      void f.client.sendWithAck("B", connection);
      void f.client.call("ASK", connection);
      f.client.subscribe(`room/${connection}`);
      const types = f.socket.sent.map((s) => s.type);
      for (const type of ["B", "ASK", "$ws:subscribe"]) assert.ok(types.includes(type), `${type} waits on connection ${connection}`);
      assert.equal(f.socket.all("A").length, connection === 1 ? 1 : 0);
      for (const type of ["B", "ASK"]) f.socket.answer(f.socket.last(type), "$ws:ack");
      if (connection === 2) break;
      f.socket.end(1006);
      await f.clock.advance(1_000);
      await f.greet(limits);
    }
    const at = f.client.nextAllowedAt("A")!;
    assert.ok(at > f.clock.now() + 4.9 * 3_600_000 && at < f.clock.now() + 5 * 3_600_000);
    f.client.close();
    assert.equal((await outcome(waits))?.error.code, "CANCELLED");
  });
}

test("the wait of a rejected message ends with it", async () => {
  const f = await connected({ pacing, queue: { maxWaitMs: 1_000 } });
  const controller = new AbortController();
  const canceled = f.client.sendWithAck("A", 1, { signal: controller.signal });
  const expires = f.client.sendWithAck("B", 1);
  const call = f.client.call("ASK", 1, { timeoutMs: 2_000 });
  for (const type of ["A", "B", "ASK"]) f.first.reject(f.first.last(type), "RESOURCE_EXHAUSTED", { retryable: true, retryAfterMs: 5 * 3_600_000, details: { kind: "quota" } });
  controller.abort();
  assert.equal((await outcome(canceled))?.error.code, "CANCELLED");
  await f.clock.advance(1_000);
  assert.equal((await outcome(expires))?.error.code, "DEADLINE_EXCEEDED");
  await f.clock.advance(1_000);
  assert.equal((await outcome(call))?.error.code, "DEADLINE_EXCEEDED");
  for (const type of ["A", "B", "ASK"]) {
    void f.client.sendWithAck(type, 2);
    assert.equal(f.first.last(type).payload, 2, "what was behind it is sent");
  }
});

test("messages of one bucket keep their order, whatever their types", async () => {
  const f = await connected({ pacing }, announced(4, 100, "connection", { A: 3, B: 1, C: 0 }));
  void f.client.sendWithAck("A", 1);
  void f.client.sendWithAck("A", 2);
  void f.client.sendWithAck("B", 3);
  assert.deepEqual(f.first.sent.slice(1).map((s) => s.payload), [1], "B would take what A waits for");
  await f.clock.advance(30);
  f.first.answer(f.first.last("A"), "$ws:ack");
  await f.clock.advance(60);
  assert.deepEqual(f.first.sent.slice(1).map((s) => s.payload), [1, 2, 3]);
});

test("a call that waits after a rejection and ends has the rejection as the cause", async () => {
  const f = await connected({ pacing });
  const call = f.client.call("ASK", 1, { timeoutMs: 500 });
  f.first.reject(f.first.last("ASK"), "RESOURCE_EXHAUSTED", { details: { kind: "rate", observed: 1, limit: 1 }, retryable: true, retryAfterMs: 60_000 });
  await f.clock.advance(1_000);
  const { error } = (await outcome(call))!;
  assert.deepEqual([error.code, error.cause?.code, error.cause?.details?.kind], ["DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "rate"]);
  const other = f.client.call("OTHER", 1, { timeoutMs: 500 });
  await f.clock.advance(1_000);
  assert.equal((await outcome(other))?.error.cause, undefined);
});

import assert from "node:assert/strict";
import { test } from "node:test";

import { pacing } from "../src/pacing.ts";
import { connected, createFixture, outcome, settled, welcome, type Fixture } from "./fixture.ts";
import { stream } from "../src/streams.ts";

// What the client keeps, and work in proportion to the number of messages: with time in proportion to its square, these tests
// would take minutes with PENSTOCK_TESTS=1h, whose messages are ten times as many.

const soak = /\d/.test(process.env.PENSTOCK_TESTS ?? "");
const many = soak ? 100_000 : 10_000;
const connections = soak ? 1_000 : 100;

const limits = { limits: [{ name: "messages", capacity: 1e9, refill: 1, refillMs: 1, scope: "connection", buckets: [{ costs: { A: 1, EXPORT: 1, "$ws:credit": 1 } }] }] };

/** Makes the socket forget what was sent, except for the last message. */
function forgetSent({ socket }: Fixture): void {
  socket.sent.splice(0, socket.sent.length - 1);
  socket.raw.length = 0;
}

const idle = { waiting: 0, unanswered: 0, topics: [] };

for (const [name, options, more] of [["without pacing", {}, {}], ["with pacing, one at a time", { pacing }, {}], ["with pacing", { pacing }, limits]] as const)
  test(`${many} messages that wait are sent and confirmed: ${name}`, { timeout: 60_000 }, async () => {
    const f = createFixture({ ...options, queue: { maxMessages: 200_000, maxBytes: 1e9 } });
    let sent = 0;
    for (let n = 0; n < many; n++) f.client.sendWithAck("A", n).then(() => sent++);
    assert.equal(f.client.inspect().waiting, many);
    await f.greet(more);
    for (let at = 1; at < f.socket.sent.length; at++) f.socket.answer(f.socket.sent[at]!, "$ws:ack");
    await settled();
    assert.equal(sent, many);
    assert.deepEqual(f.client.inspect(), idle);
  });

test(`${many} messages that wait are canceled from the middle`, { timeout: 60_000 }, async () => {
  const f = createFixture({ queue: { maxMessages: 200_000, maxBytes: 1e9 } });
  const controllers = Array.from({ length: many }, () => new AbortController());
  const first = controllers.map(({ signal }, n) => f.client.sendWithAck(n % 2 ? "A" : "B", n, { signal }))[0]!;
  for (const controller of controllers.toReversed()) controller.abort();
  assert.equal((await outcome(first))?.error.code, "CANCELLED");
  assert.equal(f.client.inspect().waiting, 0);
});

test(`a stream of ${many} items leaves nothing`, { timeout: 60_000 }, async () => {
  const f = await connected({ pacing }, limits);
  const items = stream(f.client, "EXPORT", {}, { credit: 100 });
  let next = items.next();
  const { correlationId } = f.first.last("EXPORT").meta;
  for (let n = 0; n < many; n++) {
    f.first.receive("$ws:rpc-progress", n, { correlationId });
    assert.deepEqual(await next, { done: false, value: n });
    next = items.next();
    forgetSent(f);
  }
  f.first.receive("EXPORTED", undefined, { correlationId });
  assert.equal((await next).done, true);
  assert.deepEqual(f.client.inspect(), idle);
});

test(`${connections} connections leave nothing`, { timeout: 60_000 }, async () => {
  const f = await connected({ pacing, resume: true }, { ...limits, session: { token: "t", resumeWithinMs: 60_000 } });
  f.client.subscribe("room/go");
  f.first.answer(f.first.last("$ws:subscribe"), "$ws:subscribed", { topic: "room/go" });
  let lost = 0;
  for (let n = 0; n < connections; n++) {
    f.client.sendWithAck("A", n).catch(() => lost++);
    f.client.call("ASK", n).catch(() => lost++);
    f.socket.end(1006);
    await f.clock.advance(1_000);
    f.socket.open();
    f.socket.answer(f.socket.last("$ws:hello"), "$ws:welcome", { ...welcome, ...limits });
    f.socket.answer(f.socket.last("$ws:resume"), "$ws:resumed", { session: { token: "t", resumeWithinMs: 60_000 }, topics: [{ topic: "room/go", recovered: true }] });
    await f.clock.advance(10_000);
    f.socket.receive("__heartbeat_ack");
    f.sockets.splice(0, f.sockets.length - 1);
    assert.ok(f.clock.timers < 10, `${f.clock.timers} timers`);
  }
  assert.equal(lost, 2 * connections);
  assert.deepEqual(f.client.inspect(), { ...idle, topics: [{ topic: "room/go", positions: true, state: false, presence: false, hidden: undefined }] });
});

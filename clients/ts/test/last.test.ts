import assert from "node:assert/strict";
import { test } from "node:test";

import type { Position } from "../src/index.ts";
import { connected, createFixture, type Fixture, type TestSocket } from "./fixture.ts";

const topic = "room/go";
const asked = { topic, positions: true, state: false, presence: false };
const at = (offset: number, epoch = "K7"): Position => ({ epoch, offset });
const session = { token: "id.one", resumeWithinMs: 120_000 };

/** Accepts the latest subscription, and publishes the messages that follow its answer. */
function accept(socket: TestSocket, answer: object, first = 1, last = 0): void {
  socket.answer(socket.last("$ws:subscribe"), "$ws:subscribed", { topic, recovered: true, ...answer });
  publish(socket, first, last);
}

function publish(socket: TestSocket, first: number, last = first): void {
  for (let offset = first; offset <= last; offset++) socket.receive("SAID", offset, { topic, offset });
}

const payloads = (socket: TestSocket) => socket.all("$ws:subscribe").map(({ payload }) => payload);

/** A subscription, and what it has received, with "lost" for each loss. */
function follow(f: Fixture, options: { last?: number; since?: Position } = {}) {
  const got: unknown[] = [];
  const sub = f.client.subscribe(topic, { on: { SAID: (p) => got.push(p) }, onLoss: () => got.push("lost"), ...options });
  return { got, sub };
}

test("a first subscription receives the latest publications, and then everything", async () => {
  const f = await connected();
  const one = follow(f, { last: 3 });
  assert.deepEqual(payloads(f.first), [{ ...asked, last: 3 }]);
  assert.equal(one.sub.position, undefined);
  accept(f.first, at(7), 8, 11);
  assert.deepEqual(one.got, [8, 9, 10, 11]);
  assert.deepEqual(one.sub.position, at(11));
  assert.equal(f.first.all("$ws:subscribe").length, 1);
});

test("a reconnection presents the position, and repeats nothing", async () => {
  const f = await connected();
  const one = follow(f, { last: 3 });
  accept(f.first, at(7), 8, 10);
  f.first.end(1006);
  await f.clock.advance(1_000);
  await f.greet();
  assert.deepEqual(payloads(f.socket), [{ ...asked, ...at(10), last: 3 }]);
  accept(f.socket, at(10), 11, 12);
  assert.deepEqual(one.got, [8, 9, 10, 11, 12]);
});

test("the latest publications follow a loss", async () => {
  const f = await connected();
  const one = follow(f, { last: 3 });
  accept(f.first, at(7), 8, 10);
  f.first.end(1006);
  await f.clock.advance(1_000);
  await f.greet();
  accept(f.socket, { ...at(57), recovered: false }, 58, 61);
  assert.deepEqual(one.got, [8, 9, 10, "lost", 58, 59, 60, 61]);
});

test("a second subscription receives the latest ones, and the first one receives nothing twice", async () => {
  const f = await connected();
  const one = follow(f, { last: 3 });
  accept(f.first, at(7), 8, 11);
  const two = follow(f, { last: 2 });
  assert.deepEqual(payloads(f.first)[1], { ...asked, last: 3 }, "the largest number, and no position");
  publish(f.first, 12); // follows the answer again
  assert.deepEqual([one.sub.position, two.sub.position], [at(11), undefined]);
  accept(f.first, at(9), 10, 13);
  assert.deepEqual([one.got, two.got], [[8, 9, 10, 11, 12, 13], [10, 11, 12, 13]]);
  assert.equal(f.first.all("$ws:subscribe").length, 2);

  one.sub.unsubscribe();
  f.first.end(1006);
  await f.clock.advance(1_000);
  await f.greet();
  assert.deepEqual(payloads(f.socket), [{ ...asked, ...at(13), last: 2 }], "the largest number of those that are left");
});

test("a second subscription whose latest publications begin later receives what the others have not received, too", async () => {
  const f = await connected();
  const one = follow(f);
  accept(f.first, at(7), 8, 8);
  const two = follow(f, { last: 2 });
  accept(f.first, at(20));
  assert.deepEqual(payloads(f.first)[2], { ...asked, ...at(8), last: 2 }, "the first one goes on");
  publish(f.first, 21); // follows the answer
  accept(f.first, at(8), 9, 22);
  const rest = Array.from({ length: 14 }, (_, i) => i + 9);
  assert.deepEqual([one.got, two.got], [[8, ...rest], rest]);
});

test("a second subscription of a topic whose epoch has ended meanwhile", async () => {
  const f = await connected();
  const one = follow(f);
  accept(f.first, at(7), 8, 8);
  const two = follow(f, { last: 2 });
  accept(f.first, at(3, "NEW"));
  assert.deepEqual(payloads(f.first)[2], { ...asked, ...at(8), last: 2 }, "for the loss of the first one");
  accept(f.first, { ...at(3, "NEW"), recovered: false }, 4, 6);
  assert.deepEqual([one.got, two.got], [[8, "lost", 4, 5, 6], ["lost", 4, 5, 6]]);
});

test("with a position, the latest publications follow only if what was missed is gone", async () => {
  const f = await connected();
  const one = follow(f, { since: at(5), last: 3 });
  assert.deepEqual(payloads(f.first), [{ ...asked, ...at(5), last: 3 }]);
  accept(f.first, at(5), 6, 20);
  assert.deepEqual(one.got, Array.from({ length: 15 }, (_, i) => i + 6));

  const two = follow(f, { since: at(2), last: 3 });
  assert.deepEqual(payloads(f.first)[1], { ...asked, ...at(2), last: 3 });
  accept(f.first, { ...at(17), recovered: false }, 18, 21);
  assert.deepEqual(two.got, ["lost", 18, 19, 20, 21]);
  assert.deepEqual(one.got.slice(-2), [20, 21]);
});

test("subscriptions before the connection begin at the earliest place", async () => {
  const f = createFixture();
  const [plain, last, since] = [follow(f), follow(f, { last: 4 }), follow(f, { since: at(2) })];
  await f.greet();
  accept(f.socket, at(6));
  while (payloads(f.socket).at(-1).offset !== 2) accept(f.socket, at(6));
  accept(f.socket, at(2), 3, 8);
  for (const { got } of [plain, last, since]) assert.deepEqual(got, [3, 4, 5, 6, 7, 8], "nothing is missing, and nothing comes twice");
});

test("a request for the latest ones that is rejected for now is repeated, before others are served", async () => {
  const f = await connected();
  const one = follow(f, { last: 4 });
  f.first.reject(f.first.last("$ws:subscribe"), "RESOURCE_EXHAUSTED", { retryable: true, retryAfterMs: 1_000 });
  const two = follow(f, { since: at(9) });
  await f.clock.advance(2_000);
  assert.deepEqual(payloads(f.first).slice(1), [{ ...asked, last: 4 }]);
  accept(f.first, at(6), 7, 11);
  assert.deepEqual([one.got, two.got], [[7, 8, 9, 10, 11], [10, 11]]);
});

test("a connection that is lost before the answer", async () => {
  const f = await connected();
  const one = follow(f);
  accept(f.first, at(7), 8, 8);
  const two = follow(f, { last: 2 });
  f.first.end(1006);
  await f.clock.advance(1_000);
  await f.greet();
  assert.deepEqual(payloads(f.socket), [{ ...asked, last: 2 }]);
  accept(f.socket, at(7), 8, 10);
  assert.deepEqual([one.got, two.got], [[8, 9, 10], [8, 9, 10]]);
});

test("a session that is resumed asks for the latest ones once more, and delivers them once", async () => {
  const f = await connected({ resume: true }, { session });
  f.first.end(1006);
  const one = follow(f, { last: 2 });
  await f.clock.advance(1_000);
  await f.greet();
  assert.deepEqual(f.socket.last("$ws:resume").payload.topics, [{ ...asked, last: 2 }]);
  f.socket.answer(f.socket.last("$ws:resume"), "$ws:resumed", { session, topics: [{ topic, ...at(7), recovered: true }] });
  publish(f.socket, 8, 9);
  accept(f.socket, at(7), 8, 10);
  assert.deepEqual(one.got, [8, 9, 10]);
});

test("the state replaces the latest publications", async () => {
  const f = await connected();
  const states: number[] = [];
  const sub = f.client.subscribe(topic, { last: 2, onReset: (n) => states.push(n) });
  accept(f.first, { ...at(9), state: 1 });
  f.first.receive("SAID", 3, { topic, offset: 3 });
  publish(f.first, 10);
  assert.deepEqual([states, sub.position, f.first.all("$ws:subscribe").length], [[1], at(10), 1]);
});

test("a topic without a history", async () => {
  const f = await connected();
  const one = follow(f, { last: 2 });
  f.first.answer(f.first.last("$ws:subscribe"), "$ws:subscribed", { topic });
  const two = follow(f, { last: 5 });
  for (const s of f.first.all("$ws:subscribe").slice(1)) f.first.answer(s, "$ws:subscribed", { topic });
  f.first.receive("SAID", "hi", { topic });
  assert.deepEqual([one.got, two.got], [["hi"], ["hi"]]);
  assert.equal(f.first.all("$ws:subscribe").length, 2);
  assert.deepEqual(f.errors.map((error: any) => error.code), ["FAILED_PRECONDITION", "FAILED_PRECONDITION"]);
});

test("a position without an epoch is none", async () => {
  const f = await connected();
  const none = { epoch: "", offset: 0 };
  const one = follow(f, { since: none });
  assert.equal(one.sub.position, undefined);
  accept(f.first, at(7), 8, 8);
  assert.deepEqual([one.got, f.first.all("$ws:subscribe").length], [[8], 1]);

  const two = follow(f, { since: none, last: 2 });
  assert.equal(two.sub.position, undefined);
  accept(f.first, at(6), 7, 9);
  assert.deepEqual([one.got, two.got], [[8, 9], [7, 8, 9]]);
  assert.deepEqual(two.sub.position, at(9));
});

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Position } from "../src/index.ts";
import { connected, createFixture, type Fixture, type TestSocket } from "./fixture.ts";

const topic = "room/go";
const asked = { topic, positions: true, state: false, presence: false };
const at = (offset: number, epoch = "K7"): Position => ({ epoch, offset });

/** Accepts the latest subscription. */
function accept(socket: TestSocket, answer: object): void {
  socket.answer(socket.last("$ws:subscribe"), "$ws:subscribed", { topic, recovered: true, ...answer });
}

function publish(socket: TestSocket, first: number, last = first): void {
  for (let offset = first; offset <= last; offset++) socket.receive("SAID", offset, { topic, offset });
}

/** A subscription, and what it has received and lost. */
function follow(f: Fixture, since?: Position) {
  const said: unknown[] = [];
  const losses: unknown[] = [];
  const sub = f.client.subscribe(topic, { on: { SAID: (p) => said.push(p) }, onLoss: ({ ended }) => losses.push(ended ?? "lost"), ...(since && { since }) });
  return { said, losses, sub };
}

/** A client whose first subscription has handled 18 to 20. */
async function atTwenty() {
  const f = await connected();
  const all: unknown[] = [];
  f.client.on("SAID", (p) => all.push(p));
  const one = follow(f);
  accept(f.first, at(17));
  publish(f.first, 18, 20);
  return { ...f, one, all };
}

test("a second subscription begins at its own position, which is older, and the first one receives nothing twice", async () => {
  const f = await atTwenty();
  const two = follow(f as any, at(18));
  assert.deepEqual(f.first.last("$ws:subscribe").payload, { ...asked, ...at(18) });
  publish(f.first, 21); // follows the answer again
  assert.deepEqual(f.one.sub.position, at(20));
  accept(f.first, at(18));
  publish(f.first, 19);
  assert.deepEqual([f.one.sub.position, two.sub.position], [at(20), at(19)]);
  publish(f.first, 20, 22);
  assert.deepEqual(two.said, [19, 20, 21, 22]);
  assert.deepEqual([f.one.said, f.all], [[18, 19, 20, 21, 22], [18, 19, 20, 21, 22]]);
  assert.deepEqual([f.one.losses, two.losses], [[], []]);
  assert.deepEqual([f.one.sub.position, two.sub.position], [at(22), at(22)]);
  assert.equal(f.first.all("$ws:subscribe").length, 2);
});

test("a connection that is lost while a second subscription catches up loses and repeats nothing", async () => {
  const f = await atTwenty();
  const two = follow(f as any, at(17));
  accept(f.first, at(17));
  publish(f.first, 18);
  f.first.end(1006);
  await f.clock.advance(1_000);
  const second = await f.greet();
  assert.deepEqual(second.last("$ws:subscribe").payload, { ...asked, ...at(18) });
  accept(second, at(18));
  publish(second, 19, 21);
  assert.deepEqual([f.one.said, two.said], [[18, 19, 20, 21], [18, 19, 20, 21]]);
});

test("a second subscription whose position is gone loses alone", async () => {
  const f = await atTwenty();
  const two = follow(f as any, at(2));
  accept(f.first, { ...at(25), recovered: false });
  assert.deepEqual(f.first.last("$ws:subscribe").payload, { ...asked, ...at(20) }, "the others go on");
  accept(f.first, at(20));
  publish(f.first, 21, 25);
  assert.deepEqual([f.one.losses, two.losses], [[], ["lost"]]);
  assert.deepEqual([f.one.said.slice(3), two.said], [[21, 22, 23, 24, 25], [21, 22, 23, 24, 25]]);
});

test("a second subscription with a position of an epoch that has ended loses alone", async () => {
  const f = await atTwenty();
  const two = follow(f as any, at(9, "OLD"));
  assert.deepEqual(f.first.last("$ws:subscribe").payload, { ...asked, ...at(9, "OLD") });
  accept(f.first, { ...at(20), ended: at(4, "OLD") });
  accept(f.first, at(20));
  publish(f.first, 21);
  assert.deepEqual([f.one.losses, two.losses], [[], [at(4, "OLD")]]);
  assert.deepEqual([f.one.said.at(-1), two.said], [21, [21]]);
});

test("a second subscription that begins at a later position skips what precedes it", async () => {
  const f = await atTwenty();
  const two = follow(f as any, at(22));
  publish(f.first, 21, 23);
  assert.deepEqual([f.one.said.slice(3), two.said], [[21, 22, 23], [23]]);
  assert.equal(f.first.all("$ws:subscribe").length, 1, "nothing is asked for");
});

test("a third subscription that begins earlier, while the second one catches up", async () => {
  const f = await atTwenty();
  const two = follow(f as any, at(18));
  const three = follow(f as any, at(16));
  accept(f.first, at(18));
  assert.deepEqual(f.first.last("$ws:subscribe").payload, { ...asked, ...at(16) });
  accept(f.first, at(16));
  publish(f.first, 17, 21);
  assert.deepEqual([f.one.said, two.said, three.said], [[18, 19, 20, 21], [19, 20, 21], [17, 18, 19, 20, 21]]);
});

test("a second subscription before the answer to the first one, or before the connection, begins at its position, too", async () => {
  const busy = await connected();
  const one = follow(busy);
  const two = follow(busy, at(15));
  accept(busy.first, at(17));
  assert.deepEqual(busy.first.last("$ws:subscribe").payload, { ...asked, ...at(15) });
  accept(busy.first, at(15));
  publish(busy.first, 16, 18);
  assert.deepEqual([one.said, two.said], [[18], [16, 17, 18]]);

  const f = createFixture();
  const [late, early] = [follow(f, at(9)), follow(f, at(7))];
  await f.greet();
  for (const offset of [7, 9]) if (f.socket.last("$ws:subscribe").payload.offset === offset) accept(f.socket, at(offset));
  if (f.socket.last("$ws:subscribe").payload.offset === 7) accept(f.socket, at(7));
  publish(f.socket, 8, 10);
  assert.deepEqual([late.said, early.said], [[10], [8, 9, 10]]);
});

test("a session that is resumed while a second subscription waits for its position", async () => {
  const f = await connected({ resume: true }, { session: { token: "id.one", resumeWithinMs: 120_000 } });
  const one = follow(f);
  accept(f.first, at(17));
  f.first.end(1006);
  const two = follow(f, at(12));
  await f.clock.advance(1_000);
  await f.greet();
  assert.deepEqual(f.socket.last("$ws:resume").payload.topics, [{ ...asked, ...at(17) }]);
  f.socket.answer(f.socket.last("$ws:resume"), "$ws:resumed", { session: { token: "id.two", resumeWithinMs: 120_000 }, topics: [{ topic, ...at(17), recovered: true }] });
  assert.deepEqual(f.socket.last("$ws:subscribe").payload, { ...asked, ...at(12) });
  accept(f.socket, at(12));
  publish(f.socket, 13, 18);
  assert.deepEqual([one.said, two.said], [[18], [13, 14, 15, 16, 17, 18]]);
});

test("a position for a topic without a history has no effect", async () => {
  const f = await connected();
  const one = follow(f);
  f.first.answer(f.first.last("$ws:subscribe"), "$ws:subscribed", { topic });
  const two = follow(f, at(3));
  f.first.receive("SAID", "hi", { topic });
  assert.deepEqual([one.said, two.said, two.sub.position], [["hi"], ["hi"], undefined]);
  assert.equal(f.first.all("$ws:subscribe").length, 1);
});

test("a new epoch ends what subscriptions skip", async () => {
  const f = await atTwenty();
  const two = follow(f as any, at(18));
  accept(f.first, at(18));
  f.first.receive("$ws:position", { topic, ...at(5, "NEW"), ended: at(20) });
  publish(f.first, 6);
  assert.deepEqual([f.one.said.at(-1), two.said], [6, [6]]);
});

test("a second subscription receives nothing before its position is requested, which may have to wait", async () => {
  const f = await atTwenty();
  f.client.subscribe("room/busy");
  f.first.reject(f.first.last("$ws:subscribe"), "RESOURCE_EXHAUSTED", { retryable: true, retryAfterMs: 1_000 });
  const two = follow(f as any, at(18));
  publish(f.first, 21);
  assert.deepEqual([f.one.said.at(-1), two.said, two.sub.position], [21, [], at(18)]);
  await f.clock.advance(2_000);
  for (const sent of f.first.all("$ws:subscribe").slice(-2)) {
    if (sent.payload.topic === topic) f.first.answer(sent, "$ws:subscribed", { topic, ...sent.payload, recovered: true });
  }
  publish(f.first, 19, 22);
  assert.deepEqual([f.one.said, two.said], [[18, 19, 20, 21, 22], [19, 20, 21, 22]]);
});

import assert from "node:assert/strict";
import { test } from "node:test";

import { connected, createFixture, settled, type TestSocket } from "./fixture.ts";

const topic = "room/go";

/** Accepts the latest subscription. */
function accept(socket: TestSocket, answer: object = { epoch: "K7", offset: 17, recovered: true }): void {
  socket.answer(socket.last("$ws:subscribe"), "$ws:subscribed", { topic, ...answer });
}

function publish(socket: TestSocket, offset: number, payload: unknown = offset): void {
  socket.receive("SAID", payload, { topic, offset });
}

test("a subscription asks for positions, and its handlers receive its publications", async () => {
  const f = await connected();
  const said: unknown[] = [];
  const all: unknown[] = [];
  let ready = 0;
  const subscription = f.client.subscribe(topic, { on: { SAID: (p, meta) => said.push([p, meta.offset]) }, onReady: () => ready++ });
  f.client.on("SAID", (p) => all.push(p));
  assert.deepEqual(f.first.last("$ws:subscribe").payload, { topic, positions: true, state: false, presence: false });
  accept(f.first);
  assert.equal(ready, 1);
  publish(f.first, 18);
  f.first.receive("SAID", "other", { topic: "room/other", offset: 4 });
  f.first.receive("SAID", "direct");
  assert.deepEqual(said, [[18, 18]]);
  assert.deepEqual(all, [18, "other", "direct"]);
  assert.deepEqual(subscription.position, { epoch: "K7", offset: 18 });
});

test("a returning client presents its position, and receives what it has missed once", async () => {
  const f = await connected();
  const said: unknown[] = [];
  f.client.subscribe(topic, { on: { SAID: (p) => said.push(p) } });
  accept(f.first);
  publish(f.first, 18);
  f.first.end(1006);
  await f.clock.advance(1_000);
  await f.greet();
  assert.deepEqual(f.socket.last("$ws:subscribe").payload, { topic, positions: true, epoch: "K7", offset: 18, state: false, presence: false });
  accept(f.socket, { epoch: "K7", offset: 18, recovered: true });
  publish(f.socket, 19);
  publish(f.socket, 20);
  assert.deepEqual(said, [18, 19, 20]);
});

test("a subscription begins behind a position", async () => {
  const f = createFixture();
  f.client.subscribe(topic, { since: { epoch: "K7", offset: 3 } });
  await f.greet();
  assert.deepEqual(f.socket.last("$ws:subscribe").payload, { topic, positions: true, epoch: "K7", offset: 3, state: false, presence: false });
});

test("a topic without a history", async () => {
  const f = await connected();
  const said: unknown[] = [];
  f.client.subscribe(topic, { on: { SAID: (p) => said.push(p) } });
  f.first.receive("SAID", "before the answer", { topic });
  accept(f.first, {});
  f.first.receive("SAID", "after it", { topic });
  f.first.receive("SAID", "other", { topic: "room/other" });
  assert.deepEqual(said, ["before the answer", "after it"]);
});

test("rule 33: offsets that were seen are dropped, and a gap is recovered before delivery", async () => {
  const f = await connected();
  const said: unknown[] = [];
  f.client.subscribe(topic, { on: { SAID: (p) => said.push(p) } });
  accept(f.first);
  publish(f.first, 18);
  publish(f.first, 18);
  publish(f.first, 20);
  assert.deepEqual(said, [18]);
  assert.equal(f.first.all("$ws:subscribe").length, 2);
  assert.equal(f.first.last("$ws:subscribe").payload.offset, 18);
  accept(f.first, { epoch: "K7", offset: 18, recovered: true });
  for (const offset of [19, 20, 21]) publish(f.first, offset);
  assert.deepEqual(said, [18, 19, 20, 21]);
});

test("rule 34: publications before the answer are ignored, because they follow it", async () => {
  const f = await connected();
  const said: unknown[] = [];
  f.client.subscribe(topic, { on: { SAID: (p) => said.push(p) } });
  accept(f.first);
  publish(f.first, 19);
  publish(f.first, 18);
  publish(f.first, 19);
  accept(f.first, { epoch: "K7", offset: 17, recovered: true });
  publish(f.first, 18);
  publish(f.first, 19);
  assert.deepEqual(said, [18, 19]);
});

test("an ended subscription does not end a later one", async () => {
  const f = await connected();
  const one = f.client.subscribe(topic);
  f.first.reject(f.first.last("$ws:subscribe"), "PERMISSION_DENIED");
  let said = 0;
  f.client.subscribe(topic, { on: { SAID: () => said++ } });
  one.unsubscribe();
  accept(f.first);
  publish(f.first, 18);
  assert.equal(said, 1);
  assert.equal(f.first.all("$ws:unsubscribe").length, 0);
});

test("rule 33: a loss is one event", async () => {
  const f = await connected();
  const losses: unknown[] = [];
  const ofClient: unknown[] = [];
  f.client.onLoss((loss) => ofClient.push(loss));
  f.client.subscribe(topic, { onLoss: (loss) => losses.push(loss) });
  accept(f.first, { epoch: "K7", offset: 17, recovered: false });
  assert.deepEqual(losses, [], "no position was presented");
  f.first.receive("$ws:position", { topic, epoch: "K7", offset: 21, lost: { from: 18, to: 21 } });
  f.first.receive("$ws:position", { topic, epoch: "K7", offset: 22 });
  f.first.receive("$ws:position", { topic, epoch: "P2", offset: 22, ended: { epoch: "K7", offset: 22 } });
  f.first.receive("$ws:position", { topic, epoch: "P2", offset: 30, reset: true });
  f.first.end(1006);
  await f.clock.advance(1_000);
  await f.greet();
  accept(f.socket, { epoch: "P2", offset: 99, recovered: false });
  assert.deepEqual(losses, [
    { topic, lost: { from: 18, to: 21 }, ended: undefined },
    { topic, lost: undefined, ended: { epoch: "K7", offset: 22 } },
    { topic, lost: undefined, ended: undefined },
    { topic, ended: undefined },
  ]);
  assert.equal(ofClient.length, 4);
});

test("rule 32: a handler that fails is reported, and the position advances", async () => {
  const f = await connected();
  let position: number | undefined;
  const subscription = f.client.subscribe(topic, {
    on: {
      SAID() {
        position = subscription.position?.offset;
        throw new Error("broken");
      },
    },
  });
  accept(f.first);
  publish(f.first, 18);
  assert.equal(position, 17, "while the handler runs");
  assert.equal(subscription.position?.offset, 18);
  assert.equal(f.errors.length, 1);
});

test("rule 37: two subscribers share one subscription", async () => {
  const f = await connected();
  const said: string[] = [];
  const one = f.client.subscribe(topic, { on: { SAID: (p) => said.push("one " + p) } });
  const two = f.client.subscribe(topic, { on: { SAID: (p) => said.push("two " + p) } });
  accept(f.first);
  const order: string[] = [];
  const three = f.client.subscribe(topic, { onReady: () => order.push("ready " + three.topic) });
  f.client.subscribe(topic, { onReady: () => order.push("never") }).unsubscribe();
  order.push("returned");
  await settled();
  assert.deepEqual(order, ["returned", "ready " + topic], "it is subscribed");
  three.unsubscribe();
  publish(f.first, 18);
  one.unsubscribe();
  one.unsubscribe();
  publish(f.first, 19);
  assert.deepEqual(said, ["one 18", "two 18", "two 19"]);
  assert.equal(f.first.all("$ws:subscribe").length, 1);
  assert.equal(f.first.all("$ws:unsubscribe").length, 0);
  two.unsubscribe();
  assert.equal(f.first.all("$ws:unsubscribe").length, 1);
});

test("a later subscriber that asks for more is ready with the answer, once", async () => {
  const f = await connected();
  f.client.subscribe(topic);
  accept(f.first);
  let ready = 0;
  f.client.subscribe(topic, { onPresence: () => {}, onReady: () => ready++ });
  await settled();
  assert.equal(ready, 0);
  accept(f.first, { epoch: "K7", offset: 17, recovered: true, members: [] });
  assert.equal(ready, 1);
});

test("rule 30: requests follow from what is wanted, one at a time", async () => {
  const f = await connected();
  const one = f.client.subscribe(topic);
  one.unsubscribe();
  const two = f.client.subscribe(topic);
  two.unsubscribe();
  assert.deepEqual(f.first.sent.slice(1).map((s) => s.type), ["$ws:subscribe"]);
  accept(f.first);
  assert.deepEqual(f.first.sent.slice(1).map((s) => s.type), ["$ws:subscribe", "$ws:unsubscribe"]);
  f.client.subscribe(topic);
  f.first.answer(f.first.last("$ws:unsubscribe"), "$ws:unsubscribed", { topic });
  assert.deepEqual(f.first.sent.slice(1).map((s) => s.type), ["$ws:subscribe", "$ws:unsubscribe", "$ws:subscribe"]);
  f.first.end(1006);
  await f.clock.advance(1_000);
  await f.greet();
  assert.equal(f.socket.all("$ws:subscribe").length, 1);
});

test("rule 36: a rejection for good ends a subscription, others are repeated", async () => {
  const f = await connected();
  const ends: string[] = [];
  f.client.subscribe(topic, { onEnd: (error) => ends.push(error.code) });
  f.first.reject(f.first.last("$ws:subscribe"), "UNAVAILABLE", { retryable: true });
  await f.clock.advance(2_000);
  assert.equal(f.first.all("$ws:subscribe").length, 2);
  f.first.reject(f.first.last("$ws:subscribe"), "PERMISSION_DENIED");
  assert.deepEqual(ends, ["PERMISSION_DENIED"]);
  f.first.end(1006);
  await f.clock.advance(1_000);
  await f.greet();
  assert.equal(f.socket.all("$ws:subscribe").length, 0);
});

test("rule 35: few requests are without an answer at a time, and a limit delays all", async () => {
  const f = await connected();
  for (let i = 0; i < 100; i++) f.client.subscribe("room/" + i);
  assert.equal(f.first.all("$ws:subscribe").length, 16);
  for (const [i, sent] of f.first.all("$ws:subscribe").entries()) {
    if (i === 0) f.first.reject(sent, "RESOURCE_EXHAUSTED", { retryable: true, retryAfterMs: 200 });
    else f.first.answer(sent, "$ws:subscribed", { topic: sent.payload.topic });
  }
  assert.equal(f.first.all("$ws:subscribe").length, 16, "nothing before the delay");
  await f.clock.advance(1_000);
  for (let answered = 16; answered < 101; answered++) {
    const sent = f.first.all("$ws:subscribe")[answered]!;
    f.first.answer(sent, "$ws:subscribed", { topic: sent.payload.topic });
  }
  assert.equal(f.first.all("$ws:subscribe").length, 101);
});

test("the state of a topic precedes its publications", async () => {
  const f = await connected();
  const events: unknown[] = [];
  f.client.subscribe(topic, { onReset: (n) => events.push("state " + n), on: { SAID: (p, meta) => events.push(meta.state ? "state " + p : p) } });
  assert.deepEqual(f.first.last("$ws:subscribe").payload, { topic, positions: true, state: true, presence: false });
  accept(f.first, { epoch: "K7", offset: 17, recovered: false, state: 2 });
  publish(f.first, 3, "a");
  publish(f.first, 17, "b");
  publish(f.first, 18, "c");
  assert.deepEqual(events, ["state 2", "state a", "state b", "c"]);
  f.first.end(1006);
  await f.clock.advance(1_000);
  await f.greet();
  assert.deepEqual(f.socket.last("$ws:subscribe").payload, { topic, positions: true, epoch: "K7", offset: 18, state: true, presence: false });
  accept(f.socket, { epoch: "K7", offset: 18, recovered: true });
  publish(f.socket, 19, "d");
  assert.deepEqual(events.slice(4), ["d"], "what was missed, and no state");
});

test("a state that is not complete is asked for again", async () => {
  const f = await connected();
  f.client.subscribe(topic, { onReset: () => {} });
  accept(f.first, { epoch: "K7", offset: 17, recovered: true, state: 2 });
  publish(f.first, 3);
  f.first.end(1006);
  await f.clock.advance(1_000);
  await f.greet();
  assert.deepEqual(f.socket.last("$ws:subscribe").payload, { topic, positions: true, state: true, presence: false });
});

test("a large state arrives between publications", async () => {
  const f = await connected();
  const events: unknown[] = [];
  const sub = f.client.subscribe(topic, { onReset: () => {}, on: { SAID: (p, meta) => events.push(meta.state ? "state " + p : p) } });
  accept(f.first, { epoch: "K7", offset: 17, recovered: true, state: 1, more: true });
  publish(f.first, 9, "a");
  publish(f.first, 18, "b");
  publish(f.first, 3, "c");
  publish(f.first, 19, "d");
  assert.deepEqual(events, ["state a", "b", "state c", "d"]);
  assert.equal(sub.position, undefined);
  f.first.receive("$ws:state", { topic });
  assert.deepEqual(sub.position, { epoch: "K7", offset: 19 });
  publish(f.first, 17, "known");
  publish(f.first, 20, "e");
  assert.deepEqual(events.slice(4), ["e"]);
});

test("a large state that ends with an error is asked for again after the delay", async () => {
  const f = await connected();
  f.client.subscribe(topic, { onReset: () => {} });
  accept(f.first, { epoch: "K7", offset: 17, recovered: true, state: 0, more: true });
  publish(f.first, 3);
  const asked = f.first.all("$ws:subscribe").length;
  f.first.receive("$ws:unsubscribed", { topic, error: { code: "UNAVAILABLE", message: "", retryable: true } });
  assert.equal(f.first.all("$ws:subscribe").length, asked);
  await f.clock.advance(3_000);
  assert.deepEqual(f.first.last("$ws:subscribe").payload, { topic, positions: true, state: true, presence: false });
});

test("a loss asks for the state again", async () => {
  const f = await connected();
  const states: number[] = [];
  f.client.subscribe(topic, { onReset: (n) => states.push(n) });
  accept(f.first, { epoch: "K7", offset: 17, recovered: false, state: 0 });
  f.first.receive("$ws:position", { topic, epoch: "K7", offset: 30, lost: { from: 18, to: 30 } });
  assert.deepEqual(f.first.last("$ws:subscribe").payload, { topic, positions: true, state: true, presence: false });
  accept(f.first, { epoch: "K7", offset: 30, recovered: false, state: 1 });
  publish(f.first, 30);
  assert.deepEqual(states, [0, 1]);
});

test("a later subscriber receives the state, too", async () => {
  const f = await connected();
  f.client.subscribe(topic);
  accept(f.first);
  f.client.subscribe(topic, { onReset: () => {} });
  assert.deepEqual(f.first.last("$ws:subscribe").payload, { topic, positions: true, state: true, presence: false });
});

/** A client that is subscribed without the state, on its first connection. */
async function withoutState(...args: Parameters<typeof connected>) {
  const f = await connected(...args);
  f.client.subscribe(topic);
  accept(f.first);
  return f;
}

const askForState = { topic, positions: true, state: true, presence: false };

test("a later subscriber receives the state if the connection was lost before, or before the answer", async () => {
  for (const connectionFirst of [true, false]) {
    const f = await withoutState();
    if (connectionFirst) f.first.end(1006);
    f.client.subscribe(topic, { onReset: () => {} });
    f.first.end(1006);
    await f.clock.advance(1_000);
    await f.greet();
    assert.deepEqual(f.socket.last("$ws:subscribe").payload, askForState);
  }
});

test("a later subscriber that asks for the state and leaves takes no publication from others", async () => {
  const f = await withoutState();
  f.first.end(1006);
  f.client.subscribe(topic, { onReset: () => {} }).unsubscribe();
  await f.clock.advance(1_000);
  await f.greet();
  assert.deepEqual(f.socket.last("$ws:subscribe").payload, { ...askForState, state: false, epoch: "K7", offset: 17 });
});

test("a later subscriber receives the state if its request was rejected for now", async () => {
  const f = await withoutState();
  f.client.subscribe(topic, { onReset: () => {} });
  f.first.reject(f.first.last("$ws:subscribe"), "UNAVAILABLE", { retryable: true });
  await f.clock.advance(3_000);
  assert.equal(f.first.all("$ws:subscribe").length, 3);
  assert.deepEqual(f.first.last("$ws:subscribe").payload, askForState);
});

test("a subscriber that comes while the session is resumed receives the state", async () => {
  const session = { token: "id.one", resumeWithinMs: 60_000 };
  const f = await withoutState({ resume: true }, { session });
  f.first.end(1006);
  await f.clock.advance(1_000);
  await f.greet();
  f.client.subscribe(topic, { onReset: () => {} });
  const result = { topic, epoch: "K7", offset: 17, recovered: true };
  f.socket.answer(f.socket.last("$ws:resume"), "$ws:resumed", { session, memberId: "c1", topics: [result] });
  assert.deepEqual(f.socket.last("$ws:subscribe").payload, askForState);
});

test("a state that a loss asks for is asked for on the next connection, if this one ends before the answer", async () => {
  const f = await connected();
  f.client.subscribe(topic, { onReset: () => {} });
  accept(f.first, { epoch: "K7", offset: 17, recovered: true, state: 0 });
  f.first.receive("$ws:position", { topic, epoch: "K7", offset: 30, lost: { from: 18, to: 30 } });
  f.first.end(1006);
  await f.clock.advance(1_000);
  await f.greet();
  assert.deepEqual(f.socket.last("$ws:subscribe").payload, askForState);
  accept(f.socket, { epoch: "K7", offset: 30, recovered: false, state: 0 });
  f.socket.end(1006);
  await f.clock.advance(2_000);
  await f.greet();
  assert.deepEqual(f.socket.last("$ws:subscribe").payload, { ...askForState, epoch: "K7", offset: 30 }, "once");
});

test("presence has the members after each change", async () => {
  const f = await connected();
  const lists: string[] = [];
  f.client.subscribe(topic, { onPresence: (members) => lists.push(members.map((m) => m.userId).join()) });
  assert.equal(f.first.last("$ws:subscribe").payload.presence, true);
  accept(f.first, { members: [{ connId: "1", userId: "ann" }, { connId: "2", userId: "bob" }] });
  f.first.receive("$ws:presence", { topic, joined: [{ connId: "3", userId: "eve" }], left: [{ connId: "2", userId: "bob" }] });
  f.first.receive("$ws:presence", { topic, left: [{ connId: "3" }], joined: [{ connId: "3", userId: "Eve" }] });
  assert.deepEqual(lists, ["ann,bob", "ann,eve", "ann,Eve"]);
  f.first.end(1006);
  await f.clock.advance(1_000);
  await f.greet();
  accept(f.socket, { members: [] });
  assert.deepEqual(lists.slice(3), [""]);
});

test("a topic without presence is reported, once for each answer", async () => {
  const f = await connected();
  const errors: string[] = [];
  f.client.onError((error: any) => errors.push(error.code));
  f.client.subscribe(topic);
  f.client.subscribe(topic, { onPresence: () => assert.fail("no presence") });
  accept(f.first); // of the first one
  assert.deepEqual(errors, []);
  accept(f.first);
  assert.deepEqual(errors, ["FAILED_PRECONDITION"]);
});

test("a client is hidden while all its subscriptions are", async () => {
  const f = await connected();
  const asked = () => f.first.all("$ws:subscribe").map(({ payload }) => !!payload.hidden);
  const first = f.client.subscribe(topic, { hidden: true });
  accept(f.first);
  const second = f.client.subscribe(topic);
  accept(f.first);
  first.unsubscribe();
  f.client.subscribe(topic, { hidden: true });
  assert.deepEqual(asked(), [true, false]);
  second.unsubscribe();
  accept(f.first);
  assert.deepEqual(asked(), [true, false, true]);
});

test("rule 48: close drops positions, and subscriptions stay", async () => {
  const f = await connected();
  f.client.subscribe(topic);
  accept(f.first);
  f.client.close();
  void f.client.connect();
  await f.greet();
  assert.deepEqual(f.socket.last("$ws:subscribe").payload, { topic, positions: true, state: false, presence: false });
});

test("goaway: the answer to a subscription of the old connection has no effect", async () => {
  const f = await connected();
  const subscription = f.client.subscribe(topic);
  f.first.receive("$ws:goaway", { reconnectAfterMs: 10 });
  await f.clock.advance(10);
  await f.greet();
  accept(f.socket, { epoch: "K7", offset: 30, recovered: true });
  accept(f.first, { epoch: "K7", offset: 17, recovered: true });
  assert.deepEqual(subscription.position, { epoch: "K7", offset: 30 });
});

test("goaway: publications of the old connection end when the new one is open", async () => {
  const f = await connected();
  const said: unknown[] = [];
  f.client.subscribe(topic, { on: { SAID: (p) => said.push(p) } });
  accept(f.first);
  void f.client.call("SLOW");
  f.first.receive("$ws:goaway", { reconnectAfterMs: 10 });
  await f.clock.advance(10);
  publish(f.first, 18);
  await f.greet();
  publish(f.first, 19);
  accept(f.socket, { epoch: "K7", offset: 18, recovered: true });
  publish(f.socket, 19);
  publish(f.first, 20);
  publish(f.socket, 20);
  assert.deepEqual(said, [18, 19, 20]);
});

test("a second subscription gets the state and the members while the first one has no answer", async () => {
  const f = await connected();
  const states: number[] = [];
  const members: number[] = [];
  f.client.subscribe(topic);
  f.client.subscribe(topic, { onReset: (n) => states.push(n), onPresence: (m) => members.push(m.length) });
  accept(f.first);
  const second = f.first.last("$ws:subscribe").payload;
  assert.deepEqual(second, { topic, positions: true, state: true, presence: true });
  accept(f.first, { epoch: "K7", offset: 17, recovered: true, state: 0, members: [{ connId: "1" }] });
  assert.deepEqual([states, members], [[0], [1]]);
});

test("a subscription that is made in onEnd stays", async () => {
  const f = await connected();
  let said = 0;
  f.client.subscribe(topic, { onEnd: () => f.client.subscribe(topic, { on: { SAID: () => said++ } }) });
  f.first.reject(f.first.last("$ws:subscribe"), "PERMISSION_DENIED");
  assert.equal(f.first.all("$ws:subscribe").length, 2);
  accept(f.first);
  publish(f.first, 18);
  assert.equal(said, 1);
});

test("the server ends a subscription", async () => {
  const f = await connected();
  const ends: string[] = [];
  let said = 0;
  f.client.subscribe(topic, { onEnd: (error) => ends.push(error.code), on: { SAID: () => said++ } });
  f.client.subscribe(topic);
  accept(f.first);
  f.first.receive("$ws:unsubscribed", { topic });
  publish(f.first, 18);
  assert.deepEqual([ends, said], [["CANCELLED"], 0]);
  assert.deepEqual(f.errors.map((error: any) => error.code), ["CANCELLED"], "of the one without onEnd");
  assert.equal(f.first.all("$ws:subscribe").length, 1);
});

test("a rejected subscription without onEnd is reported", async () => {
  const f = await connected();
  f.client.subscribe(topic);
  f.first.reject(f.first.last("$ws:subscribe"), "PERMISSION_DENIED");
  assert.deepEqual(f.errors.map((error: any) => error.code), ["PERMISSION_DENIED"]);
});

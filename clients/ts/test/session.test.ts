import assert from "node:assert/strict";
import { test } from "node:test";

import { connected, outcome, settled, welcome, type Fixture } from "./fixture.ts";

const asked = { positions: true, state: false, presence: false };
const session = (secret: string) => ({ session: { token: "id." + secret, resumeWithinMs: 120_000 } });

/** Opens the socket of the next attempt, which greets and resumes in one round trip. */
async function reopen(f: Fixture): Promise<void> {
  await f.clock.advance(1_000);
  f.socket.open();
  f.socket.answer(f.socket.last("$ws:hello"), "$ws:welcome", welcome);
  await settled();
}

test("the greeting asks for a session, and the next connection resumes it", async () => {
  const f = await connected({ resume: true }, session("one"));
  assert.deepEqual(f.first.last("$ws:hello").payload, { session: true });
  const resumed: unknown[] = [];
  f.client.onState((state, info) => state === "open" && resumed.push(info.resumed));
  const said: unknown[] = [];
  f.client.on("SAID", (p) => said.push(p));
  f.client.subscribe("room/go");
  f.first.answer(f.first.last("$ws:subscribe"), "$ws:subscribed", { topic: "room/go", epoch: "K7", offset: 17, recovered: true });
  f.first.receive("$ws:subscribed", { topic: "inbox/ann", epoch: "A1", offset: 5 });
  f.first.receive("$ws:subscribed", { topic: "lobby" });
  f.first.receive("SAID", 6, { topic: "inbox/ann", offset: 6 });
  const call = outcome(f.client.call("ASK"));
  f.first.end(1006);
  assert.equal((await call)?.error.mayHaveExecuted, true);
  const waiting = f.client.call("LATER");
  await reopen(f);
  assert.equal(f.client.state, "connecting", "until the session is resumed");
  assert.deepEqual(f.socket.sent.map((s) => s.type), ["$ws:hello", "$ws:resume"]);
  assert.deepEqual(f.socket.last("$ws:hello").payload, { session: false });
  assert.deepEqual(f.socket.last("$ws:resume").payload, {
    token: "id.one",
    topics: [
      { topic: "room/go", ...asked, epoch: "K7", offset: 17 },
      { topic: "inbox/ann", ...asked, epoch: "A1", offset: 6 },
      { topic: "lobby", ...asked },
    ],
  });
  f.socket.answer(f.socket.last("$ws:resume"), "$ws:resumed", {
    ...session("two"),
    topics: [
      { topic: "room/go", epoch: "K7", offset: 17, recovered: true },
      { topic: "inbox/ann", epoch: "A1", offset: 6, recovered: true },
      { topic: "lobby" },
      { topic: "new", epoch: "N", offset: 1, recovered: false },
    ],
  });
  f.socket.receive("SAID", 18, { topic: "room/go", offset: 18 });
  f.socket.receive("SAID", 7, { topic: "inbox/ann", offset: 7 });
  f.socket.receive("SAID", 7, { topic: "inbox/ann", offset: 7 });
  f.socket.receive("SAID", 2, { topic: "new", offset: 2 });
  assert.deepEqual(said, [6, 18, 7, 2]);
  assert.equal(f.client.state, "open");
  assert.deepEqual(resumed, [true]);
  assert.deepEqual(f.socket.last("$ws:ack").meta, { correlationId: f.socket.last("$ws:resume").meta.correlationId });
  assert.equal(f.socket.all("$ws:subscribe").length, 0);
  f.socket.answer(f.socket.last("LATER"), "DONE", 1);
  assert.equal(await waiting, 1);
  f.socket.end(1006);
  await reopen(f);
  assert.equal(f.socket.last("$ws:resume").payload.token, "id.two");
});

test("a session that has ended is replaced, and subscriptions of the client are made again", async () => {
  const f = await connected({ resume: true }, session("one"));
  f.client.subscribe("room/go");
  f.first.answer(f.first.last("$ws:subscribe"), "$ws:subscribed", { topic: "room/go", epoch: "K7", offset: 17, recovered: true });
  f.first.receive("$ws:subscribed", { topic: "inbox/ann", epoch: "A1", offset: 5 });
  let resumed: unknown;
  f.client.onState((_, info) => (resumed = info.resumed));
  f.first.end(1006);
  await reopen(f);
  f.socket.reject(f.socket.last("$ws:resume"), "NOT_FOUND");
  assert.deepEqual(f.socket.last("$ws:hello").payload, { session: true });
  f.socket.answer(f.socket.last("$ws:hello"), "$ws:welcome", { ...welcome, ...session("three") });
  assert.equal(resumed, false);
  assert.deepEqual(f.socket.all("$ws:subscribe").map((s) => s.payload), [{ topic: "room/go", positions: true, epoch: "K7", offset: 17, state: false, presence: false }]);
  f.socket.end(1006);
  await reopen(f);
  assert.deepEqual(f.socket.last("$ws:resume").payload, { token: "id.three", topics: [{ topic: "room/go", ...asked, epoch: "K7", offset: 17 }] });
});

test("a resume that fails for now is repeated on the next connection", async () => {
  const f = await connected({ resume: true }, session("one"));
  f.first.end(1006);
  await reopen(f);
  f.socket.reject(f.socket.last("$ws:resume"), "UNAVAILABLE", { retryable: true, retryAfterMs: 500 });
  assert.equal(f.client.state, "waiting");
  await f.clock.advance(1_000);
  await reopen(f);
  assert.equal(f.sockets.length, 3);
  assert.equal(f.socket.last("$ws:resume").payload.token, "id.one");
});

test("a session is not resumed after its time, or without one", async () => {
  const f = await connected({ resume: true, random: () => 0.999 }, { session: { token: "id.one", resumeWithinMs: 300 } });
  f.first.end(1006);
  await reopen(f);
  assert.deepEqual(f.socket.sent.map((s) => [s.type, s.payload]), [["$ws:hello", { session: true }]]);
  assert.equal(f.client.state, "open", "the server has no session");
  f.socket.end(1006);
  await f.clock.advance(2_000);
  f.socket.open();
  assert.deepEqual(f.socket.sent.map((s) => s.type), ["$ws:hello"]);
});

test("a topic that was not resumed is subscribed again, which reports its error", async () => {
  const f = await connected({ resume: true }, session("one"));
  const ends: string[] = [];
  f.client.subscribe("secret", { onEnd: (error) => ends.push(error.code) });
  f.first.answer(f.first.last("$ws:subscribe"), "$ws:subscribed", { topic: "secret" });
  f.first.end(1006);
  await reopen(f);
  f.socket.answer(f.socket.last("$ws:resume"), "$ws:resumed", { ...session("two"), topics: [{ topic: "secret", error: { code: "PERMISSION_DENIED" } }] });
  f.socket.reject(f.socket.last("$ws:subscribe"), "PERMISSION_DENIED");
  assert.deepEqual(ends, ["PERMISSION_DENIED"]);
});

test("what the server had subscribed is a subscription of the client alone if the session has ended", async () => {
  const f = await connected({ resume: true }, session("one"));
  const subscription = f.client.subscribe("room/go");
  f.first.answer(f.first.last("$ws:subscribe"), "$ws:subscribed", { topic: "room/go" });
  f.first.receive("$ws:subscribed", { topic: "room/go" });
  f.first.end(1006);
  await reopen(f);
  f.socket.reject(f.socket.last("$ws:resume"), "NOT_FOUND");
  f.socket.answer(f.socket.last("$ws:hello"), "$ws:welcome", { ...welcome, ...session("two") });
  f.socket.answer(f.socket.last("$ws:subscribe"), "$ws:subscribed", { topic: "room/go" });
  subscription.unsubscribe();
  assert.equal(f.socket.all("$ws:unsubscribe").length, 1);
});

test("a session reports what the resumed topics have lost, and the server ends subscriptions", async () => {
  const f = await connected({ resume: true }, session("one"));
  const losses: string[] = [];
  f.client.onLoss((loss) => losses.push(loss.topic));
  f.first.receive("$ws:subscribed", { topic: "a", epoch: "A", offset: 5 });
  f.first.receive("$ws:subscribed", { topic: "b", epoch: "B", offset: 5 });
  f.first.receive("$ws:unsubscribed", { topic: "b" });
  f.first.end(1006);
  await reopen(f);
  assert.deepEqual(f.socket.last("$ws:resume").payload.topics.map((t: any) => t.topic), ["a"]);
  f.socket.answer(f.socket.last("$ws:resume"), "$ws:resumed", { ...session("two"), topics: [{ topic: "a", epoch: "A2", offset: 1, recovered: false }] });
  assert.deepEqual(losses, ["a"]);
});

test("a client whose session another one has resumed stops", async () => {
  const f = await connected({ resume: true }, session("one"));
  f.first.end(4409, { code: "ABORTED", message: "superseded by another connection" });
  assert.equal(f.client.state, "closed");
});

test("goaway: calls of the old connection are answered before the session leaves it, and none is sent meanwhile", async () => {
  const f = await connected({ resume: true }, session("one"));
  const slow = f.client.call("SLOW");
  f.client.subscribe("room/go");
  f.first.answer(f.first.last("$ws:subscribe"), "$ws:subscribed", { topic: "room/go" });
  f.first.receive("$ws:goaway", { reconnectAfterMs: 10 });
  await f.clock.advance(10);
  f.socket.open();
  const [next, old] = [f.socket, f.first];
  assert.deepEqual(next.sent.map((s) => s.type), ["$ws:hello"], "what was sent on the old connection may still be on its way");
  const waits = f.client.call("ASK");
  assert.equal(old.all("ASK").length, 0);
  old.answer(old.all("$ws:hello")[1]!, "$ws:welcome", welcome);
  assert.deepEqual(next.last("$ws:resume").payload.topics.map((t: any) => t.topic), ["room/go"]);
  next.answer(next.last("$ws:hello"), "$ws:welcome", welcome);
  next.answer(next.last("$ws:resume"), "$ws:resumed", { ...session("two"), topics: [{ topic: "room/go" }] });
  assert.equal(next.all("ASK").length, 1);
  next.answer(next.last("ASK"), "ANSWER", 1);
  old.answer(old.last("SLOW"), "DONE", 2);
  assert.deepEqual([await outcome(waits), await outcome(slow)], [{ value: 1 }, { value: 2 }]);
  assert.deepEqual(old.closedWith, { code: 1000 });
});

test("goaway: the old connection carries messages again if the new one ends before the session has moved", async () => {
  const f = await connected({ resume: true }, session("one"));
  f.first.receive("$ws:goaway", { reconnectAfterMs: 10 });
  await f.clock.advance(10);
  f.socket.open();
  const call = f.client.call("ASK");
  const subscription: string[] = [];
  f.client.subscribe("room/go", { onReady: () => subscription.push("ready"), onEnd: () => subscription.push("ended") });
  f.socket.end(1006);
  f.first.answer(f.first.last("ASK"), "ANSWER", 1);
  f.first.answer(f.first.last("$ws:subscribe"), "$ws:subscribed", { topic: "room/go" });
  assert.deepEqual(await outcome(call), { value: 1 });
  assert.deepEqual(subscription, ["ready"]);
});

test("the connection says its ID, whether it has resumed the session, and the contract of the server", async () => {
  const f = await connected({ resume: true }, { ...session("one"), contractHash: "0123" });
  assert.deepEqual(f.client.connection, { id: "c1", memberId: "c1", resumed: false, contractHash: "0123" });
  f.first.end(1006);
  assert.equal(f.client.connection, undefined);
  await reopen(f);
  f.socket.answer(f.socket.last("$ws:resume"), "$ws:resumed", { ...session("two"), memberId: "c0", topics: [] });
  assert.deepEqual(f.client.connection, { id: "c1", memberId: "c0", resumed: true, contractHash: undefined });
});

test("goaway: the session moves to the new connection, and the server closes the old one", async () => {
  const f = await connected({ resume: true }, session("one"));
  f.first.receive("$ws:goaway", { reconnectAfterMs: 10 });
  await f.clock.advance(10);
  f.socket.open();
  f.socket.answer(f.socket.last("$ws:hello"), "$ws:welcome", welcome);
  f.first.end(4409);
  assert.equal(f.client.state, "connecting");
  f.socket.answer(f.socket.last("$ws:resume"), "$ws:resumed", { ...session("two"), topics: [] });
  assert.equal(f.client.state, "open");
  await f.clock.advance(1_000);
  assert.equal(f.sockets.length, 2);
});

test("a resumed topic has its members and its state", async () => {
  const f = await connected({ resume: true }, session("one"));
  const events: unknown[] = [];
  f.client.subscribe("room/go", { onReset: (n) => events.push("state " + n), onPresence: (m) => events.push("members " + m.length) });
  f.first.answer(f.first.last("$ws:subscribe"), "$ws:subscribed", { topic: "room/go", epoch: "K7", offset: 1, recovered: true, state: 0, members: [] });
  f.first.end(1006);
  await reopen(f);
  const result = { topic: "room/go", epoch: "P2", offset: 9, recovered: false, state: 3, members: [{ connId: "1" }] };
  f.socket.answer(f.socket.last("$ws:resume"), "$ws:resumed", { ...session("two"), topics: [result] });
  assert.deepEqual(events, ["state 0", "members 0", "state 3", "members 1"]);
  assert.equal(f.socket.all("$ws:subscribe").length, 0);
});

test("close ends the session", async () => {
  const f = await connected({ resume: true }, session("one"));
  f.client.close();
  assert.deepEqual(f.first.closedWith, { code: 1000 });
  void f.client.connect();
  await settled();
  f.socket.open();
  assert.deepEqual(f.socket.sent.map((s) => [s.type, s.payload]), [["$ws:hello", { session: true }]]);
});

test("close in onLoss of a resumed topic is for good", async () => {
  const f = await connected({ resume: true }, session("one"));
  const lost: unknown[] = [];
  f.client.subscribe("room/go", { onLoss: (loss) => lost.push(loss) });
  f.client.onLoss(() => f.client.close());
  f.first.answer(f.first.last("$ws:subscribe"), "$ws:subscribed", { topic: "room/go", epoch: "K7", offset: 17, recovered: true });
  f.first.end(1006);
  await reopen(f);
  const result = { topic: "room/go", epoch: "K7", offset: 30, recovered: false };
  f.socket.answer(f.socket.last("$ws:resume"), "$ws:resumed", { ...session("two"), topics: [result] });
  assert.equal(lost.length, 1);
  assert.deepEqual(f.states.slice(-2), ["connecting", "closed"]);
  assert.ok(f.socket.closedWith);
});

test("rule 52: a hidden page keeps its session", async () => {
  const f = await connected({ resume: true }, session("one"));
  f.page.fire("pagehide");
  assert.deepEqual(f.first.closedWith, { code: undefined });
  f.page.fire("pageshow");
  await reopen(f);
  assert.equal(f.socket.last("$ws:resume").payload.token, "id.one");
});

test("a page that is not kept ends its session", async () => {
  const f = await connected({ resume: true }, session("one"));
  f.page.fire("pagehide", false);
  assert.deepEqual(f.first.closedWith, { code: 1000 });
});

test("messages to the user are received once and in order, whenever they arrive", async () => {
  const f = await connected({ resume: true }, session("one"));
  const notes: unknown[] = [];
  const losses: unknown[] = [];
  f.client.on("NOTE", (n) => notes.push(n));
  f.client.onLoss((loss) => losses.push(loss));
  const note = (socket: typeof f.first, offset: number) => socket.receive("NOTE", offset, { topic: "", offset });
  note(f.first, 5); // before the position is known
  f.first.receive("$ws:subscribed", { topic: "", epoch: "U", offset: 5 });
  note(f.first, 6);
  f.first.end(1006);
  await reopen(f);
  assert.deepEqual(f.socket.last("$ws:resume").payload.topics, [{ topic: "", ...asked, epoch: "U", offset: 6 }]);
  note(f.socket, 7); // the server cannot know yet that it is resumed
  note(f.socket, 9);
  f.socket.answer(f.socket.last("$ws:resume"), "$ws:resumed", { ...session("two"), topics: [{ topic: "", epoch: "U", offset: 6, recovered: true }] });
  for (const offset of [7, 8, 9, 10]) note(f.socket, offset);
  assert.deepEqual(notes, [5, 6, 7, 8, 9, 10]);
  assert.equal(f.socket.all("$ws:subscribe").length, 0);
  f.socket.receive("$ws:position", { topic: "", epoch: "U", offset: 12, lost: { from: 11, to: 12 } });
  note(f.socket, 13);
  f.socket.receive("$ws:unsubscribed", { topic: "" }); // another user
  f.socket.receive("$ws:subscribed", { topic: "", epoch: "U", offset: 0 });
  note(f.socket, 1);
  assert.deepEqual(notes, [5, 6, 7, 8, 9, 10, 13, 1]);
  f.socket.end(1006);
  await reopen(f);
  f.socket.answer(f.socket.last("$ws:resume"), "$ws:resumed", { ...session("three"), topics: [{ topic: "", epoch: "U", offset: 90, recovered: false }] });
  note(f.socket, 91);
  assert.deepEqual(notes.at(-1), 91);
  assert.deepEqual(losses, [{ topic: "", lost: { from: 11, to: 12 }, ended: undefined }, { topic: "", ended: undefined }]);
});

test("what arrives on the old connection while the session moves is received once", async () => {
  const f = await connected({ resume: true }, session("one"));
  const notes: unknown[] = [];
  f.client.on("NOTE", (n) => notes.push(n));
  const note = (socket: typeof f.first, offset: number) => socket.receive("NOTE", offset, { topic: "", offset });
  f.first.receive("$ws:subscribed", { topic: "", epoch: "U", offset: 5 });
  f.first.receive("$ws:goaway", { reconnectAfterMs: 10 });
  await f.clock.advance(1_000);
  f.socket.open();
  f.socket.answer(f.socket.last("$ws:hello"), "$ws:welcome", welcome);
  await settled();
  note(f.first, 6);
  note(f.socket, 6);
  f.first.answer(f.first.last("$ws:hello"), "$ws:welcome", welcome);
  await settled();
  assert.equal(f.socket.last("$ws:resume").payload.topics[0].offset, 6);
  note(f.first, 7); // before the session has left this connection
  note(f.socket, 7);
  f.socket.answer(f.socket.last("$ws:resume"), "$ws:resumed", { ...session("two"), topics: [{ topic: "", epoch: "U", offset: 6, recovered: true }] });
  for (const offset of [7, 8]) note(f.socket, offset);
  assert.deepEqual(notes, [6, 7, 8]);
});

test("a session with more topics than fit into a message resumes with some, and subscribes to the others", async () => {
  const limit = { maxMessageBytes: 2_000 };
  const f = await connected({ resume: true }, { ...session("one"), ...limit });
  const topics = Array.from({ length: 24 }, (_, i) => `room/\u6771${i}`); // 3 bytes for a character
  for (const topic of topics) f.client.subscribe(topic);
  for (let i = 0; i < topics.length; i++) {
    const sent = f.first.all("$ws:subscribe")[i]!;
    f.first.answer(sent, "$ws:subscribed", { topic: sent.payload.topic, epoch: "K7", offset: 17, recovered: true });
  }
  f.first.end(1006);
  await f.clock.advance(1_000);
  await f.greet(limit);
  const presented = f.socket.last("$ws:resume").payload.topics.map((t: any) => t.topic);
  assert.ok(Buffer.byteLength(f.socket.raw.at(-1)!) < 2_000 && presented.length > 4, String(presented.length));
  f.socket.answer(f.socket.last("$ws:resume"), "$ws:resumed", { ...session("two"), topics: presented.map((topic: string) => ({ topic, epoch: "K7", offset: 17, recovered: true })) });
  assert.equal(f.client.state, "open");
  for (let i = 0; i < topics.length - presented.length; i++) {
    const sent = f.socket.all("$ws:subscribe")[i]!;
    assert.equal(sent.payload.offset, 17);
    f.socket.answer(sent, "$ws:subscribed", { topic: sent.payload.topic, epoch: "K7", offset: 17, recovered: true });
  }
  assert.deepEqual([...presented, ...f.socket.all("$ws:subscribe").map((s) => s.payload.topic)], topics);
});

test("a session whose resumption is above the limit of another server resumes with the next attempt", async () => {
  const f = await connected({ resume: true }, session("one"));
  for (let i = 0; i < 24; i++) {
    f.client.subscribe("room/" + i);
    f.first.answer(f.first.last("$ws:subscribe"), "$ws:subscribed", { topic: "room/" + i, epoch: "K7", offset: 17, recovered: true });
  }
  f.first.end(1006);
  await f.clock.advance(1_000);
  await f.greet({ maxMessageBytes: 1_000 });
  assert.equal(f.socket.last("$ws:resume").payload.topics.length, 24, "what the other one permits is not known yet");
  f.socket.end(1009);
  await f.clock.advance(2_000);
  await f.greet({ maxMessageBytes: 1_000 });
  assert.ok(f.socket.raw.every((text) => text.length < 1_000));
  assert.ok(f.socket.last("$ws:resume").payload.topics.length > 2);
});

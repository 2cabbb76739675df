// Subscriptions by clients and presence, with a plain WebSocket and with a client of ws-kit.

import assert from "node:assert/strict";
import { test } from "node:test";
import { message, z } from "@ws-kit/zod";

import { connect } from "./plain.mjs";
import { Raw } from "./raw.mjs";

const subscribe = (raw, id, topic, more = {}) => raw.call(id, "$ws:subscribe", { topic, ...more });

test("$ws:subscribe and $ws:unsubscribe", async () => {
  const raw = await Raw.open("ann");
  await raw.ofType("NOTE");
  const { type, meta, payload } = await subscribe(raw, "s1", "room/go");
  assert.deepEqual([type, Object.keys(meta), payload], ["$ws:subscribed", ["timestamp", "correlationId"], { topic: "room/go" }]);
  assert.deepEqual((await subscribe(raw, "s2", "room/go")).payload, { topic: "room/go" }, "again");
  raw.send("ROOM", {}, { enter: false });
  assert.deepEqual((await raw.ofType("NOTE")).payload, { text: "to the room" });
  const left = await raw.call("u1", "$ws:unsubscribe", { topic: "room/go" });
  assert.deepEqual([left.type, left.payload], ["$ws:unsubscribed", { topic: "room/go" }]);
  assert.equal((await raw.call("u2", "$ws:unsubscribe", { topic: "room/go" })).type, "$ws:unsubscribed", "again");
  raw.send("ROOM", {}, { enter: false });
  assert.deepEqual(await raw.rest(), []);
  await raw.close();
});

test("subscriptions that are rejected", async () => {
  const raw = await Raw.open("ann");
  for (const [topic, code] of [
    ["room/secret", "PERMISSION_DENIED"],
    ["news", "PERMISSION_DENIED"],
    ["lobby", "NOT_FOUND"],
    ["", "INVALID_ARGUMENT"],
    ["room/a\u0000", "INVALID_ARGUMENT"],
  ]) {
    const { type, payload } = await subscribe(raw, `r-${topic}`, topic);
    assert.deepEqual([type, payload.code], ["RPC_ERROR", code], topic);
  }
  await subscribe(raw, "m1", "room/1");
  await subscribe(raw, "m2", "room/2");
  const { payload } = await subscribe(raw, "m3", "room/3");
  assert.deepEqual([payload.code, payload.details.kind], ["RESOURCE_EXHAUSTED", "topics"]);
  await raw.close();
});

test("a client of ws-kit receives no presence", async () => {
  const Room = message("ROOM", { enter: z.boolean() });
  const c = connect("ann");
  c.send(Room, { enter: true });
  await c.settled();
  const raw = await Raw.open("bob");
  await subscribe(raw, "w1", "room/go", { presence: true });
  const other = await Raw.open("carl");
  await subscribe(other, "w2", "room/go");
  await raw.ofType("$ws:presence"); // what the others do not receive
  c.send(Room, { enter: false });
  await c.settled();
  assert.deepEqual(c.seen.notes, ["welcome", "to the room"]);
  await c.finish({ ANSWER: 2 });
  await Promise.all([raw.close(), other.close()]);
});

test("presence", async () => {
  const ann = await Raw.open("ann");
  const { payload } = await subscribe(ann, "p1", "room/js", { presence: true });
  assert.deepEqual(payload.members.map(({ userId }) => userId), ["ann"]);
  const bob = await Raw.open("bob");
  await subscribe(bob, "p2", "room/js");
  const joined = (await ann.ofType("$ws:presence")).payload;
  assert.equal(joined.topic, "room/js");
  assert.deepEqual(joined.joined.map(({ userId }) => userId), ["bob"]);
  await bob.close();
  const { left } = (await ann.ofType("$ws:presence")).payload;
  assert.deepEqual(left, joined.joined);
  await ann.close();
});

// The strict client of ws-kit against the chat, whose rooms have histories.

import assert from "node:assert/strict";
import { test } from "node:test";

import { message, rpc, z } from "@ws-kit/zod";

import { connect, rejection } from "./plain.mjs";
import { accept } from "./schemas.mjs";

const said = z.object({ room: z.string(), user: z.string(), text: z.string(), at: z.string(), id: z.string() });
const Join = rpc("JOIN_ROOM", { room: z.string() }, "ROOM_JOINED", {
  room: z.string(),
  users: z.array(z.string()),
  epoch: z.string().optional(),
  offset: z.number().optional(),
  history: z.array(said).optional(),
  lost: z.boolean(),
});
const Say = rpc("SAY", { room: z.string(), text: z.string(), id: z.string().optional() }, "STORED", { room: z.string(), id: z.string() });
const Who = rpc("WHO", { room: z.string() }, "USERS", { room: z.string(), users: z.array(z.string()) });
const Search = rpc("SEARCH_HISTORY", { room: z.string(), query: z.string() }, "HISTORY_FOUND", { room: z.string(), matches: z.array(said) });
const Leave = message("LEAVE_ROOM", { room: z.string() });
const Said = message("SAID", { room: z.string(), user: z.string(), text: z.string(), at: z.string(), id: z.string() });
const UserJoined = message("USER_JOINED", { room: z.string(), user: z.string() });
const UserLeft = message("USER_LEFT", { room: z.string(), user: z.string() });
[Join.response, Say.response, Who.response, Search.response, Said, UserJoined, UserLeft].forEach(accept);

// enter opens a client that records what happens in rooms.
function enter(name) {
  const client = connect(name);
  const events = [];
  client.on(Said, ({ payload }) => events.push(`${payload.user}: ${payload.text}`));
  client.on(UserJoined, ({ payload }) => events.push(`+${payload.user}`));
  client.on(UserLeft, ({ payload }) => events.push(`-${payload.user}`));
  return { ...client, events, until: async (event) => { while (!events.includes(event)) await client.arrival(); } };
}

test("a conversation in a room with a history", async () => {
  const [ann, bob] = [enter("ann"), enter("bob")];
  const room = "ws-kit";
  assert.deepEqual((await ann.request(Join, { room })).payload.users, ["ann"]);
  await ann.request(Say, { room, text: "before bob" });
  const joined = (await bob.request(Join, { room })).payload;
  assert.deepEqual([joined.users.toSorted(), joined.history.map(({ text }) => text)], [["ann", "bob"], ["before bob"]]);
  await ann.until("+bob");
  const { payload: stored } = await bob.request(Say, { room, text: "hello", id: "m1" });
  assert.deepEqual((await bob.request(Say, { room, text: "hello", id: "m1" })).payload, stored, "the repetition is stored once");
  await Promise.all([ann.until("bob: hello"), bob.until("bob: hello")]);
  assert.deepEqual((await ann.request(Who, { room })).payload.users.toSorted(), ["ann", "bob"]);
  assert.deepEqual((await ann.request(Search, { room, query: "hell" })).payload.matches.map(({ text }) => text), ["hello"]);
  assert.equal((await rejection(ann.request(Say, { room, text: "" }))).code, "INVALID_ARGUMENT");
  assert.equal((await rejection(ann.request(Say, { room: "elsewhere", text: "x" }))).retryable, false);
  bob.send(Leave, { room });
  await ann.until("-bob");
  assert.deepEqual(ann.events.filter((e) => !e.startsWith("+ann")), ["ann: before bob", "+bob", "bob: hello", "-bob"]);
  await ann.finish({ ROOM_JOINED: 1, STORED: 1, USERS: 1, HISTORY_FOUND: 1, RPC_ERROR: 2 });
  await bob.finish({ ROOM_JOINED: 1, STORED: 2 });
});

test("a client that returns reads the history", async () => {
  const ann = enter("ann");
  const room = "ws-kit again";
  await ann.request(Join, { room });
  for (const text of ["one", "two"]) await ann.request(Say, { room, text });
  await ann.finish({ ROOM_JOINED: 1, STORED: 2 });
  const again = enter("ann");
  assert.deepEqual((await again.request(Join, { room })).payload.history.map(({ text }) => text), ["one", "two"]);
  await again.finish({ ROOM_JOINED: 1 });
});

test("the limit of the chat", async () => {
  const ann = enter("ann");
  const room = "ws-kit limit";
  await ann.request(Join, { room });
  const outcomes = await Promise.allSettled(Array.from({ length: 40 }, (_, n) => ann.request(Say, { room, text: `${n}` })));
  const rejected = outcomes.filter(({ status }) => status === "rejected").map(({ reason }) => reason);
  assert.ok(rejected.length > 10, `${rejected.length}`);
  for (const { code, retryable, retryAfterMs } of rejected) assert.deepEqual([code, retryable, retryAfterMs > 0], ["RESOURCE_EXHAUSTED", true, true]);
  await ann.finish({ ROOM_JOINED: 1, RPC_ERROR: rejected.length, STORED: outcomes.length - rejected.length });
});

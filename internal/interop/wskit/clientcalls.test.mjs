// Calls of the server to a client of ws-kit, which answers with ordinary messages, and to a plain
// WebSocket that has greeted.

import assert from "node:assert/strict";
import { test } from "node:test";
import { message, rpc, z } from "@ws-kit/zod";

import { connect, rejection } from "./plain.mjs";
import { Raw } from "./raw.mjs";
import { accept, RpcErr } from "./schemas.mjs";

const CallMe = rpc("CALL_ME", { n: z.number(), timeoutMs: z.number().optional() }, "ANSWER", { n: z.number() });
const Ping = message("PING", { n: z.number() });
const Pong = message("PONG", { n: z.number() });
accept(Ping);

test("a client of ws-kit answers calls", async () => {
  const c = connect("ann");
  c.on(Ping, ({ meta: { correlationId }, payload: { n } }) => {
    if (n === 0) assert.ok(c.send(RpcErr, { code: "NOT_FOUND", retryable: false }, { correlationId }));
    else for (let i = 0; i < 2; i++) c.send(Pong, { n: n + 1 }, { correlationId }); // the second is dropped
  });
  const call = (n) => c.request(CallMe, { n });
  const replies = await Promise.all([call(1), call(2), call(3)]);
  assert.deepEqual(replies.map(({ payload }) => payload.n), [2, 3, 4]);
  assert.equal((await rejection(call(0))).code, "NOT_FOUND");
  await c.settled();
  assert.deepEqual(c.seen.errors, []);
  await c.finish({ ANSWER: 4, RPC_ERROR: 1 });
});

test("late and unexpected answers are dropped", async () => {
  const c = connect("ann");
  const ids = [];
  c.on(Ping, ({ meta }) => ids.push(meta.correlationId));
  assert.equal((await rejection(c.request(CallMe, { n: 1, timeoutMs: 50 }))).code, "DEADLINE_EXCEEDED");
  for (const correlationId of [...ids, ...ids, "$ws:", "$ws:1000000"]) c.send(Pong, { n: 2 }, { correlationId });
  await c.settled();
  assert.equal(ids.length, 1);
  assert.deepEqual(c.seen.errors, []);
  await c.finish({ ANSWER: 1, RPC_ERROR: 1 });
});

test("a call of the server has its timeout for a greeted client", async () => {
  const raw = await Raw.open("ann");
  await raw.call("hello", "$ws:hello", {});
  raw.send("CALL_ME", { correlationId: "c1" }, { n: 1, timeoutMs: 50 });
  const { meta } = await raw.ofType("PING");
  assert.ok(meta.timeoutMs > 0 && meta.timeoutMs <= 50, `${meta.timeoutMs}`);
  const abort = await raw.ofType("$ws:abort");
  assert.equal(abort.meta.correlationId, meta.correlationId);
  await raw.close();
});

// Cancellation, deadlines and acknowledgments, with a plain WebSocket.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Raw } from "./raw.mjs";

test("$ws:abort cancels a call", async () => {
  const raw = await Raw.open("ann");
  await raw.ofType("NOTE");
  raw.send("ASK", { correlationId: "a1" }, { do: "wait" });
  raw.send("$ws:abort", { correlationId: "a1" });
  const { type, payload } = await raw.answer("a1");
  assert.equal(type, "RPC_ERROR");
  assert.equal(payload.code, "CANCELLED");
  raw.send("$ws:abort", { correlationId: "a1" }); // has been answered
  raw.send("$ws:abort", { correlationId: "unknown" });
  assert.deepEqual(await raw.rest(), []);
  await raw.close();
});

test("meta.timeoutMs shortens the deadline", async () => {
  const raw = await Raw.open("ann");
  const started = Date.now();
  const { payload } = await raw.call("t1", "ASK", { do: "wait" }, { timeoutMs: 50 });
  assert.equal(payload.code, "DEADLINE_EXCEEDED");
  assert.ok(Date.now() - started < 1900, "before the deadline of the server");
  const invalid = await raw.call("t2", "ASK", { do: "" }, { timeoutMs: -1 });
  assert.equal(invalid.payload.code, "INVALID_ARGUMENT");
  await raw.close();
});

test("a correlation ID in flight cannot be used again", async () => {
  const raw = await Raw.open("ann");
  await raw.ofType("NOTE");
  raw.send("ASK", { correlationId: "d1" }, { do: "wait" });
  raw.send("ASK", { correlationId: "d1" }, { do: "", n: 7 });
  const { meta, payload } = await raw.ofType("ERROR");
  assert.equal(meta.correlationId, undefined);
  assert.equal(payload.code, "INVALID_ARGUMENT");
  raw.send("DO", {}, { what: "release", n: 1 });
  const { type, payload: { n } } = await raw.answer("d1");
  assert.deepEqual([type, n], ["ANSWER", 0], "the first call has its own answer");
  await raw.close();
});

test("$ws:ack acknowledges a message that was admitted", async () => {
  const raw = await Raw.open("ann");
  await raw.ofType("NOTE");
  raw.send("DO", { correlationId: "k1", ack: true }, { what: "nothing" });
  const { type, meta } = await raw.next();
  assert.equal(type, "$ws:ack");
  assert.deepEqual(Object.keys(meta), ["timestamp", "correlationId"]);
  assert.equal(meta.correlationId, "k1");
  raw.send("COSTLY", { correlationId: "k2", ack: true }, {});
  assert.equal((await raw.next()).type, "RPC_ERROR", "a rejected message has no acknowledgment");
  await raw.close();
});

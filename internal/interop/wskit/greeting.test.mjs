// The greeting, and what a client receives only after it, with a plain WebSocket.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Raw } from "./raw.mjs";

const greet = async (raw) => (await raw.call("hello", "$ws:hello", {})).payload;

test("$ws:hello is answered by $ws:welcome", async () => {
  const raw = await Raw.open("ann");
  const { type, payload } = await raw.call("hello", "$ws:hello", {});
  assert.equal(type, "$ws:welcome");
  assert.equal(typeof payload.connId, "string");
  assert.equal(payload.maxMessageBytes, 1000);
  assert.equal(payload.maxMessageBytesByType.LARGE, 1500);
  assert.equal(payload.callTimeoutMs, 2000);
  assert.equal(payload.concurrency, 300);
  await raw.close();
});

test("a greeted client is warned before its identity expires", async () => {
  const raw = await Raw.open("dan:1000");
  await greet(raw);
  const { meta, payload } = await raw.ofType("$ws:identity-expiring");
  assert.deepEqual(Object.keys(meta), ["timestamp"]);
  assert.ok(payload.expiresInMs > 0 && payload.expiresInMs <= 500);
  assert.equal((await raw.closed).code, 4401);
});

// The last test: the server accepts no connection afterwards.
test("a greeted client is asked to leave during a shutdown", async () => {
  const raw = await Raw.open("ann");
  await greet(raw);
  raw.send("DO", {}, { what: "shut down" });
  const { meta, payload } = await raw.ofType("$ws:goaway");
  assert.deepEqual(Object.keys(meta), ["timestamp"]);
  assert.ok(payload.reconnectAfterMs >= 0);
  assert.equal((await raw.closed).code, 1012);
});

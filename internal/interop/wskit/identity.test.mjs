// Identities that expire and are refreshed, with a plain WebSocket and a client of ws-kit. The server reads a token as
// the user and, after a colon, the milliseconds until the identity expires.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { connect } from "./plain.mjs";
import { Raw } from "./raw.mjs";

const refresh = (raw, id, token) => raw.call(id, "$ws:auth", { token });

test("a client of ws-kit sees only the end of an expired identity", async () => {
  const c = connect("dan:1000");
  await c.settled();
  const { code, reason } = await c.closed;
  assert.equal(code, 4401);
  assert.equal(JSON.parse(reason).code, "UNAUTHENTICATED");
  await c.finish({ ANSWER: 1 });
});

test("$ws:auth refreshes the identity", async () => {
  const raw = await Raw.open("dan:1000");
  const { type, payload } = await refresh(raw, "r1", "dan:60000");
  assert.equal(type, "$ws:authenticated");
  assert.ok(payload.expiresInMs > 50_000 && payload.expiresInMs <= 60_000);
  await sleep(1200);
  const unlimited = await refresh(raw, "r2", "dan");
  assert.deepEqual([unlimited.type, unlimited.payload], ["$ws:authenticated", {}]);
  await raw.close();
});

test("$ws:auth does not change the user", async () => {
  const raw = await Raw.open("dan");
  for (const [id, token, code] of [["x1", "eve", "PERMISSION_DENIED"], ["x2", "", "INVALID_ARGUMENT"], ["x3", "dan:x", "UNAUTHENTICATED"]]) {
    const { type, payload } = await refresh(raw, id, token);
    assert.deepEqual([type, payload.code], ["RPC_ERROR", code], token);
  }
  assert.equal((await raw.call("x4", "ASK", { do: "", n: 1 })).type, "ANSWER");
  await raw.close();
});

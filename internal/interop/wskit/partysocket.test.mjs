// What docs/guides/clients.md shows for partysocket: a WebSocket that reconnects, and calls without a library.

import assert from "node:assert/strict";
import { test } from "node:test";
import { WebSocket as ReconnectingWebSocket } from "partysocket";
import { WebSocket } from "ws";

const url = process.env.PENSTOCK_URL;

test("partysocket reconnects, and its client calls the server", async () => {
  const socket = new ReconnectingWebSocket(`${url}?access_token=ann`, [], { WebSocket, minReconnectionDelay: 10, maxEnqueuedMessages: 100 });
  const pending = new Map();
  const notes = [];
  let opened = 0;
  socket.addEventListener("open", () => opened++);
  socket.addEventListener("message", ({ data }) => {
    const { type, meta, payload } = JSON.parse(data);
    const call = pending.get(meta.correlationId);
    if (type === "NOTE") notes.push(payload.text);
    if (!call) return;
    pending.delete(meta.correlationId);
    if (type === "RPC_ERROR") call.reject(Object.assign(new Error(payload.message), payload));
    else call.resolve(payload);
  });
  socket.addEventListener("close", () => {
    for (const { reject } of pending.values()) reject(new Error("connection lost; the call may have been executed"));
    pending.clear();
  });
  let ids = 0;
  function call(type, payload) {
    return new Promise((resolve, reject) => {
      const correlationId = `c${++ids}`;
      pending.set(correlationId, { resolve, reject });
      socket.send(JSON.stringify({ type, meta: { correlationId }, payload }));
    });
  }

  assert.equal(typeof (await call("ASK", { do: "" })).n, "number");
  await assert.rejects(call("MISSING", {}), { code: "UNIMPLEMENTED" });
  const again = new Promise((resolve) => socket.addEventListener("open", resolve, { once: true }));
  socket.reconnect();
  await again;
  assert.equal(typeof (await call("ASK", { do: "" })).n, "number");
  assert.equal(opened, 2);
  assert.deepEqual(notes, ["welcome", "welcome"]);
  socket.close();
});

// The JavaScript of docs/writing-a-client.md, which the Go test writes to modules.

import assert from "node:assert/strict";
import { test } from "node:test";
import { WebSocket } from "ws";

globalThis.WebSocket ??= WebSocket; // which browsers and Node.js 22 have

test("events need nothing but a WebSocket", async (t) => {
  const shown = new Promise((resolve) => (globalThis.show = resolve));
  const { socket } = await import("./guide-plain.mjs");
  t.after(() => socket.close());
  assert.equal(await shown, "hi");
});

test("partysocket reconnects, and its client has calls and streams", async (t) => {
  const { call, socket, use } = await import("./guide-calls.mjs");
  t.after(() => socket.close());
  const shown = [];
  assert.equal(await use((text) => shown.push(text)), true);
  assert.deepEqual(shown, ["33 %", "66 %", "100 %", "users 1", "users 2"]);
  await assert.rejects(call("MISSING", {}), { code: "UNIMPLEMENTED" });

  const lost = assert.rejects(call("ASK", { do: "wait" }), /may have been executed/);
  await call("ASK", { do: "" }); // the call before it has arrived
  const again = new Promise((resolve) => socket.addEventListener("open", resolve, { once: true }));
  socket.reconnect();
  await lost;
  await again;
  assert.equal(typeof (await call("ASK", { do: "" })).n, "number");
});

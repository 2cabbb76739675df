// Streams with a client of ws-kit, and with a plain WebSocket: their end, their cancellation and
// their credits.

import assert from "node:assert/strict";
import { test } from "node:test";
import { rpc, z } from "@ws-kit/zod";

import { connect, rejection } from "./plain.mjs";
import { Raw } from "./raw.mjs";
import { accept } from "./schemas.mjs";

const List = rpc("LIST", { n: z.number(), end: z.string() }, "LIST_END", { count: z.number() });
accept(List.response);

// items returns the next n items of a stream.
async function items(raw, id, n) {
  const list = [];
  while (list.length < n) {
    const { type, payload } = await raw.answer(id);
    assert.equal(type, "$ws:rpc-progress", JSON.stringify(payload));
    list.push(payload.i);
  }
  return list;
}

test("a client of ws-kit reads a stream that ends with a reply", async () => {
  const c = connect("ann");
  const items = [];
  const { payload } = await c.request(List, { n: 2000, end: "reply" }, { onProgress: ({ i }) => items.push(i) });
  assert.deepEqual(payload, { count: 2000 });
  assert.deepEqual(items, [...Array(2000).keys()]);
  const failed = c.request(List, { n: 3, end: "error" }, { onProgress: ({ i }) => items.push(i) });
  assert.equal((await rejection(failed)).code, "NOT_FOUND");
  assert.equal(items.length, 2003);
  await c.finish({ "$ws:rpc-progress": 2003, LIST_END: 1, RPC_ERROR: 1 });
});

test("a stream ends with $ws:stream-end", async () => {
  const raw = await Raw.open("ann");
  raw.send("LIST", { correlationId: "s1" }, { n: 3, end: "" });
  assert.deepEqual(await items(raw, "s1", 3), [0, 1, 2]);
  const end = await raw.answer("s1");
  assert.equal(end.type, "$ws:stream-end");
  assert.ok(!("payload" in end));
  await raw.close();
});

test("$ws:credit grants items", async () => {
  const raw = await Raw.open("ann");
  await raw.ofType("NOTE");
  raw.send("LIST", { correlationId: "c1", credit: 2 }, { n: 6, end: "reply" });
  assert.deepEqual(await items(raw, "c1", 2), [0, 1]);
  assert.deepEqual(await raw.rest(), [], "no item without credit");
  raw.send("$ws:credit", { correlationId: "c1", credit: 3 });
  assert.deepEqual(await items(raw, "c1", 3), [2, 3, 4]);
  assert.deepEqual(await raw.rest(), []);
  raw.send("$ws:credit", { correlationId: "c1", credit: 1 });
  assert.deepEqual(await items(raw, "c1", 1), [5]);
  assert.equal((await raw.answer("c1")).type, "LIST_END", "the end needs no credit");
  raw.send("$ws:credit", { correlationId: "c1", credit: 1 }); // the stream has ended
  assert.deepEqual(await raw.rest(), []);
  await raw.close();
});

test("$ws:abort ends a stream", async () => {
  const raw = await Raw.open("ann");
  await raw.ofType("NOTE");
  raw.send("LIST", { correlationId: "a1", credit: 10 }, { n: 1_000_000, end: "" });
  assert.equal((await items(raw, "a1", 10)).at(-1), 9);
  raw.send("$ws:abort", { correlationId: "a1" });
  const { type, payload } = await raw.answer("a1");
  assert.deepEqual([type, payload.code], ["RPC_ERROR", "CANCELLED"]);
  raw.send("LIST", { correlationId: "a2" }, { n: 1_000_000, end: "" });
  await items(raw, "a2", 10);
  raw.send("$ws:abort", { correlationId: "a2" });
  let last;
  do last = await raw.answer("a2");
  while (last.type === "$ws:rpc-progress");
  assert.equal(last.payload.code, "CANCELLED");
  assert.deepEqual(await raw.rest(), []);
  await raw.close();
});

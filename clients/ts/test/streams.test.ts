import assert from "node:assert/strict";
import { test } from "node:test";

import { connected, outcome, settled } from "./fixture.ts";
import { stream } from "../src/streams.ts";

test("rule 29: a stream yields its items in order, and then the reply", async () => {
  const f = await connected();
  const replies: unknown[] = [];
  const rows: unknown[] = [];
  const done = (async () => {
    for await (const row of stream(f.client, "EXPORT", { table: "users" }, { onReply: (r) => replies.push(r) })) rows.push(row);
  })();
  const sent = f.first.last("EXPORT");
  assert.equal(sent.meta.credit, 16);
  assert.equal(sent.meta.timeoutMs, undefined);
  for (let i = 0; i < 5; i++) f.first.answer(sent, "$ws:rpc-progress", i);
  f.first.answer(sent, "EXPORTED", { rows: 5 });
  f.first.end(1006);
  await done;
  assert.deepEqual(rows, [0, 1, 2, 3, 4]);
  assert.deepEqual(replies, [{ rows: 5 }]);
});

test("rule 26: a consumer that waits grants no credits", async () => {
  const f = await connected();
  const items = stream(f.client, "EXPORT", {}, { credit: 4 });
  const first = items.next();
  const sent = f.first.last("EXPORT");
  for (let i = 0; i < 4; i++) f.first.answer(sent, "$ws:rpc-progress", i);
  assert.deepEqual(await first, { value: 0, done: false });
  assert.equal(f.first.all("$ws:credit").length, 0);
  await items.next();
  await items.next();
  assert.deepEqual(f.first.all("$ws:credit").map((s) => s.meta), [{ correlationId: sent.meta.correlationId, credit: 2 }]);
  await items.next();
  void items.next();
  await settled();
  assert.deepEqual(f.first.all("$ws:credit").map((s) => s.meta.credit), [2, 2]);
});

test("rule 27: break aborts the stream on the wire", async () => {
  const f = await connected();
  const done = (async () => {
    for await (const _ of stream(f.client, "EXPORT", {})) break;
  })();
  const sent = f.first.last("EXPORT");
  f.first.answer(sent, "$ws:rpc-progress", 1);
  await done;
  assert.deepEqual(f.first.all("$ws:abort").map((s) => s.meta.correlationId), [sent.meta.correlationId]);
  f.first.answer(sent, "$ws:rpc-progress", 2);
  f.first.reject(sent, "CANCELLED");
});

test("rule 27: return ends a next that waits", async () => {
  const f = await connected();
  const items = stream(f.client, "EXPORT", {});
  const next = outcome(items.next());
  await items.return(undefined as never).catch(() => {});
  await next;
  assert.equal(f.first.all("$ws:abort").length, 1);
});

test("rule 27: a stream that nothing is read from sends nothing", async () => {
  const f = await connected();
  const items = stream(f.client, "EXPORT", {});
  await items.return(undefined as never);
  assert.deepEqual(f.first.all("EXPORT"), []);
});

test("rule 28: a lost connection ends a stream after its items, with an unknown outcome", async () => {
  const f = await connected();
  const items = stream(f.client, "EXPORT", {});
  const first = items.next();
  f.first.answer(f.first.last("EXPORT"), "$ws:rpc-progress", 1);
  f.first.end(1006);
  assert.deepEqual(await first, { value: 1, done: false });
  const { error } = (await outcome(items.next()))!;
  assert.deepEqual([error.code, error.mayHaveExecuted], ["ABORTED", true]);
});

test("an error of the server, and a signal, end a stream", async () => {
  const f = await connected();
  const items = stream(f.client, "EXPORT", {});
  const next = outcome(items.next());
  f.first.reject(f.first.last("EXPORT"), "UNAVAILABLE", { retryable: true });
  assert.equal((await next)?.error.code, "UNAVAILABLE");
  const controller = new AbortController();
  const second = outcome(stream(f.client, "EXPORT", {}, { signal: controller.signal }).next());
  controller.abort("enough");
  assert.equal((await second)?.error.code, "CANCELLED");
  assert.equal(f.first.all("$ws:abort").length, 1);
});

test("the end of a stream without reply", async () => {
  const f = await connected();
  const items = stream(f.client, "EXPORT", {});
  const next = items.next();
  f.first.answer(f.first.last("EXPORT"), "$ws:stream-end");
  assert.deepEqual(await next, { value: undefined, done: true });
});

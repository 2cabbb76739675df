import assert from "node:assert/strict";
import { test } from "node:test";

import type { Client } from "../src/index.ts";
import { attach, stop, type Run, type RunEnd } from "../src/run.ts";
import { connected, outcome, settled, type Fixture, type TestSocket } from "./fixture.ts";

interface Token {
  text: string;
}

interface Contract {
  calls: { "token.stop": { request: { topic: string; run: string }; reply: Ended; progress: never }; ASK: { request: {}; reply: {}; progress: never } };
  streams: {
    "token.attach": { request: { topic: string; run?: string; from?: number }; item: { n: number; count?: number; run?: string; item?: Token }; reply: Ended };
    EXPORT: { request: {}; item: {}; reply: undefined };
  };
  topics: { [T in `answer/${string}`]: { messages: "run.changed" } };
}

interface Ended {
  run: string;
  state: string;
  items: number;
  by?: string;
  error?: { code: string; message?: string; details?: Record<string, unknown>; retryable: boolean; retryAfterMs?: number };
}

const merge = (a: Token, b: Token): Token | undefined => (b.text === "|" ? undefined : { text: a.text + b.text });

// The compiler checks it. It is not called.
export async function typed(client: Client<Contract>): Promise<void> {
  const run = attach(client, "token", "answer/1", { from: 1, merge });
  for await (const { number, count, item } of run) [number satisfies number, count satisfies number, item.text satisfies string];
  run.end?.error?.code satisfies string | undefined;
  (await stop(client, "token", "answer/1", "R")) satisfies RunEnd;
  // @ts-expect-error: there are no such runs
  attach(client, "EXPORT", "answer/1");
  // @ts-expect-error: no pattern matches the topic
  attach(client, "token", "room/1");
  // @ts-expect-error: the ID is required
  await stop(client, "token", "answer/1");
  // @ts-expect-error: the item has no such member
  for await (const { item } of run) item.x;
  for await (const { item } of attach({} as Client, "any", "any")) item.whatever;
}

/** Reads a run to its end or an error, and keeps what it has received. */
function reading(run: Run<any>) {
  const texts: string[] = [];
  const done = (async () => {
    for await (const { number, count, item } of run) texts.push(`${number}+${count} ${item.text}`);
  })();
  done.catch(() => {}); // outcome looks at it later
  return { texts, outcome: () => outcome(done) };
}

/** Opens another connection after one that was lost. */
async function reconnected(f: Fixture): Promise<TestSocket> {
  await f.clock.advance(20_000);
  return f.greet();
}

const completed = { run: "R", state: "completed", items: 3 };

test("a run is read to its end, which the loop does not throw", async () => {
  const f = await connected();
  const run = attach(f.client, "token", "answer/1");
  const { texts, outcome } = reading(run);
  const sent = f.first.last("token.attach");
  assert.deepEqual(sent.payload, { topic: "answer/1", from: 0 });
  assert.equal(sent.meta.credit, 32);
  assert.deepEqual([run.run, run.next, run.end], [undefined, 0, undefined]);
  f.first.answer(sent, "$ws:rpc-progress", { run: "R", n: 0 });
  f.first.answer(sent, "$ws:rpc-progress", { n: 0, item: { text: "a" } });
  f.first.answer(sent, "$ws:rpc-progress", { n: 1, count: 2, item: { text: "bc" } });
  f.first.answer(sent, "run.ended", { ...completed, state: "exhausted", by: "ann", error: { code: "RESOURCE_EXHAUSTED", message: "none left", retryable: true, retryAfterMs: 7, details: { policy: "day" } } });
  assert.deepEqual(await outcome(), { value: undefined });
  assert.deepEqual(texts, ["0+1 a", "1+2 bc"]);
  const { error, ...end } = run.end!;
  assert.deepEqual(end, { run: "R", state: "exhausted", items: 3, by: "ann" });
  assert.deepEqual([error!.code, error!.message, error!.retryAfterMs, error!.details], ["RESOURCE_EXHAUSTED", "none left", 7, { policy: "day" }]);
  const again = reading(run);
  assert.deepEqual([await again.outcome(), again.texts], [{ value: undefined }, []]);
});

test("after a lost connection, a run is read behind the last item", async () => {
  const f = await connected();
  const run = attach(f.client, "token", "answer/1");
  const { texts, outcome } = reading(run);
  let sent = f.first.last("token.attach");
  f.first.answer(sent, "$ws:rpc-progress", { run: "R", n: 0 });
  f.first.answer(sent, "$ws:rpc-progress", { n: 0, count: 2, item: { text: "ab" } });
  f.first.end(1006);
  const second = await reconnected(f);
  sent = second.last("token.attach");
  assert.deepEqual(sent.payload, { topic: "answer/1", run: "R", from: 2 });
  second.answer(sent, "$ws:rpc-progress", { run: "R", n: 2 });
  second.answer(sent, "$ws:rpc-progress", { n: 2, item: { text: "c" } });
  second.answer(sent, "run.ended", completed);
  assert.deepEqual(await outcome(), { value: undefined });
  assert.deepEqual(texts, ["0+2 ab", "2+1 c"]);
  assert.deepEqual(run.end, completed);
});

test("a server that restarts is asked again after a delay, and other errors end the loop", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  t.mock.method(Math, "random", () => 0.5);
  const f = await connected();
  const { outcome } = reading(attach(f.client, "token", "answer/1"));
  for (const [n, delay] of [250, 500, 1000 + 70].entries()) {
    f.first.reject(f.first.last("token.attach"), "UNAVAILABLE", { retryable: true, ...(n === 2 && { retryAfterMs: 70 }) });
    await settled();
    t.mock.timers.tick(delay - 1);
    await settled();
    assert.equal(f.first.all("token.attach").length, n + 1);
    t.mock.timers.tick(1);
    await settled();
    assert.equal(f.first.all("token.attach").length, n + 2);
  }
  const sent = f.first.last("token.attach");
  f.first.answer(sent, "$ws:rpc-progress", { run: "R", n: 0 });
  f.first.answer(sent, "$ws:stream-end");
  await settled();
  t.mock.timers.tick(250); // as after the first failure
  await settled();
  assert.equal(await outcome(), undefined);
  f.first.reject(f.first.last("token.attach"), "NOT_FOUND");
  assert.equal((await outcome())?.error.code, "NOT_FOUND");
});

test("no timer is longer than the longest one that does not fire at once", async (t) => {
  const waits: unknown[] = [];
  t.mock.method(globalThis, "setTimeout", (_: () => void, ms: number) => waits.push(ms));
  const f = await connected();
  reading(attach(f.client, "token", "answer/1"));
  void outcome(stop(f.client, "token", "answer/1", "R"));
  for (const type of ["token.attach", "token.stop"])
    f.first.reject(f.first.last(type), "RESOURCE_EXHAUSTED", { retryable: true, retryAfterMs: 30 * 24 * 3_600_000 });
  await settled();
  assert.deepEqual(waits, [2 ** 31 - 1, 2 ** 31 - 1]);
});

test("a part with another number ends the loop", async () => {
  const f = await connected();
  for (const n of [0, 2]) {
    const { texts, outcome } = reading(attach(f.client, "token", "answer/1", { from: 1 }));
    f.first.answer(f.first.last("token.attach"), "$ws:rpc-progress", { n, item: { text: "a" } });
    assert.equal((await outcome())?.error.message, `the server has sent item ${n} of the run; it must be 1`);
    assert.deepEqual(texts, []);
  }
  assert.equal(f.first.all("$ws:abort").length, 2);
});

test("a signal, and the end of the client, end the loop", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const f = await connected();
  const controller = new AbortController();
  const waiting = reading(attach(f.client, "token", "answer/1", { signal: controller.signal }));
  const delayed = reading(attach(f.client, "token", "answer/2", { signal: controller.signal }));
  f.first.reject(f.first.last("token.attach"), "UNAVAILABLE", { retryable: true });
  await settled();
  controller.abort("enough");
  for (const { outcome } of [waiting, delayed]) {
    const { code, cause } = (await outcome())!.error;
    assert.deepEqual([code, cause], ["CANCELLED", "enough"]);
  }
  const closed = reading(attach(f.client, "token", "answer/1"));
  f.client.close();
  assert.equal((await closed.outcome())?.error.code, "UNAVAILABLE");
  assert.equal((await reading(attach(f.client, "token", "answer/1")).outcome())?.error.code, "UNAVAILABLE");
});

test("parts are merged with what the reader has", async () => {
  const f = await connected();
  const run = attach(f.client, "token", "answer/1", { merge });
  const { texts } = reading(run);
  const sent = f.first.last("token.attach");
  f.first.answer(sent, "$ws:rpc-progress", { run: "R", n: 0 });
  for (const [n, text] of ["a", "b", "|", "c"].entries()) f.first.answer(sent, "$ws:rpc-progress", { n, item: { text } });
  await settled();
  assert.deepEqual(texts, ["0+1 a", "0+2 ab", "2+1 |", "2+2 |c"]);
  assert.equal(run.next, 4);
});

test("stop returns the end, and is sent again after a lost connection", async () => {
  const f = await connected();
  const stopped = stop(f.client, "token", "answer/1", "R");
  assert.deepEqual(f.first.last("token.stop").payload, { topic: "answer/1", run: "R" });
  f.first.end(1006);
  const second = await reconnected(f);
  second.answer(second.last("token.stop"), "run.ended", { ...completed, state: "stopped", by: "ann" });
  assert.deepEqual(await stopped, { ...completed, state: "stopped", by: "ann" });
  const missing = outcome(stop(f.client, "token", "answer/2", "R"));
  second.reject(second.last("token.stop"), "NOT_FOUND");
  assert.equal((await missing)?.error.code, "NOT_FOUND");
});

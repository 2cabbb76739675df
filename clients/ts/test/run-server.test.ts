// Tests of runs with a Penstock server, whose URL is in PENSTOCK_URL; see internal/interop/tsclient.

import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { WebSocket as NodeWebSocket } from "ws";

import { cbor } from "../src/cbor.ts";
import { createClient, type Client, type ClientOptions } from "../src/index.ts";
import { attach, stop } from "../src/run.ts";

interface Token {
  text: string;
}

interface Contract {
  calls: {
    START: { request: { topic: string; items: number; everyMs?: number; wait?: boolean }; reply: { run: string } };
    "token.stop": { request: { topic: string; run: string }; reply: {}; progress: never };
  };
  streams: { "token.attach": { request: { topic: string }; item: { n: number; item?: Token }; reply: {} } };
  topics: { [T in `answer/${string}`]: { messages: "run.changed" } };
}

const clients = new Set<Client<Contract>>();
afterEach(() => {
  for (const client of clients) client.close();
  clients.clear();
});

/** Creates a client, and returns a function that cuts its connection without a close frame. */
function create(options: Partial<ClientOptions> = {}) {
  const sockets: any[] = [];
  function Socket(url: string, protocols: string[]) {
    const socket = new (NodeWebSocket as any)(url, protocols);
    sockets.push(socket);
    return socket;
  }
  const client = createClient<Contract>({ url: process.env.PENSTOCK_URL!, token: () => "ann", webSocket: Socket as any, random: () => 0, ...(process.env.PENSTOCK_CBOR && cbor()), ...options });
  clients.add(client);
  return { client, cut: () => sockets.at(-1).terminate(), connections: () => sockets.length };
}

const text = (from: number, to: number) => Array.from({ length: to - from }, (_, n) => `${from + n} `).join("");

test("every reader receives each item once under cuts, wherever it begins", async () => {
  const items = 1000;
  const { client } = create();
  const { run } = await client.call("START", { topic: "answer/cuts", items, everyMs: 1 });
  const readers = [0, 1, 2, 3, 4, 5].map(async (n) => {
    const reader = create();
    const from = 100 * n;
    const answer = attach(reader.client, "token", "answer/cuts", n % 2 ? { run, from } : { from });
    let [received, count, cuts] = ["", 0, 0];
    for await (const part of answer) {
      assert.equal(part.number, from + count);
      received += part.item.text;
      count += part.count;
      if (count > 150 * (cuts + 1)) {
        reader.cut();
        cuts++;
      }
    }
    assert.equal(received, text(from, items));
    assert.deepEqual([count, answer.next, answer.run], [items - from, items, run]);
    assert.deepEqual(answer.end, { run, state: "completed", items });
    assert.ok(cuts > 0 && reader.connections() > 1, `${cuts} cuts, ${reader.connections()} connections`);
  });
  await Promise.all(readers);
});

test("a slow reader receives merged parts, and detaching stops nothing", async () => {
  const { client } = create();
  const items = 300;
  const { run } = await client.call("START", { topic: "answer/slow", items, everyMs: 20 }); // the first part arrives before the last item
  const slow = attach(client, "token", "answer/slow", { run });
  for await (const _ of slow) break;
  const { next } = slow;
  assert.ok(next >= 1 && next < items);
  const fast = attach(create().client, "token", "answer/slow", { run });
  for await (const _ of fast);
  assert.deepEqual([fast.next, fast.end?.state], [items, "completed"]);
  const rest = [];
  for await (const { number, count, item } of slow) rest.push({ number, count, item });
  assert.deepEqual(rest, [{ number: next, count: items - next, item: { text: text(next, items) } }]);
});

test("a reader that waits receives the items that its credits permit, and the rest merged", async () => {
  const { client } = create();
  const items = 120;
  const { run } = await client.call("START", { topic: "answer/credits", items, everyMs: 30 });
  const parts = [];
  for await (const part of attach(client, "token", "answer/credits", { run })) {
    if (parts.push(part) > 1) continue;
    for await (const _ of attach(create().client, "token", "answer/credits", { run })); // until the end
  }
  // 32 credits: the part that names the run, and 31 with items. One more waits for a credit while the rest is merged.
  assert.equal(parts.length, 33);
  assert.equal(parts.map(({ item }) => item.text).join(""), text(0, items));
  assert.ok(parts.at(-1)!.count > 20, String(parts.at(-1)!.count));
});

test("a run is stopped by its ID, and another topic has none", async () => {
  const { client } = create();
  const { run } = await client.call("START", { topic: "answer/stop", items: 3, wait: true });
  const answer = attach(client, "token", "answer/stop", { merge: (a, b) => ({ text: a.text + b.text }) });
  let received = "";
  for await (const { number, count, item } of answer) {
    assert.equal(number, 0);
    received = item.text;
    if (count === 3) assert.equal((await stop(client, "token", "answer/stop", run)).state, "stopped");
  }
  assert.equal(received, text(0, 3));
  const { error, ...end } = answer.end!;
  assert.deepEqual([error?.code, end], ["CANCELLED", { run, state: "stopped", items: 3, by: "ann" }]);
  assert.deepEqual((await stop(client, "token", "answer/stop", run)).items, 3);
  for (const topic of ["answer/none", "answer/secret"] as const) {
    await assert.rejects(stop(client, "token", topic, run), { code: "NOT_FOUND" });
    await assert.rejects(async () => {
      for await (const _ of attach(client, "token", topic, { run }));
    }, { code: "NOT_FOUND" });
  }
});

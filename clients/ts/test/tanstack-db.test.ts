// Tests of collections with TanStack DB and a Penstock server, whose URL is in PENSTOCK_URL; see internal/interop/tsclient.

import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { createCollection } from "@tanstack/db";
import { WebSocket as NodeWebSocket } from "ws";

import { createClient, type Client, type ClientOptions } from "../src/index.ts";
import { topicCollectionOptions } from "../src/tanstack-db.ts";

interface Price {
  share: string;
  value: number;
}

interface Contract {
  events: { PRICE: Price; DELISTED: { share: string }; SAY: { topic: string; text: string } };
  calls: { ASK: { request: { do?: string; n?: number }; reply: { n: number } } };
  received: { PRICE: Price; DELISTED: { share: string }; SAID: { text: string } };
  topics: { [T in `room/${string}`]: { messages: "SAID" } } & { prices: { messages: "PRICE" | "DELISTED" } };
}

const clients = new Set<Client<Contract>>();
afterEach(() => {
  for (const client of clients) client.close();
  clients.clear();
});

let users = 0;

function create(options: Partial<ClientOptions> = {}): Client<Contract> {
  const user = `tanstack${++users}`;
  const client = createClient<Contract>({ url: process.env.PENSTOCK_URL!, token: () => user, webSocket: NodeWebSocket as any, random: () => 0, ...options });
  clients.add(client);
  return client;
}

/** Resolves when the condition holds, which is checked again after each event. */
async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 5));
}

function collect(client: Client<Contract>) {
  return createCollection(
    topicCollectionOptions({
      client,
      topic: "prices",
      getKey: (price: Price) => price.share,
      rows: { PRICE: (price) => price },
      removed: { DELISTED: ({ share }) => share },
    }),
  );
}

/** The rows of a test, whose shares begin with a prefix. */
function shown(collection: ReturnType<typeof collect>, prefix: string): string {
  const own = collection.toArray.filter(({ share }) => share.startsWith(prefix));
  return own.map(({ share, value }) => share.slice(prefix.length) + value).sort().join();
}

test("a collection has the state of the topic, and its changes", async () => {
  const [writer, reader] = [create(), create()];
  const empty = collect(reader);
  await empty.preload();
  assert.equal(empty.size, 0);
  for (const value of [1, 2]) await writer.sendWithAck("PRICE", { share: "a/x", value });
  await writer.sendWithAck("PRICE", { share: "a/y", value: 1 });
  const collection = collect(create());
  await collection.preload();
  assert.equal(shown(collection, "a/"), "x2,y1");
  const changes: string[] = [];
  collection.subscribeChanges((all) => changes.push(...all.map(({ type, key }) => `${type} ${key}`)), { includeInitialState: true });
  changes.length = 0;
  await writer.sendWithAck("PRICE", { share: "a/x", value: 3 });
  await writer.sendWithAck("DELISTED", { share: "a/y" });
  await writer.sendWithAck("DELISTED", { share: "a/unknown" });
  await writer.sendWithAck("PRICE", { share: "a/y", value: 4 });
  await until(() => shown(collection, "a/") === "x3,y4" && shown(empty, "a/") === "x3,y4");
  assert.deepEqual(changes, ["update a/x", "delete a/y", "insert a/y"]);
});

test("a client that has lost its position replaces all rows at once", async () => {
  const writer = create();
  const url = process.env.PENSTOCK_URL!;
  let gate: Promise<string> | string = url;
  let open = (_: string) => {};
  const reader = create({ url: () => gate });
  for (const share of ["b/x", "b/y"]) await writer.sendWithAck("PRICE", { share, value: 1 });
  const collection = collect(reader);
  await collection.preload();
  const seen = new Set<string>();
  collection.subscribeChanges(() => seen.add(shown(collection, "b/")));

  // What was missed is in the history.
  gate = new Promise((resolve) => (open = resolve));
  void reader.call("ASK", { do: "disconnect", n: 4000 });
  await until(() => reader.state !== "open");
  await writer.sendWithAck("PRICE", { share: "b/x", value: 2 });
  open(url);
  await until(() => shown(collection, "b/") === "x2,y1");

  gate = new Promise((resolve) => (open = resolve));
  void reader.call("ASK", { do: "disconnect", n: 4000 });
  await until(() => reader.state !== "open");
  await writer.sendWithAck("DELISTED", { share: "b/y" });
  for (let value = 3; value <= 103; value++) await writer.sendWithAck("PRICE", { share: "b/x", value }); // twice the history
  open(url);
  await until(() => shown(collection, "b/") === "x103");
  assert.deepEqual([...seen], ["x2,y1", "x103"]);
  await writer.sendWithAck("PRICE", { share: "b/z", value: 1 });
  await until(() => shown(collection, "b/") === "x103,z1");
});

test("a collection that is cleaned up is not subscribed", async () => {
  const reader = create();
  const collection = collect(reader);
  await collection.preload();
  assert.equal(reader.inspect().topics.length, 1);
  await collection.cleanup();
  await until(() => reader.inspect().topics.length === 0);
  await collection.preload();
  assert.equal(reader.inspect().topics.length, 1);
});

test("messages without a row are part of the state, and rows that throw", async () => {
  const [writer, reader] = [create(), create()];
  for (const share of ["c/x", "c/y"]) await writer.sendWithAck("PRICE", { share, value: 1 });
  const errors: unknown[] = [];
  reader.onError((error) => errors.push(error));
  const bare = topicCollectionOptions({ client: reader, topic: "prices", getKey: (price: Price) => price.share, rows: {} });
  const none = createCollection(bare);
  await none.preload();
  assert.equal(none.size, 0);
  const strict = topicCollectionOptions({
    ...{ client: reader, topic: "prices" as const, getKey: (price: Price) => price.share },
    rows: {
      PRICE(price) {
        if (price.share === "c/y") throw new Error("no row");
        return price;
      },
    },
  });
  const rest = createCollection(strict);
  await rest.preload();
  assert.equal(shown(rest, "c/"), "x1");
  assert.equal(String(errors[0]), "Error: no row");
});

test("a rejected subscription is the error of the collection", async () => {
  const options = topicCollectionOptions({ client: create(), topic: "room/secret", getKey: ({ text }: { text: string }) => text, rows: { SAID: (said) => said } });
  const collection = createCollection(options);
  await assert.rejects(collection.preload(), { code: "PERMISSION_DENIED" });
  assert.equal(collection.status, "error");
});

test("why a client is closed is the error of the collection, until the client connects again", async () => {
  const client = create({ stopOn: (code) => code === 4800 });
  const collection = collect(client);
  await collection.preload();
  void client.call("ASK", { do: "disconnect", n: 4800 });
  await until(() => collection.status === "error");
  await client.connect();
  await until(() => collection.status === "ready");

  const loading = collect(create({ url: "ws://localhost:1" }));
  const loaded = loading.preload();
  for (const other of clients) other.close();
  await assert.rejects(loaded, { code: "CANCELLED" });
  const late = collect(client);
  await assert.rejects(late.preload(), { code: "UNAVAILABLE" });
});

// Tests with a Penstock server, whose URL is in PENSTOCK_URL, by WebSocket, or over HTTP in the mode that is in PENSTOCK_HTTP; see
// internal/interop/tsclient.

import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { WebSocket as NodeWebSocket } from "ws";

import { createClient, PenstockError, type Client, type ClientOptions } from "../src/index.ts";
import { cbor } from "../src/cbor.ts";
import { fallback } from "../src/fallback.ts";
import { latency } from "../src/latency.ts";
import { pacing } from "../src/pacing.ts";
import { tryCall } from "../src/try-call.ts";
import { serving } from "../src/serving.ts";
import { stream } from "../src/streams.ts";

interface Contract {
  events: { SAY: { topic: string; text: string }; PRICE: { share: string; value: number }; PACED: { N: number }; HIDDEN: { N: number } };
  calls: { ASK: { request: { do?: string; n?: number }; reply: { n: number }; progress: number; errors: { code: "NO_LUCK"; details: { left: number } } } };
  streams: { EXPORT: { request: { n: number }; item: { n: number }; reply: { rows: number } } };
  received: { SAID: { text: string }; PRICE: { share: string; value: number } };
  served: { CONFIRM: { request: { question: string }; reply: { yes: boolean }; replyType: "CONFIRMED" } };
  topics: { [T in `room/${string}`]: { messages: "SAID" } } & { prices: { messages: "PRICE" } };
}

const clients = new Set<Client<Contract>>();
afterEach(() => {
  for (const client of clients) client.close();
  clients.clear();
});

const url = process.env.PENSTOCK_URL!;
const mode = process.env.PENSTOCK_HTTP as "stream" | "poll" | undefined;

/** The transport of a client: HTTP if the environment says so. */
const webSocket = (): any => (mode ? fallback({ url: url.replace("ws", "http") + "/http", mode, webSocket: NodeWebSocket as any }) : NodeWebSocket);

let users = 0;

function create(options: Partial<ClientOptions> = {}): Client<Contract> {
  const user = `user${++users}`;
  const client = createClient<Contract>({ url, token: () => user, webSocket: webSocket(), serving, ...(process.env.PENSTOCK_CBOR ? cbor() : {}), ...options });
  clients.add(client);
  return client;
}

/** Resolves when the condition holds, which is checked again after each event. */
async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 5));
}

const failure = (promise: Promise<unknown>): Promise<PenstockError> =>
  promise.then(
    (value) => assert.fail(JSON.stringify(value)),
    (error) => error,
  );

test("calls, progress, errors, deadlines and aborts", async () => {
  const client = create();
  const progress: number[] = [];
  assert.deepEqual(await client.call("ASK", { do: "progress", n: 3 }, { onProgress: (p) => progress.push(p) }), { n: 3 });
  assert.deepEqual(progress, [0, 1, 2]);
  const error = await failure(client.call("ASK", { do: "fail" }));
  assert.deepEqual([error.code, error.message, error.retryable], ["NOT_FOUND", "there is none", false]);
  assert.equal((await failure(client.call("ASK", { do: "wait" }, { timeoutMs: 50 }))).code, "DEADLINE_EXCEEDED");
  const controller = new AbortController();
  const aborted = failure(client.call("ASK", { do: "wait" }, { signal: controller.signal }));
  controller.abort();
  assert.equal((await aborted).code, "CANCELLED");
  assert.deepEqual(await Promise.all([1, 2, 3].map((n) => client.call("ASK", { n }))), [{ n: 1 }, { n: 2 }, { n: 3 }]);
});

test("the round trip is measured by a heartbeat", async () => {
  const client = create();
  assert.equal(await latency(client), undefined, "not connected");
  assert.equal(client.state, "idle", "measuring does not connect");
  await client.connect();
  const roundTrip = await latency(client);
  assert.ok(roundTrip! > 0 && roundTrip! < 10_000, String(roundTrip));
});

test("errors of calls as values", async () => {
  const client = create();
  assert.deepEqual(await tryCall(client, "ASK", { n: 3 }), { reply: { n: 3 } });
  const { reply, error } = await tryCall(client, "ASK", { do: "gamble", n: 2 }, { timeoutMs: 60_000 });
  assert.equal(reply, undefined);
  if (error?.code !== "NO_LUCK") assert.fail(error);
  assert.equal(error.details.left satisfies number, 2);
  assert.ok(error instanceof PenstockError);
  const cyclic: { n?: any } = {};
  cyclic.n = cyclic;
  assert.equal((await tryCall(client, "ASK", cyclic)).error?.code, "INVALID_ARGUMENT");
});

test("10,000 items of a stream arrive in order with few credits, and break ends another one", async () => {
  const client = create();
  let expected = 0;
  let reply: unknown;
  for await (const { n } of stream(client, "EXPORT", { n: 10_000 }, { credit: 8, onReply: (r) => (reply = r) })) assert.equal(n, expected++);
  assert.deepEqual(reply, { rows: 10_000 });
  for await (const { n } of stream(client, "EXPORT", { n: 1_000_000 })) if (n === 100) break;
  assert.deepEqual(await client.call("ASK", { n: 1 }), { n: 1 });
});

test("the server calls the client", async () => {
  const client = create();
  assert.equal((await failure(client.call("ASK", { do: "confirm", n: 1 }))).code, "UNIMPLEMENTED");
  client.handle("CONFIRM", "CONFIRMED", ({ question }) => ({ yes: question === "Sure?" }));
  assert.deepEqual(await client.call("ASK", { do: "confirm", n: 5 }), { n: 5 });
});

test("publications are received once and in order, whatever happens to the connection", async () => {
  const [writer, reader] = [create(), create({ random: () => 0 })];
  const topic = "room/lossless" as const;
  const said: string[] = [];
  const losses: unknown[] = [];
  let ready = 0;
  reader.subscribe(topic, { on: { SAID: (m) => said.push(m.text) }, onLoss: (loss) => losses.push(loss), onReady: () => ready++ });
  await until(() => ready === 1);
  for (let i = 0; i < 100; i++) {
    await writer.sendWithAck("SAY", { topic, text: `${i}` });
    if (i % 20 === 10) void reader.call("ASK", { do: "disconnect", n: 4000 + i });
  }
  await until(() => said.length >= 100);
  assert.deepEqual(said, Array.from({ length: 100 }, (_, i) => `${i}`));
  assert.deepEqual(losses, []);
});

test("a session continues the subscriptions of both sides", async () => {
  const [writer, reader] = [create(), create({ resume: true, random: () => 0 })];
  const resumed: unknown[] = [];
  const said: string[] = [];
  reader.onState((state, info) => state === "open" && resumed.push(info.resumed));
  reader.on("SAID", (m) => said.push(m.text));
  let ready = 0;
  reader.subscribe("room/session", { onReady: () => ready++ });
  await reader.call("ASK", { do: "join", n: 7 });
  await until(() => ready === 1);
  for (let i = 0; i < 30; i++) {
    await writer.sendWithAck("SAY", { topic: i % 2 ? "inbox/7" : "room/session", text: `${i}` });
    if (i % 10 === 5) void reader.call("ASK", { do: "disconnect", n: 1011 });
  }
  await until(() => said.length >= 30);
  for (const remainder of [0, 1]) {
    const texts = said.filter((text) => Number(text) % 2 === remainder);
    assert.deepEqual(texts, Array.from({ length: 15 }, (_, i) => `${2 * i + remainder}`));
  }
  assert.deepEqual(resumed, [false, ...resumed.slice(1).map(() => true)]);
  assert.ok(resumed.length > 1);
});

test("a session does not survive its end by the server", async () => {
  const client = create({ resume: true, random: () => 0 });
  const resumed: unknown[] = [];
  client.onState((state, info) => state === "open" && resumed.push(info.resumed));
  await client.call("ASK", { do: "join", n: 8 });
  void client.call("ASK", { do: "disconnect", n: 4000 });
  await until(() => resumed.length === 2);
  assert.deepEqual(resumed, [false, false]);
});

test("a subscription is rejected for good", async () => {
  const client = create();
  const error = await new Promise<PenstockError>((onEnd) => client.subscribe("room/secret", { onEnd }));
  assert.equal(error.code, "PERMISSION_DENIED");
});

test("the state of a topic arrives first", async () => {
  const [writer, reader] = [create(), create()];
  for (const value of [1, 2, 3]) await writer.sendWithAck("PRICE", { share: "A", value });
  await writer.sendWithAck("PRICE", { share: "B", value: 7 });
  const prices = new Map<string, number>();
  const states: number[] = [];
  reader.subscribe("prices", {
    onReset(messages) {
      states.push(messages);
      prices.clear();
    },
    on: { PRICE: ({ share, value }) => prices.set(share, value) },
  });
  await until(() => prices.get("A") === 3 && prices.get("B") === 7);
  await writer.sendWithAck("PRICE", { share: "A", value: 4 });
  await until(() => prices.get("A") === 4);
  assert.equal(states.length, 1);
});

test("presence of two clients", async () => {
  const [one, two] = [create(), create()];
  let members: string[] = [];
  one.subscribe("room/presence", { onPresence: (list) => (members = list.map((m) => m.userId!)) });
  await until(() => members.length === 1);
  const subscription = two.subscribe("room/presence");
  await until(() => members.length === 2);
  subscription.unsubscribe();
  await until(() => members.length === 1);
});

test("a token that is missing or of a banned user", async () => {
  const asked: boolean[] = [];
  const client = create({
    token: ({ expired }) => {
      asked.push(expired);
      return asked.length < 2 ? "" : "banned";
    },
  });
  const error = await failure(client.connect());
  assert.deepEqual([error.code, error.message], ["PERMISSION_DENIED", "you are banned"]);
  assert.deepEqual(asked, [false, true]);
  assert.equal(client.state, "closed");
});

test("an identity is refreshed before it expires", async () => {
  let tokens = 0;
  const client = create({ token: () => (++tokens, "brief") });
  await client.connect();
  const states: string[] = [];
  client.onState((state) => states.push(state));
  await until(() => tokens === 3);
  assert.deepEqual(states, []);
  await client.authenticate();
});

for (const [type, rate, name] of [
  ["PACED", 200, "announced"],
  ["HIDDEN", 100, "unknown"],
] as const) {
  test(`pacing by ${name} limits: all messages get through in order`, async () => {
    const client = create({ pacing, queue: { maxMessages: 10_000 } });
    await client.connect();
    const started = performance.now();
    const count = 600;
    let done = 0;
    await Promise.all(Array.from({ length: count }, (_, N) => client.sendWithAck(type, { N }).then(() => assert.equal(N, done++))));
    const seconds = (performance.now() - started) / 1000;
    assert.ok((count - 20) / seconds > 0.5 * rate, `${(count - 20) / seconds} per second`);
  });
}

test("nextAllowedAt after a rejection", async () => {
  const client = create();
  const outcomes = await Promise.allSettled(Array.from({ length: 30 }, (_, N) => client.sendWithAck("HIDDEN", { N })));
  const rejected = outcomes.filter((o) => o.status === "rejected");
  assert.ok(rejected.length > 0);
  assert.equal(typeof (rejected[0] as PromiseRejectedResult).reason.retryAfterMs, "number");
});

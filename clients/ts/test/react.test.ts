// Tests of the hooks with React and a Penstock server, whose URL is in PENSTOCK_URL; see internal/interop/tsclient.

import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { Window } from "happy-dom";
import { createElement as h, StrictMode, useState, type ReactNode } from "react";
import type { Root } from "react-dom/client";
import { renderToString } from "react-dom/server";
import { WebSocket as NodeWebSocket } from "ws";

import { createClient, type Client, type ClientOptions } from "../src/index.ts";
import { useClient, useClientState, useTopic, useWaitSeconds, type TopicReducer } from "../src/react.ts";

const window = new Window();
Object.assign(globalThis, { window, document: window.document }, globalThis.navigator ? {} : { navigator: window.navigator });
// react-dom looks for them when it is loaded.
const { createRoot, hydrateRoot } = await import("react-dom/client");

interface Contract {
  events: { SAY: { topic: string; text: string }; PRICE: { share: string; value: number }; PACED: { N: number } };
  calls: { ASK: { request: { do?: string; n?: number }; reply: { n: number } } };
  received: { SAID: { text: string }; PRICE: { share: string; value: number } };
  topics: { [T in `room/${string}`]: { messages: "SAID" } } & { prices: { messages: "PRICE" } };
}

// What the clients of a test have done.
let sockets = 0;
let sent: string[] = [];
let asked = 0; // for tokens

class CountingSocket extends (NodeWebSocket as unknown as typeof WebSocket) {
  constructor(url: string, protocols: string[]) {
    super(url, protocols);
    sockets++;
  }

  override send(data: string): void {
    sent.push(JSON.parse(data).type);
    super.send(data);
  }
}

const count = (type: string) => sent.filter((t) => t === type).length;

const ends: (() => void)[] = [];
afterEach(() => {
  for (const end of ends.splice(0)) end();
  [sockets, sent, asked] = [0, [], 0];
});

let users = 0;

function options(user = `react${++users}`): ClientOptions {
  return { url: process.env.PENSTOCK_URL!, token: () => (asked++, user), webSocket: CountingSocket as any, random: () => 0, page: null };
}

function create(user?: string): Client<Contract> {
  const client = createClient<Contract>(options(user));
  ends.push(() => client.close());
  return client;
}

/** Sends without being counted. */
function createWriter(): Client<Contract> {
  const writer = createClient<Contract>({ ...options(), webSocket: NodeWebSocket as any });
  ends.push(() => writer.close());
  return writer;
}

/** A page with a component. */
function show(node: ReactNode): { root: Root; container: HTMLElement } {
  const container = document.createElement("div");
  const root = createRoot(container);
  root.render(node);
  ends.push(() => root.unmount());
  return { root, container };
}

/** Resolves when the condition holds, which is checked again after each event. */
async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 5));
}

const texts: TopicReducer<Contract, `room/${string}`, string[]> = { initial: [], on: { SAID: (all, { text }) => [...all, text] } };

const prices: TopicReducer<Contract, "prices", Record<string, number>> = {
  initial: {},
  onReset: () => ({}),
  on: { PRICE: (all, { share, value }) => ({ ...all, [share]: value }) },
};

function Room({ client, room }: { client: Client<Contract>; room: string }) {
  const { data, ready, error } = useTopic(client, `room/${room}`, texts);
  data satisfies string[];
  return h("p", null, `${room}:${ready ? "ready" : ""}:${data.join(",")}:${error?.code ?? ""};`);
}

function Prices({ client }: { client: Client<Contract> }) {
  return h("p", null, Object.entries(useTopic(client, "prices", prices).data).filter(([share]) => share.startsWith("R")).map(String).sort().join(" "));
}

function State({ client }: { client: Client<Contract> }) {
  const { state, error } = useClientState(client);
  return h("i", null, error ? `${state} ${error.code}` : state);
}

/** An application with a client of its own. */
function App({ room, token }: { room: string; token?: string }) {
  const [created] = useState(() => options(token));
  const client = useClient<Contract>(created);
  return [h(Room, { client, room, key: 1 }), h(Room, { client, room, key: 2 }), h(State, { client, key: 3 })];
}

test("under StrictMode, two components have one connection and one subscription", async () => {
  const writer = createWriter();
  const { root, container } = show(h(StrictMode, null, h(App, { room: "strict" })));
  await until(() => container.textContent === "strict:ready::;strict:ready::;open");
  for (const text of ["a", "b"]) await writer.sendWithAck("SAY", { topic: "room/strict", text });
  await until(() => container.textContent === "strict:ready:a,b:;strict:ready:a,b:;open");
  assert.deepEqual([sockets, count("$ws:hello"), count("$ws:subscribe")], [1, 1, 1]);
  root.unmount();
  await until(() => container.textContent === "");
});

test("components share the subscription of an open client, and the last one ends it", async () => {
  const [client, writer] = [create(), createWriter()];
  await writer.sendWithAck("PRICE", { share: "R1", value: 1 });
  await client.connect();
  const one = show(h(StrictMode, null, h(Prices, { client })));
  await until(() => one.container.textContent === "R1,1");
  const two = show(h(StrictMode, null, h(Prices, { client })));
  await until(() => two.container.textContent === "R1,1"); // which is not loaded again
  one.root.unmount();
  await writer.sendWithAck("PRICE", { share: "R1", value: 2 });
  await until(() => two.container.textContent === "R1,2");
  assert.deepEqual([count("$ws:subscribe"), count("$ws:unsubscribe")], [1, 0]);
  two.root.unmount();
  await until(() => client.inspect().topics.length === 0);
  assert.equal(count("$ws:unsubscribe"), 1);
  const three = show(h(Prices, { client }));
  await writer.sendWithAck("PRICE", { share: "R1", value: 3 });
  await until(() => three.container.textContent === "R1,3");
});

test("a component begins with the latest messages", async () => {
  const [client, writer] = [create(), createWriter()];
  for (const text of ["a", "b", "c"]) await writer.sendWithAck("SAY", { topic: "room/last", text });
  const latest: typeof texts = { ...texts, last: 2 };
  const Latest = () => h("p", null, useTopic(client, "room/last", latest).data.join());
  const { container } = show(h(Latest));
  await until(() => container.textContent === "b,c");
  await writer.sendWithAck("SAY", { topic: "room/last", text: "d" });
  await until(() => container.textContent === "b,c,d");
});

test("a component shows another topic", async () => {
  const [client, writer] = [create(), createWriter()];
  const { root, container } = show(h(Room, { client, room: "first" }));
  await until(() => container.textContent === "first:ready::;");
  await writer.sendWithAck("SAY", { topic: "room/first", text: "a" });
  await until(() => container.textContent === "first:ready:a:;");
  root.render(h(Room, { client, room: "second" }));
  await until(() => container.textContent === "second:ready::;");
  await until(() => client.inspect().topics.map(({ topic }) => topic).join() === "room/second");
});

test("a rejected subscription, a client that is closed, and another user", async () => {
  let user = "one";
  const client = createClient<Contract>({ ...options(), token: () => user });
  ends.push(() => client.close());
  const { container } = show([h(Room, { client, room: "secret", key: 1 }), h(State, { client, key: 2 })]);
  await until(() => container.textContent === "secret:::PERMISSION_DENIED;open");
  const open = show(h(Room, { client, room: "users" }));
  await until(() => open.container.textContent === "users:ready::;");
  await client.sendWithAck("SAY", { topic: "room/users", text: "of one" });
  await until(() => open.container.textContent === "users:ready:of one:;");
  client.close();
  await until(() => container.textContent === "secret:::PERMISSION_DENIED;closed CANCELLED");
  const late = show(h(Room, { client, room: "late" }));
  await until(() => late.container.textContent === "late:::UNAVAILABLE;");
  await until(() => open.container.textContent === "users::of one:CANCELLED;");
  user = "two";
  await client.connect();
  await until(() => container.textContent === "secret:::PERMISSION_DENIED;open");
  await until(() => late.container.textContent === "late:ready::;");
  await until(() => open.container.textContent === "users:ready::;");
  assert.equal(client.inspect().topics.length, 2);
});

test("a client that has stopped says why, and no component waits", async () => {
  const client = createClient<Contract>({ ...options(), stopOn: (code) => code === 4800 });
  ends.push(() => client.close());
  const { container } = show(h(Room, { client, room: "stopped" }));
  await until(() => container.textContent === "stopped:ready::;");
  void client.call("ASK", { do: "disconnect", n: 4800 });
  await until(() => /^stopped:::[A-Z]+;$/.test(container.textContent!));
});

test("a reconnection loses nothing, and the state of the client is shown", async () => {
  const [client, writer] = [create(), createWriter()];
  const seen: string[] = [];
  client.onState((state) => seen.push(state));
  const { container } = show([h(Room, { client, room: "lost", key: 1 }), h(State, { client, key: 2 })]);
  await until(() => container.textContent === "lost:ready::;open");
  void client.call("ASK", { do: "disconnect", n: 4000 });
  await until(() => seen.includes("waiting"));
  await writer.sendWithAck("SAY", { topic: "room/lost", text: "missed" });
  await until(() => container.textContent === "lost:ready:missed:;open");
  assert.equal(sockets, 2);
});

test("a page is rendered on a server without a connection, and hydrated", async () => {
  const page = () => h(App, { room: "ssr" });
  const html = renderToString(page());
  assert.equal(html.replaceAll(/<[^>]*>/g, ""), "ssr:::;ssr:::;idle");
  assert.deepEqual([sockets, asked], [0, 0]);
  const [open, container] = [create(), document.createElement("div")];
  await open.connect();
  assert.equal(renderToString(h(State, { client: open })), "<i>idle</i>"); // as hydration expects
  sockets = 0;
  container.innerHTML = html;
  const problems: unknown[] = [];
  const root = hydrateRoot(container, page(), { onRecoverableError: (error) => problems.push(error) });
  ends.push(() => root.unmount());
  await until(() => container.textContent === "ssr:ready::;ssr:ready::;open");
  assert.deepEqual([problems, sockets], [[], 1]);
});

test("the wait for a limit is shown until it is over", async () => {
  let allowedAt: number | undefined = performance.now() + 3_600_000;
  const client = Object.defineProperty(create(), "nextAllowedAt", { value: () => allowedAt });
  const Wait = () => h("p", null, String(useWaitSeconds(client, "PACED")));
  assert.equal(renderToString(h(Wait)), "<p>0</p>");
  const { container } = show(h(Wait));
  await until(() => Number(container.textContent) > 3_000);
  allowedAt = undefined;
  await until(() => container.textContent === "0");
});

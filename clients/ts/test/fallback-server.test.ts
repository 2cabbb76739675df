// Falling back to HTTP and returning, with a Penstock server, whose URL is in PENSTOCK_URL; see internal/interop/tsclient.

import assert from "node:assert/strict";
import { test } from "node:test";

import { WebSocket as NodeWebSocket } from "ws";

import { fallback } from "../src/fallback.ts";
import { createClient, type AnyContract } from "../src/index.ts";
import { serving } from "../src/serving.ts";

const url = process.env.PENSTOCK_URL!;

test("a blocked client uses HTTP, and returns to WebSocket without losing a call, a subscription or a publication", { timeout: 120_000 }, async () => {
  let blocked = true;
  const window = new EventTarget();
  globalThis.addEventListener = window.addEventListener.bind(window) as any;
  const waiters: (() => void)[] = [];
  const reports: string[] = [];
  const reported = async (count: number) => {
    while (reports.length < count) await new Promise<void>((resolve) => waiters.push(resolve));
  };
  function BlockableSocket(address: string, protocols?: string[]) {
    return new (NodeWebSocket as any)(blocked ? "ws://127.0.0.1:1" : address, protocols);
  }
  const client = createClient<AnyContract>({
    serving,
    url,
    token: () => "blocked",
    resume: true,
    webSocket: fallback({
      url: url.replace("ws", "http") + "/http",
      webSocket: BlockableSocket as any,
      onTransport(transport, reason) {
        reports.push(`${transport}: ${reason}`);
        for (const resolve of waiters.splice(0)) resolve();
      },
    }),
  });
  const writer = createClient<AnyContract>({ url, token: () => "writer", webSocket: NodeWebSocket as any });
  const topic = "room/return";
  const said: number[] = [];
  let all!: () => void;
  const heardAll = new Promise<void>((resolve) => (all = resolve));
  client.subscribe(topic, { on: { SAID: ({ text }) => said.push(+text) === 100 && all() } });
  let answer!: () => void;
  const answered = new Promise<void>((resolve) => (answer = resolve));
  client.handle("CONFIRM", "CONFIRMED", async () => {
    await answered;
    return { yes: true };
  });
  const call = client.call("ASK", { do: "confirm", n: 5 });
  await client.call("ASK", { do: "join", n: 99 });
  assert.deepEqual(reports, ["stream: refused"]);
  assert.equal(client.connection!.resumed, false);

  blocked = false;
  window.dispatchEvent(new Event("online"));
  let n = 0;
  const say = async (count: number) => {
    for (; n < count; n++) await writer.sendWithAck("SAY", { topic, text: `${n}` });
  };
  await say(50);
  await reported(2);
  await say(100);
  answer();
  assert.deepEqual(await call, { n: 5 });
  await heardAll;
  assert.deepEqual(said, Array.from({ length: 100 }, (_, i) => i));
  assert.deepEqual(reports, ["stream: refused", "websocket: returned"]);
  assert.equal(client.connection!.resumed, true);
  client.close();
  writer.close();
});

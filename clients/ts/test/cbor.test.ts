// Payloads in CBOR: with a Penstock server, whose URL is in PENSTOCK_URL, and one that does not support it.

import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { afterEach, test } from "node:test";

import { WebSocket as NodeWebSocket, WebSocketServer } from "ws";

import { cbor, type CBOR } from "../src/cbor.ts";
import { createClient, type Client } from "../src/index.ts";

type Timestamp = string & { readonly __format: "date-time" };
type Base64 = string & { readonly __format: "base64" };

interface Values {
  at: Timestamp;
  bytes: Base64;
  values: number[];
  note?: string;
}

interface Contract {
  calls: { MEASURE: { request: Values; reply: Required<Values>; progress: never } };
  events: { SAY: { topic: string } };
}

let client: Client<CBOR<Contract>>;
afterEach(() => client.close());

const create = (url: string, protocols?: string[]) =>
  (client = createClient<CBOR<Contract>>({ url, token: () => "ann", webSocket: NodeWebSocket as any, ...cbor(protocols) }));

test("times and bytes are values of JavaScript", async () => {
  create(process.env.PENSTOCK_URL!);
  const at = new Date("2026-07-06T05:04:03.25Z");
  const values = [0, -1, 2 ** 40, 1.5, -1e300];
  const reply = await client.call("MEASURE", { at, bytes: new Uint8Array([0, 127, 255]), values, note: "ä\u{1F600}" });
  assert.ok(reply.at instanceof Date);
  assert.equal(reply.at.getTime(), at.getTime());
  assert.deepEqual([...reply.bytes], [0, 127, 255]);
  assert.deepEqual(reply.values, values);
  assert.equal(reply.note, "ä\u{1F600}");
  assert.equal((await client.call("MEASURE", { at, bytes: new Uint8Array(), values: [], note: undefined as any })).note, "");
});

test("large payloads arrive as they were sent", async () => {
  create(process.env.PENSTOCK_URL!);
  const at = new Date(0);
  const replies = await Promise.all(
    Array.from({ length: 30 }, (_, i) => client.call("MEASURE", { at, bytes: new Uint8Array(20_000).fill(i), values: [i] })),
  );
  replies.forEach((reply, i) => assert.ok(reply.values[0] === i && reply.bytes.length === 20_000 && reply.bytes.every((b) => b === i)));
});

test("a server that does not support it is reported, and the client tries again", async () => {
  const server = new WebSocketServer({ port: 0, handleProtocols: (offered) => [...offered].find((p) => p.startsWith("bearer."))! });
  await once(server, "listening");
  const offered: string[] = [];
  server.on("connection", (socket: any, request: any) => {
    offered.push(request.headers["sec-websocket-protocol"]!);
    socket.on("message", () => socket.send(`{"type":"$ws:welcome","meta":{"timestamp":1,"correlationId":"x"},"payload":{}}`));
  });
  create(`ws://localhost:${(server.address() as AddressInfo).port}`, ["chat.v2"]);
  const error = await new Promise<any>((resolve) => {
    client.onError(resolve);
    void client.connect().catch(() => {});
  });
  assert.match(error.message, /has not selected the subprotocol penstock\.v1\.cbor/);
  assert.deepEqual(offered, ["penstock.v1.cbor,chat.v2,bearer.ann"]);
  assert.equal(client.state, "connecting");
  server.close();
});

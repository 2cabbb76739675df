// The client in Node.js, with servers that reject handshakes.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { afterEach, beforeEach, test } from "node:test";

import { WebSocket as NodeWebSocket } from "ws";

import { createClient, PenstockError } from "../src/node.ts";
import type { Client, ClientOptions } from "../src/index.ts";

let server: Server;
let client: Client | undefined;
let requests: IncomingMessage[] = [];
let answer: string; // to each handshake
let url: string;

const { WebSocket: original } = globalThis;

beforeEach(async () => {
  requests = [];
  server = createServer();
  server.on("upgrade", (request: IncomingMessage, socket: Duplex) => {
    requests.push(request);
    socket.on("error", () => {});
    socket.end(answer);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  url = `ws://127.0.0.1:${(server.address() as AddressInfo).port}/ws`;
});

afterEach(() => {
  client?.close();
  server.close();
  globalThis.WebSocket = original;
});

const response = (status: string, body: object | string, headers = "") => {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return `HTTP/1.1 ${status}\r\nConnection: close\r\nContent-Length: ${text.length}\r\n${headers}\r\n${text}`;
};

/** Connects, by the global WebSocket if there are no options. */
function connect(options: Partial<ClientOptions> = {}) {
  const expired: boolean[] = [];
  globalThis.WebSocket = NodeWebSocket as any;
  client = createClient({
    url,
    random: () => 0,
    token: (why) => (expired.push(why.expired), "secret"),
    ...options,
  });
  const connected = client.connect();
  return { expired, connected };
}

const refusal = { code: "UNAUTHENTICATED", message: "log in first", retryable: false };

test("a rejected token is replaced once, and ends the client then", async () => {
  answer = response("401 Unauthorized", refusal);
  const { expired, connected } = connect();
  await assert.rejects(connected, (error: PenstockError) => error instanceof PenstockError && error.code === "UNAUTHENTICATED" && error.message === "log in first");
  assert.deepEqual(expired, [false, true]);
  assert.deepEqual(requests.map((r) => r.headers["sec-websocket-protocol"]), Array(4).fill("bearer.secret"), "each handshake and the question");
});

test("a socket of the package ws has the status in its error, and nothing is asked", async () => {
  answer = response("401 Unauthorized", refusal);
  const { expired, connected } = connect({ webSocket: NodeWebSocket as any });
  await assert.rejects(connected, { code: "UNAVAILABLE" });
  assert.deepEqual([expired, requests.length], [[false, true], 2]);
});

test("a delay that the server demands is obeyed, also that of a proxy", async () => {
  for (const [body, header, code] of [
    [{ code: "UNAVAILABLE", retryAfterMs: 70_000 }, "", 4503],
    ["busy", "Retry-After: 60\r\n", 4503],
  ] as const) {
    answer = response("503 Service Unavailable", body, header);
    connect();
    const [state, info] = await new Promise<any[]>((resolve) => client!.onState((...event) => event[0] === "waiting" && resolve(event)));
    assert.deepEqual([state, info.closeCode], ["waiting", code]);
    assert.ok(info.retryAt - performance.now() > 50_000);
    client!.close();
  }
});

test("a server that does not answer, and one that cannot be reached, are tried again", async () => {
  answer = "";
  connect();
  const next = () => new Promise<any>((resolve) => client!.onState((state, info) => state === "waiting" && resolve(info)));
  assert.equal((await next()).closeCode, 1006);
  client!.close();
  await new Promise((resolve) => server.close(resolve));
  connect();
  assert.equal((await next()).closeCode, 1006);
});

// The server of the contender bun. It prints its address and then executes the commands of
// process.go from standard input, one per line.
import { readFileSync } from "node:fs";

const publications = process.env.BENCHMARKS_PUBLICATIONS.split("\n");
let publishedCount = 0;
const deflate = process.env.BENCHMARKS_DEFLATE; // "shared", "dedicated", or nothing
const compresses = Boolean(deflate);
const certificate = process.env.BENCHMARKS_CERTIFICATE;
const pageBytes = 4096;

const say = ({ meta, payload: { room, text, n } }) => {
  if (!room || !text) throw new Error("room and text must not be empty");
  return {
    type: "SAID",
    meta: { timestamp: Date.now(), correlationId: meta.correlationId },
    payload: { room, user: "ann", text, n },
  };
};
const save = ({ meta, payload: { room, items } }) => ({
  type: "SAVED",
  meta: { timestamp: Date.now(), correlationId: meta.correlationId },
  payload: { room, items },
});
// hello answers the greeting of a storm as Penstock does.
const hello = ({ meta }) => ({
  type: "$ws:welcome",
  meta: { timestamp: Date.now(), correlationId: meta.correlationId },
  payload: {
    connId: crypto.randomUUID(), pingIntervalMs: 25000, pongTimeoutMs: 10000, maxMessageBytes: 65536, callTimeoutMs: 30000, concurrency: 64,
  },
});
const handlers = new Map([["SAY", say], ["TELL", say], ["SAVE", save], ["$ws:hello", hello]]);

const server = Bun.serve({
  hostname: "127.0.0.1",
  port: 0,
  tls: certificate ? { cert: certificate, key: certificate } : undefined,
  fetch(request, server) {
    if (!server.upgrade(request)) return new Response("expected a WebSocket", { status: 400 });
  },
  websocket: {
    perMessageDeflate: compresses && { compress: deflate, decompress: deflate },
    open(ws) { ws.subscribe("all"); },
    message(ws, text) {
      const request = JSON.parse(text);
      const handler = handlers.get(request.type);
      if (handler === undefined) return ws.close(1003);
      ws.send(JSON.stringify(handler(request)), compresses);
    },
  },
});
console.log(`127.0.0.1:${server.port}`);

const commands = {
  stats() {},
  collect() { for (let i = 0; i < 3; i++) Bun.gc(true); },
  deploy() { server.stop(true); },
  publish(n) { for (let i = 0; i < Number(n); i++) server.publish("all", publications[publishedCount++ % publications.length], compresses); },
};

for await (const line of console) {
  const [verb, argument] = line.split(" ");
  commands[verb]?.(argument);
  const { user, system } = process.cpuUsage(); // microseconds
  const pages = Number(readFileSync("/proc/self/statm", "latin1").split(" ")[1]);
  console.log(JSON.stringify({ CPU: (user + system) * 1000, User: user * 1000, RSS: pages * pageBytes }));
}
process.exit(0);

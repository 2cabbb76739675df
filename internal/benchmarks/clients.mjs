// A client in JavaScript, or the server of Socket.IO. It prints a line when it is ready, and then
// executes commands from standard input, one per line, as process.go does.
import { createServer } from "node:http";
import { createInterface } from "node:readline";

const text = "The quick brown fox jumps over the lazy dog, and the dog does not even look up. Not once.";
const said = { room: "general", user: "ann", text, n: 1234567 };

let missing = 0;
let arrived;
const received = (message) => {
  if (message.text !== text) throw new Error(`received ${JSON.stringify(message)}`);
  if (--missing === 0) arrived();
};

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** The server of Socket.IO. It publishes n messages at once, or -n with pauses. */
async function serve() {
  const { Server } = await import("socket.io");
  const web = createServer();
  const io = new Server(web, { transports: ["websocket"] });
  await new Promise((resolve) => web.listen(0, "127.0.0.1", resolve));
  console.log(`127.0.0.1:${web.address().port}`);
  return async (n) => {
    for (let i = 0; i < Math.abs(n); i++) {
      io.emit("SAID", said);
      if (n < 0) await pause(2);
    }
  };
}

const clients = {
  async penstock(address) {
    const { createClient } = await import("./penstock.mjs");
    const { WebSocket } = await import("ws");
    const client = createClient({ url: `ws://${address}/ws`, webSocket: WebSocket });
    client.on("SAID", received);
    client.connect();
    while (client.state !== "open") await pause(10);
  },
  async "socket.io"(address) {
    const { io } = await import("socket.io-client");
    const socket = io(`http://${address}`, { transports: ["websocket"] });
    socket.on("SAID", received);
    await new Promise((resolve) => socket.on("connect", resolve));
  },
  async centrifuge(address) {
    const { Centrifuge } = await import("centrifuge");
    const { WebSocket } = await import("ws");
    const client = new Centrifuge(`ws://${address}/ws`, { websocket: WebSocket });
    client.on("publication", ({ data }) => received(data));
    client.connect();
    await new Promise((resolve) => client.on("subscribed", resolve));
  },
};

let allocated = 0; // bytes
let heapBefore = 0; // the size of the heap after the last collection
let collecting = 0; // CPU time of all collections, in µs

const cpu = () => {
  const { user, system } = process.cpuUsage(); // microseconds
  return user + system;
};

const stats = () => console.log(JSON.stringify({ CPU: (cpu() - collecting) * 1000, Allocs: allocated, RSS: process.memoryUsage.rss() }));

/** Nothing else collects the heap, so that it has grown by what was allocated. */
const collect = () => {
  const before = cpu();
  allocated += Math.max(process.memoryUsage().heapUsed - heapBefore, 0);
  gc();
  heapBefore = process.memoryUsage().heapUsed;
  collecting += cpu() - before;
};

const [role, address] = process.argv.slice(2);
let publish;
if (role === "serve") publish = await serve();
else {
  await clients[role](address);
  console.log("connected");
}

let done;
const commands = {
  publish: (n) => publish(Number(n)),
  expect(n) {
    missing = Number(n);
    done = new Promise((resolve) => (arrived = resolve));
  },
  await: () => done,
  collect,
};
for await (const line of createInterface({ input: process.stdin })) {
  const [verb, argument] = line.split(" ");
  await commands[verb]?.(argument);
  stats();
}
process.exit(0);

// Sends numbers, which the server publishes to this page. The tests read globalThis.page.

import { fallback } from "../src/fallback.ts";
import { createClient } from "../src/index.ts";

const INTERVAL_MS = 40;

const query = new URLSearchParams(location.search);
const server = query.get("server");
const id = query.get("id");

const page = (globalThis.page = { transports: [], states: [], errors: [], received: [], answered: [], sent: 0, admitted: 0 });

const client = createClient({
  url: server.replace("http", "ws") + "/ws",
  resume: true,
  webSocket: fallback({ url: server + "/ws/http", onTransport: (transport, why) => page.transports.push(transport + ": " + why) }),
});
client.onState((state, { resumed }) => {
  page.states.push(state === "open" && resumed ? "resumed" : state);
});
client.onError((error, type) => {
  if (type) page.errors.push(`${type}: ${error}`);
});
client.onLoss((loss) => page.errors.push("lost: " + JSON.stringify(loss)));
client.subscribe("page/" + id, { on: { ECHO: ({ n }) => page.received.push(n) } });

/** Sends the next number as an event, which comes back as a publication, and as a call. */
function sendNumber(padding) {
  const n = ++page.sent;
  const failed = (error) => page.errors.push(`${n}: ${error}`);
  client.sendWithAck("NUMBER", { page: id, n, padding }, { maxWaitMs: 120_000 }).then(() => page.admitted++, failed);
  client.call("ASK", { page: id, n, padding }, { timeoutMs: 120_000 }).then((reply) => page.answered.push(reply.n), failed);
}

/** Sends the next numbers, one by one, and in between a hundred at once, which are more than one request may carry. */
page.send = (count) => {
  page.last = page.sent + count;
  const timer = setInterval(() => {
    if (page.sent >= page.last) return clearInterval(timer);
    if (page.last - page.sent === 120) for (let i = 0; i < 100; i++) sendNumber("-".repeat(1000));
    sendNumber();
  }, INTERVAL_MS);
};

page.isConnected = (...transports) => transports.includes(page.transports.at(-1)?.split(":")[0]) && ["open", "resumed"].includes(page.states.at(-1));

page.sendWhenConnected = (count, ...transports) => {
  const timer = setInterval(() => {
    if (!page.isConnected(...transports)) return;
    clearInterval(timer);
    page.send(count);
  }, 100);
};

/** Everything is sent, has been answered, and has arrived here. */
page.isComplete = () => [page.sent, page.admitted, page.answered.length, page.received.length].every((count) => count >= page.last);

page.describe = () => JSON.stringify({ ...page, received: page.received.length, answered: page.answered.length });

addEventListener("pageshow", ({ persisted }) => (page.wasCached = persisted));

// Operates a TypeScript client for the tests of this directory: reads commands from standard input and writes events to standard
// output, one line of JSON each. docs/writing-a-client.md describes both.

import { createInterface } from "node:readline";

import WebSocket from "ws";

import { cbor } from "./dist/cbor.js";
import { fallback } from "./dist/fallback.js";
import { createClient, PenstockError } from "./dist/index.js";
import * as paced from "./dist/pacing.js";
import { serving } from "./dist/serving.js";
import { stream } from "./dist/streams.js";

const scale = Number(process.argv[2] ?? 5);
const mode = process.argv[3]; // of connections over HTTP; none: WebSocket
const clock = {
  now: () => performance.now() * scale,
  setTimeout(callback, ms, watch) {
    const timer = setTimeout(callback, ms / scale);
    if (watch) timer.unref();
    return timer;
  },
  clearTimeout: (timer) => clearTimeout(timer),
};

const report = (name, more) => process.stdout.write(JSON.stringify({ name, ...more }) + "\n");

const failure = (error) => {
  if (!error) return {};
  if (!(error instanceof PenstockError)) return { code: "INTERNAL", detail: String(error) };
  return { code: error.code, unknown: error.mayHaveExecuted, retryAfterMs: error.retryAfterMs ?? 0, detail: error.details.reason ?? "" };
};

/** Reports the end of an operation. */
const settle = (id, promise) =>
  promise.then(
    (reply) => report("settled", { id, n: reply?.n ?? 0 }),
    (error) => report("settled", { id, ...failure(error) }),
  );

// What a program loads with its first request takes longer than a connection may take by the fast clock.
if (mode) await Promise.all([import("./dist/fallback-http.js"), fetch("data:,")]);

report("driver", { protocol: 1, client: "TypeScript, Node.js", scale, formats: ["json", "cbor"] });

let client;
const controllers = new Map();
const streams = new Map();
const subscriptions = new Map();

const abortable = (id) => {
  controllers.set(id, new AbortController());
  return controllers.get(id).signal;
};

function create({ url, tokens = [], cbor: binary, pacing, session, timeoutMs, messages, oldest, expireMs }) {
  const token = async ({ expired, signal }) => {
    report("token", { expired });
    const next = tokens.length > 1 ? tokens.shift() : tokens[0];
    if (next === "!hang") await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    if (next === "!fail") throw new Error("no token");
    return next;
  };
  client = createClient({
    url,
    serving,
    ...(pacing ? paced : {}),
    ...(binary ? cbor() : {}),
    resume: session,
    timeoutMs,
    clock,
    webSocket: mode ? fallback({ url: url.replace("ws", "http") + "http", mode, webSocket: WebSocket }) : WebSocket,
    page: null,
    ...(tokens.length ? { token } : {}),
    queue: { maxMessages: messages, maxWaitMs: expireMs, overflow: oldest ? "drop-oldest" : "drop-newest" },
  });
  client.onState((state) => report("state", { state }));
  client.onError((error) => report("error", failure(error)));
  client.onLoss(({ topic, lost, ended }) => report("loss", { topic, from: lost?.from ?? 0, to: lost?.to ?? 0, ended: !!ended }));
  client.on("SAID", ({ n, throw: fails }, { topic, offset, state }) => {
    report("message", { n, topic, offset, fromState: state });
    if (fails) throw new Error("the handler fails");
  });
  client.handle("CONFIRM", "CONFIRMED", async ({ n, do: what }, { signal }) => {
    report("served", { n });
    if (what === "wait") {
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      report("served-ended", { n });
    }
    if (what === "slow") await new Promise((resolve) => clock.setTimeout(resolve, 5000)); // and does not look at its signal
    if (what === "fail") throw new PenstockError("PERMISSION_DENIED", "the user said no");
    if (what === "throw") throw new Error("secret");
    return { n };
  });
}

/** Reports the first outcome of a subscription as its settlement. */
function subscribe({ id, topic, opts: { epoch, offset, state, presence, last, hidden } = {} }) {
  let settled = false;
  const once = (error) => {
    if (!settled) report("settled", { id, ...failure(error) });
    settled = true;
  };
  subscriptions.set(
    id,
    client.subscribe(topic, {
      ...(epoch ? { since: { epoch, offset: offset ?? 0 } } : {}),
      ...(last ? { last } : {}),
      ...(hidden ? { hidden } : {}),
      ...(state ? { onReset: () => {} } : {}),
      ...(presence ? { onPresence: (members) => report("presence", { topic, n: members.length }) } : {}),
      onReady: () => once(),
      onEnd(error) {
        if (settled) report("ended", { topic, ...failure(error) });
        else once(error);
      },
    }),
  );
}

const commands = {
  create: ({ opts }) => create(opts),
  connect: ({ id }) => settle(id, client.connect()),
  call: ({ id, n, opts }) => settle(id, client.call("ASK", { n: n ?? 0 }, { signal: abortable(id), timeoutMs: opts?.timeoutMs })),
  send: ({ id, n, opts }) =>
    settle(id, client.sendWithAck("SAY", { n: n ?? 0, ...(opts?.pad ? { pad: "x".repeat(opts.pad) } : {}) }, { signal: abortable(id) })),
  abort: ({ id }) => controllers.get(id).abort(),
  stream: ({ id, n, opts }) => streams.set(id, stream(client, "EXPORT", { n: n ?? 0 }, { signal: abortable(id), timeoutMs: opts?.timeoutMs })),
  async consume({ id, n, opts }) {
    try {
      for await (const item of stream(client, "EXPORT", { n: n ?? 0 }, { signal: abortable(id), timeoutMs: opts?.timeoutMs })) report("item", { id, n: item.n });
      report("settled", { id });
    } catch (error) {
      report("settled", { id, ...failure(error) });
    }
  },
  async next({ id }) {
    try {
      const { done, value } = await streams.get(id).next();
      if (done) report("settled", { id });
      else report("item", { id, n: value.n });
    } catch (error) {
      report("settled", { id, ...failure(error) });
    }
  },
  async break({ id }) {
    await streams.get(id).return();
    report("settled", { id });
  },
  subscribe,
  unsubscribe: ({ id }) => subscriptions.get(id).unsubscribe(),
  position: ({ id }) => report("position", { id, ...subscriptions.get(id).position }),
  allowed({ id }) {
    const at = client.nextAllowedAt(id);
    report("allowed", { id, ms: at === undefined ? 0 : Math.round(at - clock.now()) });
  },
  close({ id }) {
    client.close();
    report("settled", { id });
  },
};

createInterface({ input: process.stdin }).on("line", (line) => {
  const command = JSON.parse(line);
  commands[command.do](command);
});

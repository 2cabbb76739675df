import { createConnection } from "./connection.js";
import { createEnv, noop } from "./env.js";
import { failure, PenstockError } from "./errors.js";
import type { Frame, Link } from "./link.js";
import { createOutbox, type Item } from "./outbox.js";
import type { Pacer } from "./pacer.js";
import type { Served } from "./served.js";
import { createTopics } from "./topics.js";
import type { AnyContract, CallOptions, Client, ClientOptions, SendOptions } from "./types.js";

const DEFAULT_TIMEOUT_MS = 30_000;
const TOKEN_TIMEOUT_MS = 10_000; // the next refresh waits no longer for one that hangs

/** Creates a client, which connects with its first message, or when connect is called. */
export function createClient<C = AnyContract>(options: ClientOptions): Client<C> {
  const { queue, timeoutMs: defaultMs = DEFAULT_TIMEOUT_MS } = options;
  const env = createEnv(options);
  const { on } = env;
  const pacer = options.pacing?.(env) as Pacer | undefined;
  const outbox = createOutbox(env, pacer, options);
  const topics = createTopics(env, outbox);
  const served = options.serving?.(env, outbox) as Served | undefined;
  const connection = createConnection(options, env, pacer, outbox, topics, received);
  let authentication: Promise<void> | undefined;

  function received(link: Link, frame: Frame): void {
    const { type, meta, payload } = frame;
    if (/^\$ws:/.test(meta.correlationId!)) return served ? served.receive(link, frame) : void outbox.tell(link, "RPC_ERROR", meta, { code: "UNIMPLEMENTED" });
    if (outbox.receive(link, frame) || link.retired) return;
    if (type === "$ws:identity-expiring") env.after((env.random() * payload.expiresInMs) / 2, () => authenticate().catch((error) => env.deliver("$error", error)));
    else if (!topics.receive(frame)) env.deliver(type, payload, meta);
  }

  function request(item: Item): Promise<any> {
    return handled(
      new Promise((resolve, reject) => {
        try {
          const error = start();
          if (error) return reject(error);
          outbox.submit({ ...item, done: (failed, reply) => (failed ? reject(failed) : resolve(reply)) });
        } catch (cause) {
          reject(failure("INVALID_ARGUMENT", cause)); // JSON has no cycles, for example
        }
      }),
    );
  }

  function start() {
    connection.start();
    return closed();
  }

  const closed = () => (connection.state === "closed" && new PenstockError("UNAVAILABLE", "closed"));

  async function refresh(): Promise<void> {
    const controller = new AbortController();
    let fail!: (error: unknown) => void;
    const late = new Promise<never>((_, reject) => (fail = reject));
    const ends = [
      () => controller.abort(),
      on("$state", () => closed() && fail(closed())),
      env.after(TOKEN_TIMEOUT_MS, () => fail(new PenstockError("DEADLINE_EXCEEDED", "", { retryable: true }))),
    ];
    try {
      const token = await Promise.race([late, connection.fetchToken(controller.signal)]);
      await request({ type: "$ws:auth", payload: { token }, first: true, within: defaultMs });
    } finally {
      authentication = undefined;
      env.emit(ends);
    }
  }

  const authenticate = () => (authentication ??= handled(refresh()));

  const client: Client<any> = {
    get state() {
      return connection.state;
    },
    get connection() {
      return connection.about;
    },
    onState: (listener) => on("$state", listener),
    onError: (listener) => on("$error", listener),
    onLoss: (listener) => on("$loss", listener),
    connect: () =>
      handled(
        new Promise((resolve, reject) => {
          if (connection.state === "open") return resolve();
          const off = on("$state", (state, { error }) => {
            if (state === "open") resolve();
            else if (state === "closed") reject(error);
            else return;
            off();
          });
          connection.start(true);
        }),
      ),
    close: connection.close,
    call: (type, payload?: unknown, { timeoutMs = defaultMs, ...more }: CallOptions<any> = {}) =>
      request({ type, payload, within: timeoutMs, ...more }),
    sendWithAck: (type, payload?: unknown, { maxWaitMs = queue?.maxWaitMs ?? DEFAULT_TIMEOUT_MS, ...more }: SendOptions = {}) =>
      request({ type, payload, within: maxWaitMs, ...more, oneWay: true }),
    on,
    handle:
      served?.handle ??
      (() => {
        throw failure("UNIMPLEMENTED", "serving");
      }),
    subscribe(topic, topicOptions) {
      return topics.subscribe(topic, topicOptions, start());
    },
    nextAllowedAt: (type) => pacer?.nextAt(type),
    authenticate,
    inspect: () => ({ waiting: outbox.queue.count, unanswered: outbox.pending.size, topics: topics.resumable() }),
  };
  return client as Client<C>;
}

/** Returns the promise. Its rejection does not end a process if it is of no interest. */
function handled<T>(promise: Promise<T>): Promise<T> {
  promise.catch(noop);
  return promise;
}

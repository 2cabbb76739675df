import { createConnection } from "./connection.js";
import { addTo, createEnv, noop } from "./env.js";
import { PenstockError } from "./errors.js";
import type { Frame, Link } from "./link.js";
import { createOutbox, type Item } from "./outbox.js";
import { createPacer } from "./pacing.js";
import { watchPage } from "./pages.js";
import { createServed } from "./served.js";
import { createStream } from "./streams.js";
import { createTopics } from "./topics.js";
import type { AnyContract, CallOptions, Client, ClientOptions, Meta, SendOptions, State, StateInfo, StreamOptions } from "./types.js";

const DEFAULT_TIMEOUT_MS = 30_000;

/** Creates a client, which connects with its first message, or when connect is called. */
export function createClient<C = AnyContract>(options: ClientOptions): Client<C> {
  const { queue = {}, timeoutMs: defaultTimeoutMs = DEFAULT_TIMEOUT_MS } = options;
  const env = createEnv(options);
  const pacer = createPacer(env);
  const outbox = createOutbox(env, pacer, options);
  const handlers = new Map<string, Set<(payload: any, meta: Meta) => void>>();
  const onState = new Set<(state: State, info: StateInfo) => void>();
  const waiters = new Set<(error?: PenstockError) => void>();
  let stopPage = noop;
  let authentication: Promise<void> | undefined;
  let cancelRefresh = noop;

  const deliver = (type: string, payload: any, meta: Meta) => env.emit(handlers.get(type) || [], payload, meta);
  const topics = createTopics(env, outbox, deliver);
  const served = createServed(env, outbox);

  const connection = createConnection(options, env, pacer, outbox, {
    resumable: topics.resumable,
    opened(link, results) {
      outbox.use(undefined);
      topics.opened(results);
      outbox.use(link);
    },
    lost(link, unhandled) {
      if (!connection.link) topics.closed();
      outbox.lost(link, unhandled);
      served.lost(link);
    },
    received,
    stopped(error) {
      topics.closed(true);
      outbox.clear(error);
    },
    changed(state, info) {
      if (state === "open" || state === "closed") {
        for (const settle of waiters) settle(info.error);
        waiters.clear();
      }
      if (state === "closed") stopPage();
      env.emit(onState, state, info);
    },
  });
  outbox.onWrongLimits(connection.greet);

  function received(link: Link, frame: Frame): void {
    const { type, meta, payload } = frame;
    if (served.receive(link, frame) || outbox.receive(link, frame) || link.retired) return;
    if (type === "$ws:identity-expiring") {
      cancelRefresh();
      cancelRefresh = env.after((env.random() * payload.expiresInMs) / 2, () => authenticate().catch(env.report), true);
    } else if (!topics.receive(frame)) deliver(type, payload, meta);
  }

  function authenticate(): Promise<void> {
    return (authentication ??= refresh().finally(() => (authentication = undefined)));
  }

  async function refresh(): Promise<void> {
    const token = await connection.fetchToken(new AbortController().signal);
    return submit("$ws:auth", { token }, { first: true });
  }

  function start(): void {
    if (connection.state === "idle" || connection.state === "closed") {
      stopPage();
      stopPage = watchPage(options, connection);
    }
    connection.start();
  }

  function encode(type: string, payload: unknown, due: number): Pick<Item, "type" | "body" | "due"> {
    return { type, body: payload === undefined ? undefined : JSON.stringify(payload), due: env.now() + due };
  }

  function submit(type: string, payload: unknown, more: Partial<Item>, ms = defaultTimeoutMs): Promise<any> {
    const promise = new Promise<any>((resolve, reject) => {
      enqueue({ ...encode(type, payload, ms), ...more, done: (error, reply) => (error ? reject(error) : resolve(reply)) });
    });
    promise.catch(noop); // an event whose outcome is of no interest must not end a process
    return promise;
  }

  function enqueue(item: Item): void {
    if (connection.state === "idle") start();
    if (/^clos/.test(connection.state)) return item.done(new PenstockError("UNAVAILABLE", "the client is closed"));
    outbox.enqueue(item);
  }

  const client: Client<any> = {
    get state() {
      return connection.state;
    },
    onState: (listener) => addTo(onState, listener),
    onError: (listener) => addTo(env.onError, listener),
    onLoss: (listener) => addTo(topics.onLoss, listener),
    connect() {
      const promise = new Promise<void>((resolve, reject) => {
        if (connection.state === "open") return resolve();
        waiters.add((error) => (error ? reject(error) : resolve()));
        start();
      });
      promise.catch(noop);
      return promise;
    },
    close: connection.close,
    call(type, payload?: unknown, { signal, timeoutMs, onProgress, idempotent }: CallOptions<any> = {}) {
      return submit(type, payload, { signal, progress: onProgress, idempotent }, timeoutMs);
    },
    send(type, payload?: unknown, { signal, expireMs = queue.expireMs, ack = true }: SendOptions = {}) {
      return submit(type, payload, { signal, ack, event: true }, expireMs);
    },
    stream(type, payload?: unknown, streamOptions: StreamOptions = {}) {
      let item: any;
      return createStream(
        streamOptions,
        (more) => enqueue((item = { ...encode(type, payload, streamOptions.timeoutMs ?? Infinity), ...more })),
        (credit) => {
          const { link, id } = item;
          const meta = { correlationId: id, credit };
          if (link === connection.link) outbox.enqueue({ type: "$ws:credit", meta, event: true, first: true, due: Infinity, done: noop });
          else outbox.control(link, "$ws:credit", meta);
        },
      );
    },
    on(type, handler) {
      if (!handlers.has(type)) handlers.set(type, new Set());
      return addTo(handlers.get(type)!, handler);
    },
    handle: served.handle,
    subscribe(topic, topicOptions) {
      if (connection.state === "idle") start();
      return topics.subscribe(topic, topicOptions);
    },
    nextAllowedAt(type) {
      const wait = pacer.wait(type);
      return wait > 0 ? env.now() + wait : undefined;
    },
    authenticate,
  };
  return client as Client<C>;
}

// A clock, sockets and a page that a test controls.

import { createClient, type AnyContract, type Client, type ClientOptions, type Clock, type PageLike, type WebSocketLike } from "../src/index.ts";
import { serving } from "../src/serving.ts";

/** Lets promises settle. */
export const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

export class TestClock implements Clock {
  #now = 1000;
  #timers = new Map<number, { at: number; callback: () => void }>();
  #ids = 0;

  now = () => this.#now;

  setTimeout(callback: () => void, ms: number): number {
    this.#timers.set(++this.#ids, { at: this.#now + Math.max(0, ms), callback });
    return this.#ids;
  }

  clearTimeout(id: number): void {
    this.#timers.delete(id);
  }

  get timers(): number {
    return this.#timers.size;
  }

  /** Moves the time, and calls timers in their order. */
  async advance(ms: number): Promise<void> {
    await settled();
    const end = this.#now + ms;
    for (;;) {
      const next = [...this.#timers].filter(([, t]) => t.at <= end).sort((a, b) => a[1].at - b[1].at || a[0] - b[0])[0];
      if (!next) break;
      this.#now = Math.max(this.#now, next[1].at);
      this.#timers.delete(next[0]);
      next[1].callback();
      await settled();
    }
    this.#now = end;
  }

  /** Moves the time without calling timers, as while a computer sleeps. */
  sleep(ms: number): void {
    this.#now += ms;
  }
}

export interface SentFrame {
  type: string;
  meta: { correlationId?: string; timeoutMs?: number; ack?: boolean; credit?: number };
  payload?: any;
}

export class TestSocket implements WebSocketLike {
  binaryType = "blob";
  bufferedAmount = 0;
  onopen: ((event: any) => void) | null = null;
  onmessage: ((event: any) => void) | null = null;
  onclose: ((event: any) => void) | null = null;
  onerror: ((event: any) => void) | null = null;
  readonly sent: SentFrame[] = [];
  readonly raw: string[] = [];
  closedWith: { code: number | undefined } | undefined;

  constructor(
    readonly url: string,
    readonly protocols: string[],
  ) {}

  send(data: string): void {
    this.raw.push(data);
    this.sent.push(JSON.parse(data));
  }

  close(code?: number): void {
    this.closedWith ??= { code };
  }

  open(): void {
    this.onopen?.({});
  }

  /** Receives a frame of the server. */
  receive(type: string, payload?: unknown, meta: object = {}): void {
    this.onmessage?.({ data: JSON.stringify({ type, meta: { timestamp: 1730000000000, ...meta }, payload }) });
  }

  /** Receives the answer to a message. */
  answer(to: SentFrame, type: string, payload?: unknown): void {
    this.receive(type, payload, { correlationId: to.meta.correlationId });
  }

  reject(to: SentFrame, code: string, more: object = {}): void {
    this.answer(to, "RPC_ERROR", { code, retryable: false, ...more });
  }

  /** Receives a close frame. */
  end(code: number, reason: object | string = ""): void {
    this.onclose?.({ code, reason: typeof reason === "string" ? reason : JSON.stringify(reason) });
  }

  /** The last message of a type. */
  last(type: string): SentFrame {
    const frame = this.sent.findLast((f) => f.type === type);
    if (!frame) throw new Error(`${type} was not sent; sent: ${this.sent.map((f) => f.type)}`);
    return frame;
  }

  all(type: string): SentFrame[] {
    return this.sent.filter((f) => f.type === type);
  }
}

export class TestPage implements PageLike {
  document = { visibilityState: "visible" };
  #listeners = new Map<string, Set<(event: any) => void>>();

  addEventListener(type: string, listener: (event: any) => void, { signal }: { signal: AbortSignal }): void {
    if (!this.#listeners.has(type)) this.#listeners.set(type, new Set());
    this.#listeners.get(type)!.add(listener);
    signal.addEventListener("abort", () => this.#listeners.get(type)!.delete(listener));
  }

  get listeners(): number {
    return [...this.#listeners.values()].reduce((sum, set) => sum + set.size, 0);
  }

  /** persisted: the page enters the cache of the browser. */
  fire(type: string, persisted = true): void {
    for (const listener of this.#listeners.get(type) ?? []) listener({ type, persisted });
  }
}

export const welcome = { connId: "c1", pingIntervalMs: 25_000, pongTimeoutMs: 10_000, maxMessageBytes: 65_536, callTimeoutMs: 30_000, concurrency: 64 };

export interface Fixture {
  client: Client<AnyContract>;
  clock: TestClock;
  sockets: TestSocket[];
  page: TestPage;
  errors: unknown[];
  states: string[];
  /** The latest socket. */
  readonly socket: TestSocket;
  /** Answers the greeting of the latest socket. */
  greet(more?: object): Promise<TestSocket>;
}

export function createFixture(options: Partial<ClientOptions> = {}): Fixture {
  const clock = new TestClock();
  const page = new TestPage();
  const sockets: TestSocket[] = [];
  function Socket(url: string, protocols: string[]) {
    const socket = new TestSocket(url, protocols);
    sockets.push(socket);
    return socket;
  }
  const client = createClient({ url: "ws://test/ws", clock, page, random: () => 0.5, webSocket: Socket as any, serving, ...options });
  const errors: unknown[] = [];
  const states: string[] = [];
  client.onError((error) => errors.push(error));
  client.onState((state) => states.push(state));
  return {
    client,
    clock,
    sockets,
    page,
    errors,
    states,
    get socket() {
      return sockets.at(-1)!;
    },
    async greet(more) {
      await settled();
      const socket = sockets.at(-1)!;
      socket.open();
      socket.answer(socket.last("$ws:hello"), "$ws:welcome", { ...welcome, ...more });
      await settled();
      return socket;
    },
  };
}

/** A fixture whose client is connected. */
export async function connected(options: Partial<ClientOptions> = {}, more?: object): Promise<Fixture & { first: TestSocket }> {
  const fixture = createFixture(options);
  void fixture.client.connect();
  const first = await fixture.greet(more);
  return Object.defineProperties({ first } as any, Object.getOwnPropertyDescriptors(fixture));
}

/** The outcome of a promise so far. */
export async function outcome(promise: Promise<unknown>): Promise<{ value?: any; error?: any } | undefined> {
  let result: { value?: any; error?: any } | undefined;
  promise.then(
    (value) => (result = { value }),
    (error) => (result = { error }),
  );
  await settled();
  return result;
}

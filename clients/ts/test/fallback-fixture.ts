// A browser whose network a test controls, and the server's side of HTTP as docs/protocol.md describes it.

import { fallback, type FallbackOptions } from "../src/fallback.ts";
import type { WebSocketLike } from "../src/index.ts";
import { settled, TestClock } from "./fixture.ts";

const HEADERS = { "Penstock-Fallback": "1", "Cache-Control": "no-store, no-transform" };

export interface Exchange {
  method: string;
  exchange: "" | "open" | "down" | "up";
  /** The first line of the body. */
  head: any;
  messages: string[];
  body: string;
  keepalive: boolean;
  signal: AbortSignal;
  mode: string | undefined;
}

/** What happens to a request: it never arrives, its answer never arrives, it fails at once, or it is answered by another server. */
export type Fate = "lost" | "unanswered" | "failed" | Response | undefined;

const aborted = () => new DOMException("aborted", "AbortError");

/** A response that stays open. */
class EventStream {
  #controller!: ReadableStreamDefaultController<Uint8Array>;
  open = true;
  readonly response: Response;

  constructor(signal: AbortSignal, headers: HeadersInit = HEADERS) {
    const body = new ReadableStream<Uint8Array>({ start: (controller) => void (this.#controller = controller), cancel: () => void (this.open = false) });
    this.response = new Response(body, { headers: { ...headers, "Content-Type": "text/event-stream" } });
    signal.addEventListener("abort", () => this.cut());
  }

  write(text: string | Uint8Array): void {
    if (this.open) this.#controller.enqueue(typeof text === "string" ? new TextEncoder().encode(text) : text);
  }

  end(): void {
    if (this.open) this.#controller.close();
    this.open = false;
  }

  /** The connection breaks. */
  cut(): void {
    if (this.open) this.#controller.error(aborted());
    this.open = false;
  }
}

/** A server with one connection at a time. */
export class Server {
  readonly requests: Exchange[] = [];
  /** Messages of the client, each as often as it was handled. */
  readonly received: string[] = [];
  readonly closes: any[] = [];
  opened = 0;
  opening: any;
  stream: EventStream | undefined;
  /** Decides what happens to a request; undefined: it is answered. */
  fate: (exchange: Exchange) => Fate = () => undefined;
  /** The answer to GET. */
  permission: Fate;
  /** Responses that stay open reach the client only when they end. */
  buffers = false;

  #secret = "";
  #events: { id: number; text: string }[] = [];
  #id = 0;
  #sequence = 0;
  #polls = false;

  constructor(private clock: TestClock) {}

  fetch = (input: string, { method = "GET", body = "", keepalive = false, signal, mode }: any): Promise<Response> => {
    const exchange = (new URL(input).search.slice(1) || "") as Exchange["exchange"];
    const [head, ...messages] = body.split("\n");
    const request: Exchange = { method, exchange, head: head && JSON.parse(head), messages, body, keepalive, signal, mode };
    this.requests.push(request);
    return new Promise((resolve, reject) => {
      signal.addEventListener("abort", () => reject(aborted()));
      const fate = method === "GET" && this.permission !== undefined ? this.permission : this.fate(request);
      if (fate === "failed") return reject(new TypeError("fetch failed"));
      if (fate === "lost") return;
      const answer = fate instanceof Response ? fate.clone() : this.#answer(request);
      if (fate === "unanswered") return;
      const stream = this.stream;
      if (!this.buffers || exchange === "up" || !stream || answer !== stream.response) return resolve(answer);
      void new Response(answer.body).text().then((text) => resolve(new Response(text, { headers: HEADERS })), reject);
    });
  };

  #status = (status: number, headers = {}) => new Response(null, { status, headers: { ...HEADERS, ...headers } });

  #answer({ method, exchange, head, messages, signal }: Exchange): Response {
    if (method === "GET") return this.#status(204);
    if (exchange === "open") {
      this.opened++;
      this.opening = head;
      this.#secret = `secret ${this.opened}`;
      this.#events = [];
      this.#id = this.#sequence = 0;
      return this.#respond(signal, head.mode === "poll", `event: open\ndata: ${JSON.stringify({ secret: this.#secret, protocol: "" })}\n\n`);
    }
    if (head.secret !== this.#secret) return this.#status(409);
    if (head.ack > this.#id) return this.#status(409);
    this.#events = this.#events.filter(({ id }) => id > head.ack);
    if (exchange === "down") return this.#respond(signal, head.mode === "poll", "", head.waitMs !== 0);
    if (messages.length) {
      if (head.seq === this.#sequence) return this.#status(204);
      if (head.seq !== this.#sequence + 1) return this.#status(409);
      this.#sequence++;
      this.received.push(...messages);
    }
    if (head.close) {
      this.closes.push(head.close);
      this.#secret = "";
      this.stream?.end();
    }
    return this.#status(204);
  }

  #respond(signal: AbortSignal, polls: boolean, first: string, waits = true): Response {
    this.stream?.end();
    this.stream = new EventStream(signal);
    const { stream } = this;
    this.#polls = polls;
    if (!polls) stream.write(":\n\n");
    stream.write(first);
    const waiting = this.#events.map(({ text }) => text).join("");
    stream.write(waiting);
    if (polls && (first || waiting || !waits)) stream.end();
    else if (polls) this.clock.setTimeout(() => stream.end(), 25_000);
    return stream.response;
  }

  #push(text: string): void {
    const event = { id: ++this.#id, text: `id: ${this.#id}\n${text}\n\n` };
    this.#events.push(event);
    if (!this.stream?.open) return;
    this.stream.write(event.text);
    if (this.#polls) this.stream.end();
  }

  /** Sends a message, or several in one part. */
  send(message: unknown): void {
    this.#push(`data: ${typeof message === "string" ? message : JSON.stringify(message)}`);
  }

  ping(): void {
    this.#push("event: ping\ndata:");
  }

  close(code: number, reason = ""): void {
    this.#push(`event: close\ndata: ${JSON.stringify({ code, reason })}`);
    this.stream?.end();
  }

  /** Events that the client has not acknowledged. */
  get kept(): number {
    return this.#events.length;
  }

  /** Forgets the connection, as after 10 s without a response. */
  forget(): void {
    this.#secret = "";
  }

  all(exchange: Exchange["exchange"]): Exchange[] {
    return this.requests.filter((r) => r.exchange === exchange);
  }
}

/** A WebSocket of a browser. */
export class BrowserSocket extends EventTarget {
  binaryType = "blob";
  bufferedAmount = 0;
  onopen: any = null;
  onmessage: any = null;
  onclose: any = null;
  onerror: any = null;
  readonly sent: any[] = [];
  closed = false;

  constructor(
    readonly url: string,
    readonly protocols: string[] = [],
  ) {
    super();
  }

  #dispatch(type: "open" | "message" | "close", more: object): void {
    const event = Object.assign(new Event(type), more);
    this.dispatchEvent(event);
    (this as any)[`on${type}`]?.(event);
  }

  send(data: string): void {
    this.sent.push(JSON.parse(data));
  }

  /** The peer has not answered yet, so that there is no event. */
  close(): void {
    this.closed = true;
  }

  open(): void {
    this.#dispatch("open", {});
  }

  receive(data = "{}"): void {
    this.#dispatch("message", { data });
  }

  answer(type: string, payload: unknown): void {
    this.receive(JSON.stringify({ type, meta: { timestamp: 1, correlationId: this.sent.at(-1).meta.correlationId }, payload }));
  }

  end(code = 1006, reason = ""): void {
    this.#dispatch("close", { code, reason });
  }
}

/** A socket of the fallback, with what it has reported. */
export interface Observed {
  socket: WebSocketLike;
  opened: number;
  messages: string[];
  closes: { code: number; reason: string }[];
}

/** Replaces what a page has, until restore is called. */
export class Browser {
  readonly clock = new TestClock();
  readonly server = new Server(this.clock);
  readonly sockets: BrowserSocket[] = [];
  readonly reports: string[] = [];
  readonly storage: { [key: string]: string } = {};
  readonly document: any = Object.assign(new EventTarget(), { visibilityState: "visible" });
  readonly navigator: { onLine: boolean; connection: { type: string } | undefined } = { onLine: true, connection: undefined };
  nextHopProtocol = "h2";
  #window = new EventTarget();
  #saved: [object, string, PropertyDescriptor | undefined][] = [];

  constructor() {
    const { clock, sockets } = this;
    this.#replace(globalThis, {
      fetch: this.server.fetch,
      setTimeout: (f: any, ms: number, ...more: any[]) => clock.setTimeout(() => f(...more), ms),
      clearTimeout: (id: number) => clock.clearTimeout(id),
      document: this.document,
      navigator: this.navigator,
      sessionStorage: this.storage,
      location: { href: "http://test/page" },
      addEventListener: this.#window.addEventListener.bind(this.#window),
      WebSocket: class extends BrowserSocket {
        constructor(url: string, protocols?: string[]) {
          super(url, protocols);
          sockets.push(this);
        }
      },
    });
    this.#replace(Date, { now: () => clock.now() + 1e12 });
    this.#replace(Math, { random: () => 0.5 });
    this.#replace(performance, { getEntriesByName: (name: string) => (name === "http://test/ws/http?up" ? [{ nextHopProtocol: this.nextHopProtocol }] : []) });
    this.#replace(AbortSignal, {
      timeout(ms: number) {
        const controller = new AbortController();
        clock.setTimeout(() => controller.abort(), ms);
        return controller.signal;
      },
    });
  }

  #replace(owner: any, values: object): void {
    for (const [name, value] of Object.entries(values)) {
      this.#saved.push([owner, name, Object.getOwnPropertyDescriptor(owner, name)]);
      Object.defineProperty(owner, name, { value, configurable: true, writable: true });
    }
  }

  /** Restores what a page has, after the last answers: what a closed client sends later would reach the next test. */
  async restore(): Promise<void> {
    await this.advance();
    for (const [owner, name, descriptor] of this.#saved.reverse()) {
      if (descriptor) Object.defineProperty(owner, name, descriptor);
      else delete (owner as any)[name];
    }
  }

  /** The constructor of a page, whose reports are kept. */
  fallback(options: Partial<FallbackOptions> = {}) {
    return fallback({ url: "http://test/ws/http", onTransport: (transport, reason) => this.reports.push(`${transport}: ${reason}`), ...options });
  }

  /** The last WebSocket. */
  get last(): BrowserSocket {
    return this.sockets.at(-1)!;
  }

  /** Moves the time, and lets responses and promises arrive. */
  async advance(ms = 0): Promise<void> {
    for (let i = 0; i < 60; i++) await settled();
    await this.clock.advance(ms);
    for (let i = 0; i < 60; i++) await settled();
  }

  fire(type: "online" | "offline"): void {
    this.#window.dispatchEvent(new Event(type));
  }

  show(visibilityState: "visible" | "hidden"): void {
    this.document.visibilityState = visibilityState;
    this.document.dispatchEvent(new Event("visibilitychange"));
  }
}

/** Creates a socket as the client does. */
export function observe(constructor: new (url: string, protocols: string[]) => WebSocketLike, url = "ws://test/ws", protocols: string[] = []): Observed {
  const socket = new constructor(url, protocols);
  const observed: Observed = { socket, opened: 0, messages: [], closes: [] };
  socket.onopen = () => observed.opened++;
  socket.onmessage = ({ data }) => observed.messages.push(data);
  socket.onclose = ({ code, reason }) => observed.closes.push({ code, reason });
  socket.onerror = () => {};
  return observed;
}

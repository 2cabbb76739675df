import type { WebSocketLike } from "./types.js";

// One connection over HTTP: events of the server in responses, messages of the client in numbered requests.

const BATCH_BYTES = 64_000; // of the messages in one request, so that its body stays below 64 KiB
const KEEPALIVE_BYTES = 60_000; // browsers permit 64 KiB in all requests that may outlive the page
const ACK_CHARACTERS = 16_384;
const ACK_MS = 5_000;
const REQUEST_MS = 10_000;
const LOST_MS = 30_000; // without a request that succeeds
const MUTE_MS = 3_000; // until the first byte of a stream
const SILENT_MS = 25_000; // the server writes a comment every 15 s
const POLL_MS = 35_000; // the server answers after 25 s
const PAUSE_MS = 1_000; // after a request that has failed, or a response without events
const CROWDED_PAUSE_MS = 5_000; // the server waits 10 s for the next request

const NO_CODE = 1005;
const LOST = 1006; // without a close frame
const TOO_LARGE = 1009;
const BUSY = 1013;

export type Mode = "stream" | "poll";

/** A connection over HTTP. connect replaces its methods. */
export interface FallbackSocket extends WebSocketLike {
  bufferedAmount: number;
  send(text: string): void;
  /** The page was hidden or shown. */
  turn(): void;
}

type Event = { [field: string]: string };

const isOurs = ({ headers }: Response): boolean => headers.has("Penstock-Fallback");

/** What the server demands, or 0. */
const retryAfterMs = ({ headers }: Response): number => +headers.get("Retry-After")! * 1000 || 0;

/** The same request would have the same answer. */
const isFinal = (status: number): boolean => status >= 400 && status < 500 && status !== 429;

/** Calls receive with the fields of each complete event, and heard with each part of the response. */
export async function readEvents({ body }: Response, receive: (event: Event) => void, heard?: () => void): Promise<void> {
  const reader = body!.getReader();
  const decoder = new TextDecoder();
  for (let text = ""; ; ) {
    const { done, value } = await reader.read();
    if (done) return;
    heard?.();
    const part = decoder.decode(value, { stream: true });
    text += part;
    if (!part.includes("\n")) continue; // of a large message
    const events = text.split(/\r?\n\r?\n/);
    text = events.pop()!;
    for (const event of events) {
      const fields: Event = {};
      // Messages may contain U+2028, which ends a line for some regular expressions.
      for (const [, field, content] of event.matchAll(/(?:^|\n)(\w+): ?([^\r\n]*)/g)) fields[field!] = content!;
      receive(fields);
    }
  }
}

/**
 * Opens a connection, and completes the socket with its methods. opening has the members of the request besides the mode. used is
 * called with the mode when it is open, and when it changes; ended when the connection has ended, with true if the server has refused it.
 */
export function connect(socket: FallbackSocket, url: string, opening: object, mode: Mode, used: (mode: Mode) => void, ended: (refused: boolean) => void): void {
  const waiting: { text: string; bytes: number }[] = [];
  const stops = new Set<() => void>(); // of requests and pauses
  let secret: string | undefined; // once the connection is open
  let reported: Mode | undefined;
  let sequence = 0; // of the last batch
  let received = 0; // the number of the last event
  let events = 0; // with or without a number
  let owed = 0; // characters of events that are not acknowledged
  let ackTimer: any;
  let acknowledging = false;
  let sending = false;
  let goodbye: { code?: number | undefined; reason?: string | undefined } | undefined;
  let doomed = false; // the server has refused messages: it may have closed the connection, and the event is on its way
  let over = false;
  let crowded = false;
  let interrupt: () => void; // ends the response or the pause

  /** Calls f after the time, or when stop is called. */
  function within(ms: number, f: () => void) {
    let timer: any;
    const extend = (more: number) => {
      clearTimeout(timer);
      timer = setTimeout(stop, more);
    };
    const stop = () => {
      clearTimeout(timer);
      stops.delete(stop);
      f();
    };
    stops.add(stop);
    extend(ms);
    return { stop, extend };
  }

  const pause = (ms: number) => new Promise<void>((resolve) => within(ms, resolve));

  /** Sends a request, which is aborted after the time. */
  function post(exchange: string, body: string, ms: number, keepalive = false) {
    const controller = new AbortController();
    const { signal } = controller;
    const { stop, extend } = within(ms, () => controller.abort());
    const answer = fetch(url + exchange, { method: "POST", body, credentials: "include", keepalive, signal }).catch(() => undefined);
    return { answer, signal, stop, extend };
  }

  /** Sends a request of which only the status counts. */
  async function tell(body: string, keepalive?: boolean): Promise<Response | undefined> {
    const { answer, stop } = post("?up", body, REQUEST_MS, keepalive);
    const result = await answer;
    stop();
    return result;
  }

  /** A response has arrived in this mode. */
  function reportMode(): void {
    if (secret && reported !== mode) used((reported = mode));
  }

  function finish(code: number, reason = "", refused = false): void {
    if (over) return;
    over = true;
    clearTimeout(ackTimer);
    stops.forEach((stop) => stop());
    ended(refused);
    socket.onclose?.({ code, reason });
  }

  /** Returns the number of the last event, for a request that acknowledges it. */
  function acknowledged(): number {
    clearTimeout(ackTimer);
    ackTimer = owed = 0;
    return received;
  }

  function owe(characters: number): void {
    owed += characters;
    if (owed >= ACK_CHARACTERS) void acknowledge();
    else ackTimer ||= setTimeout(acknowledge, ACK_MS);
  }

  /** Acknowledges beside messages, which may wait for room that an acknowledgment makes. */
  async function acknowledge(): Promise<void> {
    ackTimer = 0;
    if (acknowledging) return;
    acknowledging = true;
    await tell(JSON.stringify({ secret, ack: acknowledged() })); // if it is lost, the next one acknowledges more
    acknowledging = false;
    if (owed && !over) owe(0);
  }

  /** Sends what waits, one request at a time. */
  async function flush(): Promise<void> {
    if (sending || !secret) return;
    sending = true;
    await null; // what is sent together shares a request
    while (!over && !doomed && (waiting[0] || goodbye)) {
      let count = 0;
      let bytes = 0;
      while (waiting[count] && (!count || bytes + waiting[count]!.bytes <= BATCH_BYTES)) bytes += waiting[count++]!.bytes;
      const close = waiting[count] ? undefined : goodbye;
      const head = JSON.stringify({ secret, seq: count ? ++sequence : 0, ack: acknowledged(), close });
      await deliver([head, ...waiting.splice(0, count).map(({ text }) => text)].join("\n"), !!close && bytes < KEEPALIVE_BYTES);
      socket.bufferedAmount -= bytes;
      if (close) finish(NO_CODE);
    }
    sending = false;
  }

  /** Sends the same bytes until the server has received them. */
  async function deliver(body: string, keepalive: boolean): Promise<void> {
    for (const end = Date.now() + LOST_MS; !over; ) {
      const answer = await tell(body, keepalive);
      const status = answer && isOurs(answer) ? answer.status : 0;
      const waitMs = (status && retryAfterMs(answer!)) || PAUSE_MS;
      if (status === 204) return;
      if (status === 413) finish(TOO_LARGE);
      else if (isFinal(status)) {
        doomed = true;
        return interrupt();
      } else if (Date.now() + waitMs > end) finish(LOST);
      else if (!over) await pause(waitMs);
    }
  }

  /** Whether a hidden page should leave its connection to others: HTTP/1.1 has six for all pages of an origin. */
  function isCrowded(): boolean {
    if (globalThis.document?.visibilityState !== "hidden") return false;
    const last = performance.getEntriesByName(new URL(url + "?up", location.href).href).at(-1) as PerformanceResourceTiming | undefined;
    return /^http\/1/.test(last?.nextHopProtocol!);
  }

  /** Opens the connection, and receives events until it has ended. */
  async function run(): Promise<void> {
    for (let answeredAt = Date.now(); !over; ) {
      crowded = isCrowded();
      const before = events;
      const last = doomed;
      const streams = mode === "stream" && !crowded && !last;
      const about = secret ? { secret, ack: acknowledged(), waitMs: crowded || last ? 0 : undefined } : opening;
      const { answer, signal, stop, extend } = post(secret ? "?down" : "?open", JSON.stringify({ ...about, mode: streams ? "stream" : "poll" }), streams ? MUTE_MS : POLL_MS);
      let heard = false;
      interrupt = stop;
      const response = await answer;
      const status = response && isOurs(response) ? response.status : 0;
      if (status === 200) {
        const hear = () => {
          heard = true;
          reportMode();
          extend(SILENT_MS);
        };
        await readEvents(response!, receive, hear).catch(() => {}); // the next request continues
        answeredAt = Date.now();
      }
      const mute = streams && !heard && (status === 501 || (signal.aborted && crowded === isCrowded()));
      stop();
      if (over) return;
      if (mute) mode = "poll";
      else if (!secret) refuse(response);
      else if (last || isFinal(status) || Date.now() - answeredAt > LOST_MS) finish(LOST);
      else if (events === before && !doomed) await new Promise<void>((resolve) => (interrupt = within(crowded ? CROWDED_PAUSE_MS : PAUSE_MS, resolve).stop));
    }
  }

  /** The connection was not opened. */
  function refuse(response: Response | undefined): void {
    const status = response?.status ?? 0;
    if (status !== 429 && status !== 503) finish(LOST, "", isFinal(status));
    else finish(BUSY, JSON.stringify({ code: "UNAVAILABLE", retryable: true, retryAfterMs: retryAfterMs(response!) }));
  }

  function receive({ id, event, data = "" }: Event): void {
    if (over || +id! <= received) return;
    if (event || id) events++;
    if (id) {
      if (+id !== ++received) return finish(LOST);
      owe(data.length);
    }
    if (event === "open") {
      secret = JSON.parse(data).secret;
      reportMode();
      socket.onopen?.({});
      void flush();
    } else if (event === "close") {
      const { code, reason } = JSON.parse(data);
      finish(code, reason, !secret);
    } else if (!event && data) socket.onmessage?.({ data });
  }

  socket.send = (text) => {
    const { length } = new TextEncoder().encode(text);
    waiting.push({ text, bytes: length });
    socket.bufferedAmount += length;
    void flush();
  };

  // With a code, messages that wait are sent first. Without one, the page may be about to go away.
  socket.close = (code, reason) => {
    if (over || goodbye) return;
    goodbye = { code, reason };
    if (secret && code) return void flush();
    finish(NO_CODE);
    if (secret) void tell(JSON.stringify({ secret, ack: received, close: goodbye }), true);
  };

  socket.turn = () => {
    if (crowded !== isCrowded()) interrupt();
  };

  void run();
}

import { type Env, noop } from "./env.js";
import { decodeError, type ErrorDetails, PenstockError } from "./errors.js";
import type { Frame, Link } from "./link.js";
import type { Pacer } from "./pacer.js";
import { createQueue, type Place } from "./queue.js";
import type { ClientOptions, TraceContext } from "./types.js";

// The ordered queue of messages, and the messages that wait for an answer.

const MAX_BUFFERED_BYTES = 1e6; // of a socket: browsers buffer without limit
const BUFFER_CHECK_MS = 50;
const IN_FLIGHT_RETRY_MS = 1000;
const FOR_ANSWER = 2 ** 31; // longer than any timer

export type Done<P = any> = (error: PenstockError | undefined, payload?: P, id?: string) => void;

export interface Item {
  type: string;
  payload?: unknown;
  /** Further members of meta. */
  meta?: (TraceContext & { correlationId?: string | undefined; credit?: number }) | undefined;
  signal?: AbortSignal | undefined;
  /** How long it may wait: an event in the queue, a call for its answer. */
  within?: number | undefined;
  /** An event of the application is settled when the server has admitted it, one of the protocol when it is sent. */
  oneWay?: boolean;
  idempotent?: boolean | undefined;
  /** A message of the protocol, which precedes those of the application. */
  first?: boolean;
  onProgress?: ((payload: any, grant: (credit: number) => void) => void) | undefined;
  /** Called once. */
  done?: Done | undefined;
}

export interface Entry extends Place {
  type: string;
  weight: number;
  first: boolean | undefined;
  oneWay: boolean | undefined;
  /** When a message that was rejected may be sent again. */
  notBefore: number;
  link?: Link | undefined; // that it was sent on
  send(to: Link, uncertain?: boolean): void;
  settle(error?: PenstockError, payload?: any, id?: string): void;
  receive(frame: Frame, id: string, error?: PenstockError): void;
  /** The link is lost. tooBig: because of this message. */
  drop(tooBig?: boolean): void;
  cancel(): void;
  /** Grants a stream further items. */
  grant(credit: number): void;
}

export function createOutbox(env: Env, pacer: Pacer | undefined, { queue: { maxMessages = 1000, maxBytes = 1e6, overflow } = {} }: ClientOptions) {
  const { now, after, format } = env;
  const prefix = env.random().toString(36).slice(2) + "-";
  const pending = new Map<string, Entry>();
  const queue = createQueue<Entry>();
  let count = 0;
  let link: Link | undefined; // that messages are sent on
  let flushing: boolean;
  let stopWaiting = noop;

  /** Milliseconds until a message may be sent; Infinity: never. What it waits for may also be an answer, which flushes. */
  function waitFor({ type, first, oneWay, notBefore }: Entry, to: Link): number {
    if (to.socket.bufferedAmount > MAX_BUFFERED_BYTES) return BUFFER_CHECK_MS;
    if (first) return 0;
    if (!oneWay && (to.crowded || to.openCalls >= (env.welcome.concurrency || Infinity))) return FOR_ANSWER;
    return Math.max(notBefore - now(), pacer?.wait(type, notBefore) ?? 0);
  }

  function flush(): void {
    if (flushing) return; // a message that is sent may be settled
    flushing = true;
    stopWaiting();
    for (let again = true; again && link; ) {
      let soonest = FOR_ANSWER;
      again = false;
      pacer?.search();
      for (const entry of queue.heads()) {
        const wait = waitFor(entry, link);
        again = wait <= 0 || wait === Infinity;
        if (again) {
          queue.remove(entry);
          if (wait > 0) entry.settle(new PenstockError("FAILED_PRECONDITION", "", { retryAfterMs: null }));
          else entry.send(link);
          break;
        }
        soonest = Math.min(soonest, wait);
      }
      if (!again) stopWaiting = after(soonest, flush);
    }
    flushing = false;
  }

  /** Sends an item on a link at once, or adds it to the queue. */
  function submit({ type, payload, meta, signal, within = Infinity, oneWay, idempotent, first, onProgress, done }: Item, on?: Link): Entry {
    const body = format.stringify(payload, type);
    const due = now() + within;
    const ack = first ? undefined : !!pacer || oneWay;
    let id: string | undefined;
    let admitted: boolean;
    let cause: PenstockError | undefined; // why it was rejected and waits
    let stopTimer = noop;

    const remove = () => {
      queue.remove(entry);
      if (pending.delete(id!) && !oneWay) {
        entry.link!.openCalls--;
        entry.link!.crowded = false;
      }
      pacer?.forget(type, id);
    };

    const wait = () => {
      remove();
      id = entry.link = undefined;
      queue.insert(entry);
      stopTimer();
      stopTimer = after(due - now(), expire);
    };

    const expire = () => entry.settle(new PenstockError("DEADLINE_EXCEEDED", "", { retryable: true, cause }));

    const exhausted = (details: object, more: object) => new PenstockError("RESOURCE_EXHAUSTED", "", { ...more, details } as ErrorDetails);
    const tooBig = (observed: number, limit?: number) => entry.settle(exhausted({ kind: "payload", observed, limit }, { retryAfterMs: null }));

    const entry: Entry = {
      type,
      first,
      oneWay,
      notBefore: 0,
      order: ++count - (first ? 1e12 : 0),
      weight: body?.length || 0,

      send(to) {
        if (now() >= due + 1) return expire(); // the timer is late; a message that may not wait at all is not
        if (oneWay) stopTimer(); // only waiting is bounded
        if (ack || !oneWay) {
          id = prefix + ++count + (oneWay ? "e" : ""); // only those of calls end with a digit
          entry.link = to;
          pending.set(id, entry);
          if (!oneWay) to.openCalls++;
        }
        const timeoutMs = oneWay || due === Infinity ? undefined : Math.ceil(due - now()) || 1;
        // type and meta come first, so that the server can answer a message that is too large.
        const head = JSON.stringify({ type, meta: { correlationId: id, ack, timeoutMs, ...meta } });
        const message = body?.join?.(head) ?? (body ? head.slice(0, -1) + `,"payload":${body}}` : head);
        const limit = env.welcome.maxMessageBytesByType?.[type] ?? env.welcome.maxMessageBytes;
        const size = message.length * 3 > limit! ? new Blob([message]).size : 0; // a character has at most 3 bytes
        if (size > limit!) return tooBig(size, limit);
        pacer?.sent(type, id, first);
        env.log?.("$sent", type, id);
        to.socket.send(message);
        if (!id) entry.settle();
      },

      settle(...outcome) {
        entry.settle = noop;
        stopTimer();
        signal?.removeEventListener("abort", entry.cancel);
        remove();
        done?.(...outcome);
        flush();
      },

      receive({ type: answer, meta: { timestamp }, payload: result }, of, error) {
        const rejected = error && !admitted;
        pacer?.confirm(of, rejected);
        if (rejected && !on) {
          const { retryable, retryAfterMs, details } = error;
          const from = entry.link!;
          const inFlight = !oneWay && details.kind === "in_flight";
          pacer?.rejected(type, error, timestamp);
          if (retryable && (inFlight ? pacer || details.limit === env.welcome.concurrency : pacer && retryAfterMs)) {
            // What a limit has rejected is sent again, in order.
            wait();
            cause = error;
            from.crowded = inFlight && from.openCalls > 0;
            entry.notBefore = now() + (retryAfterMs || (from.crowded ? 0 : IN_FLIGHT_RETRY_MS));
            return flush();
          }
        }
        if (answer === "$ws:rpc-progress") env.emit([onProgress], result, entry.grant);
        else if (answer === "$ws:ack") {
          admitted = true;
          pacer?.forget(type, of);
          if (oneWay) entry.settle();
          flush();
        } else entry.settle(error, result, of);
      },

      drop(big) {
        if (big && idempotent) tooBig(entry.weight);
        else if (idempotent) {
          wait();
          flush();
        } else entry.settle(new PenstockError("ABORTED", "", { mayHaveExecuted: true }));
      },

      cancel() {
        if (!oneWay && pending.has(id!)) tell(entry.link, "$ws:abort", { correlationId: id });
        entry.settle(new PenstockError("CANCELLED", "", { cause: signal?.reason }));
      },

      grant(credit) {
        tell(entry.link === link ? undefined : entry.link, "$ws:credit", { correlationId: id, credit });
      },
    };

    signal?.addEventListener("abort", entry.cancel);
    if (signal?.aborted) entry.cancel();
    else if (on) entry.send(on);
    else {
      const full = () => !first && (queue.count >= maxMessages || (queue.count && queue.weight + entry.weight > maxBytes));
      const refuse = (one: Entry) => one.settle(exhausted({ kind: "queue" }, { retryable: true }));
      for (let old; overflow === "drop-oldest" && full() && (old = queue.heads().find((other) => !other.first)); ) refuse(old);
      if (full()) refuse(entry);
      else {
        wait();
        flush();
      }
    }
    return entry;
  }

  /** Ends entries that wait, and those that follow, or only messages of the protocol. */
  const endAll = (end: (entry: Entry) => void, onlyFirst?: boolean) => {
    for (let entry; (entry = queue.heads().find((e) => !onlyFirst || e.first)); ) end(entry);
  };

  /** Sends a message of the protocol that has no answer, on a link at once or before what waits. */
  const tell = (to: Link | undefined, type: string, meta?: Item["meta"], payload?: unknown) => submit({ type, meta, payload, oneWay: true, first: true }, to);

  return {
    submit,
    tell,
    queue,
    pending,

    /** Handles a message if it is an answer or an error, and returns something truthy then. */
    receive(from: Link, frame: Frame): unknown {
      const { type, meta, payload } = frame;
      const id = meta.correlationId;
      const entry = pending.get(id!);
      const error = /^(RPC_)?ERROR$/.test(type) ? decodeError(payload) : undefined;
      if (entry?.link === from) entry.receive(frame, id!, error);
      // The error has no ID, or that of an event which was admitted before its handler failed.
      else if (error && !/\d$/.test(id!)) env.deliver("$error", error);
      return id || error;
    },

    /** Sends what waits on a link. Without one, requests of the protocol end: they are made again. */
    use(next?: Link) {
      link = next;
      if (!next) endAll((entry) => entry.drop(), true);
      flush();
    },

    endAll,

    /** The messages that a link has sent and that have no answer, the largest first. */
    unansweredOn: (on: Link) => [...pending.values()].filter((entry) => entry.link === on).sort((a, b) => b.weight - a.weight),
  };
}

export type Outbox = ReturnType<typeof createOutbox>;

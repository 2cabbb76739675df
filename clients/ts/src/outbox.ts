import { type Env, noop } from "./env.js";
import { decodeError, PenstockError } from "./errors.js";
import { type Frame, type Link, write } from "./link.js";
import type { Pacer } from "./pacing.js";
import type { ClientOptions, Off } from "./types.js";

// The ordered queue of messages, and the messages that wait for an answer.

const MAX_BUFFERED_BYTES = 1 << 20; // of a socket: browsers buffer without limit
const BUFFER_CHECK_MS = 50;
const IN_FLIGHT_RETRY_MS = 1000;

export interface Item {
  type: string;
  body?: string | undefined;
  /** Further members of meta. */
  meta?: { credit?: number } | undefined;
  signal?: AbortSignal | undefined;
  /** Absolute time. Calls send what remains of it. */
  due: number;
  /** An event has no answer but the acknowledgment, if it asks for one. */
  event?: boolean | undefined;
  ack?: boolean | undefined;
  idempotent?: boolean | undefined;
  /** Before all messages of the application. Its bounds do not apply. */
  first?: boolean | undefined;
  progress?: ((payload: any) => void) | undefined;
  /** Called once. */
  done(error: PenstockError | undefined, payload?: any, id?: string): void;
}

interface Entry extends Item {
  order: number;
  id?: string | undefined;
  link?: Link | undefined; // that it was sent on
  admitted?: boolean;
  stopTimer: Off;
}

export function createOutbox(env: Env, pacer: Pacer, { queue: bounds = {}, pacing, random = Math.random }: ClientOptions) {
  const { messages: maxMessages = 1000, bytes: maxBytes = 1 << 20, policy } = bounds;
  const prefix = random().toString(36).slice(2, 10) + "-";
  const pending = new Map<string, Entry>();
  let queue: Entry[] = [];
  let bytes = 0;
  let count = 0;
  let link: Link | undefined; // that messages are sent on
  let held: Entry | undefined; // its outcome must be known before another message is sent
  let blockedUntil = 0;
  let cancelWake = noop;
  let flushing = false;
  /** Called if the announced limits are not those of the server. */
  let onWrongLimits = noop;

  const size = (entry: Entry) => entry.body?.length ?? 0;
  const fail = (code: string, message: string, details?: object) => new PenstockError(code, message, details as any);

  const insert = (entry: Entry) => {
    entry.id = entry.link = undefined;
    const index = queue.findLastIndex((other) => other.order < entry.order);
    queue.splice(index + 1, 0, entry);
    bytes += size(entry);
  };
  const remove = (entry: Entry) => {
    const index = queue.indexOf(entry);
    if (index >= 0) {
      queue.splice(index, 1);
      bytes -= size(entry);
    }
    if (entry.id) pending.delete(entry.id);
    if (held === entry) held = undefined;
  };

  const startTimer = (entry: Entry) => {
    entry.stopTimer = env.after(entry.due - env.now(), () => entry.done(fail("DEADLINE_EXCEEDED", entry.id ? "no answer" : "waited too long", { retryable: true })));
  };

  const wake = (ms: number) => {
    cancelWake();
    cancelWake = env.after(ms, flush);
  };

  /** Sends an item at once, on any link. */
  const transmit = (to: Link, item: Item | Entry) => {
    const entry = item as Entry;
    const ack = entry.ack || (pacing && !entry.first && entry.order !== undefined);
    const meta: any = { ...entry.meta };
    if (ack || !entry.event) {
      meta.correlationId = entry.id = prefix + ++count;
      entry.link = to;
      pending.set(entry.id, entry);
      if (ack) meta.ack = true;
      if (!entry.event && entry.due < Infinity) meta.timeoutMs = Math.max(1, Math.round(entry.due - env.now()));
    }
    pacer.sent(entry.type, entry.id);
    write(to, entry.type, meta, entry.body);
  };

  function flush(): void {
    if (flushing) return;
    cancelWake();
    flushing = true;
    sendQueue();
    flushing = false;
  }

  function sendQueue(): void {
    while (link && queue[0] && !held) {
      const entry = queue[0];
      const blocked = blockedUntil - env.now();
      if (blocked > 0) return wake(blocked);
      if (link.socket.bufferedAmount > MAX_BUFFERED_BYTES) return wake(BUFFER_CHECK_MS);
      const wait = pacing ? pacer.wait(entry.type) : 0;
      if (wait === Infinity) {
        entry.done(fail("FAILED_PRECONDITION", "the message costs more than the limit can ever allow", { retryAfterMs: null }));
        continue;
      }
      if (wait > 0) return wake(wait);
      remove(entry);
      if (entry.event) entry.stopTimer(); // only waiting is bounded
      if (wait < 0) held = entry;
      transmit(link, entry);
      if (!entry.id) entry.done(undefined);
    }
  }

  /** Paced messages that a limit has rejected are sent again, in order. */
  const repeats = (entry: Entry, error: PenstockError) => {
    if (!pacing || entry.admitted || entry.order === undefined) return false;
    const wait = error.retryable && (error.retryAfterMs ?? (error.details.kind === "in_flight" ? IN_FLIGHT_RETRY_MS : undefined));
    if (typeof wait !== "number") return false;
    blockedUntil = Math.max(blockedUntil, env.now() + wait);
    remove(entry);
    insert(entry);
    if (entry.event) startTimer(entry);
    flush();
    return true;
  };

  return {
    /** Adds an item to the queue. */
    enqueue(item: Item) {
      const entry = item as Entry;
      const { done, signal } = entry;
      const onAbort = () => {
        const { link: sentOn, id } = entry;
        entry.done(fail("CANCELLED", "aborted", { cause: signal!.reason }));
        if (sentOn && !entry.event) control(sentOn, "$ws:abort", { correlationId: id });
      };
      entry.order = ++count - (entry.first ? 2 ** 40 : 0);
      entry.stopTimer = noop;
      entry.done = (error, payload) => {
        entry.done = noop;
        entry.stopTimer();
        signal?.removeEventListener("abort", onAbort);
        remove(entry);
        done(error, payload);
        flush();
      };
      if (signal?.aborted) return onAbort();
      if (!entry.first) {
        const full = () => queue.length >= maxMessages || (queue.length > 0 && bytes + size(entry) > maxBytes);
        if (policy === "drop-oldest") {
          for (let old; full() && (old = queue.find((e) => !e.first)); ) old.done(fail("RESOURCE_EXHAUSTED", "dropped", { retryable: true }));
        }
        if (policy === "fail" && !link) return entry.done(fail("UNAVAILABLE", "not connected", { retryable: true }));
        if (full()) return entry.done(fail("RESOURCE_EXHAUSTED", "the queue is full", { retryable: true, details: { kind: "queue" } }));
      }
      signal?.addEventListener("abort", onAbort);
      insert(entry);
      startTimer(entry);
      flush();
    },

    /** Sends a call on a link, before and beside the queue. */
    ask(to: Link, type: string, payload: object | undefined, done: Item["done"]) {
      transmit(to, { type, body: payload && JSON.stringify(payload), due: Infinity, done });
    },

    control,

    /** Handles a message if it answers one of this client. */
    receive(from: Link, { type, meta, payload }: Frame): boolean {
      const id = meta?.correlationId;
      const entry = id ? pending.get(id) : undefined;
      const isError = type === "ERROR" || type === "RPC_ERROR";
      if (!entry || entry.link !== from) {
        if (isError && !id) env.report(decodeError(payload));
        return isError || !!id;
      }
      if (type === "$ws:rpc-progress") {
        pacer.confirm(id);
        env.emit([entry.progress || noop], payload);
        return true;
      }
      if (type === "$ws:ack") {
        entry.admitted = true;
        pacer.admitted(id, entry.type);
        if (entry === held) held = undefined;
        if (entry.event) entry.done(undefined);
        else flush();
        return true;
      }
      if (isError && !entry.admitted) {
        const error = decodeError(payload);
        if (pacer.rejected(id, entry.type, error, meta.timestamp)) onWrongLimits();
        if (repeats(entry, error)) return true;
      }
      pacer.confirm(id);
      pending.delete(id!);
      entry.done(isError ? decodeError(payload) : undefined, payload, id);
      return true;
    },

    /** Sends what waits on a link. Without one, requests of the protocol end: they are made again. */
    use(next: Link | undefined) {
      link = next;
      held = undefined;
      if (!next) for (const entry of queue.filter((e) => e.first)) entry.done(fail("ABORTED", ""));
      flush();
    },

    /** A link is lost. unhandled: the server has not handled what it has not answered. */
    lost(old: Link, unhandled: boolean) {
      for (const [id, entry] of [...pending]) {
        if (entry.link !== old) continue;
        pending.delete(id);
        if (entry.order !== undefined && (entry.idempotent || unhandled)) {
          remove(entry);
          insert(entry);
        } else {
          entry.done(fail("ABORTED", "the connection was lost; the message may have been handled", { mayHaveExecuted: true }));
        }
      }
      flush();
    },

    /** Rejects what waits. */
    clear(error: PenstockError) {
      for (const entry of [...queue]) entry.done(error);
    },

    isIdle: (on: Link) => ![...pending.values()].some((entry) => entry.link === on),
    onWrongLimits: (f: () => void) => void (onWrongLimits = f),
  };

  /** Sends a message of the protocol that has no answer, at once. */
  function control(to: Link, type: string, meta: object, payload?: unknown) {
    pacer.sent(type);
    write(to, type, meta, payload === undefined ? undefined : JSON.stringify(payload));
  }
}

export type Outbox = ReturnType<typeof createOutbox>;

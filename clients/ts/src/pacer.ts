import type { Env } from "./env.js";
import type { PenstockError } from "./errors.js";

// Models of the server's buckets. They never hold more tokens than those do, unless other connections take from them.

const SAFETY = 0.998; // of the refill rate: clocks differ by up to a tenth of a percent
const ROUNDING_MS = 3; // of the two times from which a rate is learned
const MAX_LEARNED = 512; // messages by a learned rate, until one message checks it
const PATIENCE_MS = 1000; // for a bucket whose level is unknown; after that, one message tries it

/** rate: in tokens per millisecond; 0: it is learned. exclusive: the level is exact. */
function createBucket({ now }: Env, capacity: number, costs: { [type: string]: number | null }, keep: { [type: string]: number } = {}, rate = 0, level = 0, exclusive?: boolean) {
  const learns = !rate;
  let at = now(); // of the level; in the future after a rejection
  let unconfirmed = 0; // costs of messages that are not known to have arrived
  let sure = learns ? 0 : Infinity; // messages that may be sent by this model; then one at a time
  let quota = 1;
  let admitted = 0; // cost since the first rejection
  let firstReady = 0; // after the first rejection, by the clock of the server

  const need = (type: string) => (costs[type] ?? 0) + (keep[type] ?? 0);

  const refill = () => {
    const elapsed = now() - at;
    if (elapsed <= 0) return;
    at += elapsed;
    // While messages have not arrived, the full bucket of the server may lose what returns.
    level = Math.min(Math.max(level, capacity - unconfirmed), level + elapsed * rate);
  };

  return {
    lane: {} as Lane,
    capacity,
    applies: (type: string) => costs[type] || costs[type] === null,

    /** Milliseconds until a message may be sent; 0: it is admitted; -1: it may be rejected; Infinity: it is never admitted. */
    wait(type: string): number {
      const tokens = need(type);
      if (tokens > capacity) return Infinity;
      refill();
      const trusted = sure > 0;
      const missing = (trusted || !learns) && level < tokens ? (tokens - level) / rate : 0;
      const wait = Math.max(at - now(), rate && missing);
      if (!exclusive && trusted && !learns && wait > PATIENCE_MS) return -1;
      return wait || (rate && trusted && costs[type] !== null ? 0 : -1);
    },

    /** Takes the cost of a message. The result is called when the message is known to have arrived. */
    take(type: string) {
      refill();
      const cost = costs[type] ?? level;
      level = Math.max(0, level - cost);
      unconfirmed += cost;
      admitted += cost;
      sure--;
      return (rejected?: boolean) => {
        refill();
        unconfirmed -= cost;
        if (rejected) admitted -= cost;
        else if (costs[type] === null) level = 0;
      };
    },

    /** ready: when the message is admitted, by the clock of the server; 0: not because tokens have returned. */
    denied(type: string, retryAfterMs: number, ready: number) {
      exclusive = true;
      level = need(type);
      at = now() + retryAfterMs;
      sure = 0; // other connections take from the bucket
      if (!learns) return;
      if (firstReady && ready) rate = admitted / (ready - firstReady + ROUNDING_MS);
      else {
        firstReady = ready;
        admitted = 0;
      }
      sure = quota = Math.min(2 * quota, MAX_LEARNED);
    },
  };
}

/** Messages that must not overtake each other: those of one type, or those that take tokens from one bucket. */
interface Lane {
  /** The message whose outcome is awaited. */
  awaited?: string | undefined;
  /** When its first message may be sent, which was rejected. */
  notBefore?: number;
  /** The last search in which one of its messages had to wait. */
  closedIn?: number;
}

const FOR_ANSWER = 2 ** 31; // longer than any timer

export function createPacer(env: Env) {
  const { now } = env;
  let announced: ReturnType<typeof createBucket>[] = [];
  let types: { [type: string]: [buckets: ReturnType<typeof createBucket>[], lanes: Lane[]] } = {};
  let sent = new Map<string, ((rejected?: boolean) => void)[]>(); // that are not known to have arrived
  let search = 0;

  /** The buckets and lanes of a type. */
  const of = (type: string) => {
    if (!types[type]) {
      const buckets = announced.filter((b) => b.applies(type));
      types[type] = [buckets, [{}, ...buckets.map((b) => b.lane)]];
    }
    return types[type];
  };

  /** The longest wait of the buckets, in whole milliseconds. -1: the message may be rejected. */
  const waitOf = (type: string): number => {
    const waits = of(type)[0].map((b) => b.wait(type));
    // A type without announced cost may have a limit that is not announced: -1.
    return Math.ceil(Math.max(0, ...waits)) || Math.min(0, waits.length - 1, ...waits);
  };

  return {
    /** A connection begins. */
    restart() {
      announced = [];
      types = {}; // it is unknown what was admitted
      sent = new Map();
    },

    /** Takes the limits of a welcome, before other messages are sent than those of the greeting. */
    announce(limits: any[] = []) {
      types = {};
      announced = limits.flatMap(({ capacity, refill, refillMs, scope, buckets }) =>
        buckets.map(({ costs, keep }: any) => {
          const exclusive = scope === "connection";
          const level = exclusive && Math.max(0, capacity - (costs["$ws:hello"] || 0) - (costs["$ws:resume"] || 0));
          return createBucket(env, capacity, costs, keep, (refill / refillMs) * SAFETY, level || 0, exclusive);
        }),
      );
    },

    /** Begins to look for a message that may be sent. */
    search() {
      search++;
    },

    /**
     * Milliseconds until a message may be sent, which was rejected until notBefore; Infinity: it is never admitted. If
     * it must wait, so must those behind it in its lanes, in the same search.
     */
    wait(type: string, notBefore: number): number {
      const [, lanes] = of(type);
      let wait = waitOf(type);
      lanes[0]!.notBefore = notBefore;
      if (wait === Infinity) return wait;
      wait = Math.max(notBefore - now(), lanes.some(({ awaited, closedIn }) => awaited || closedIn === search) ? FOR_ANSWER : wait);
      if (wait > 0) for (const lane of lanes) lane.closedIn = search;
      return wait;
    },

    /** Takes the cost of a message. Behind one that may be rejected, nothing is sent in its lanes; first: it holds back nothing. */
    sent(type: string, id?: string, first?: boolean) {
      const uncertain = id && !first && waitOf(type) < 0;
      const [buckets, lanes] = of(type);
      const arrivals = buckets.map((b) => b.take(type));
      if (id) sent.set(id, arrivals);
      else for (const arrived of arrivals) arrived(); // without an answer
      if (uncertain) for (const lane of lanes) lane.awaited = id;
    },

    /** An answer to the message of the id shows that it has arrived, and all before it. */
    confirm(id: string, rejected?: unknown) {
      if (sent.has(id)) {
        for (const [each, arrivals] of sent) {
          sent.delete(each);
          for (const arrived of arrivals) arrived(!!rejected && each === id);
          if (each === id) break;
        }
      }
    },

    /** The outcome of a message is known, or does not matter any more. */
    forget(type: string, id?: string) {
      for (const lane of of(type)[1]) if (id && lane.awaited === id) lane.awaited = undefined;
    },

    /** A message was rejected. */
    rejected(type: string, { details, retryAfterMs }: PenstockError, timestamp: number) {
      const { kind, limit, observed, reason } = details as any;
      if (kind !== "rate" || !retryAfterMs) return;
      const entry = of(type);
      let buckets = entry[0].filter((b) => b.capacity === limit);
      if (!buckets[0]) {
        buckets = [createBucket(env, limit, { [type]: observed })];
        entry[0] = [...announced.filter((b) => b.applies(type)), ...buckets];
      }
      for (const b of buckets) b.denied(type, retryAfterMs, reason ? 0 : timestamp + retryAfterMs);
    },

    /** When a message may be sent; undefined: now. */
    nextAt(type: string) {
      const wait = Math.max(waitOf(type), (of(type)[1][0]!.notBefore ?? 0) - now());
      return wait > 0 ? now() + wait : undefined;
    },
  };
}

export type Pacer = ReturnType<typeof createPacer>;

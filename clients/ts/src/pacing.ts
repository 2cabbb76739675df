import type { Env } from "./env.js";
import { PenstockError } from "./errors.js";

// A model of the server's buckets. It never holds more tokens than they do, unless other connections take from them.

const SAFETY = 0.998; // of the refill rate: clocks differ by up to a tenth of a percent
const LEARNED_SAFETY_MS = 3; // rounding of the two times from which a rate is learned
const MAX_LEARNED = 512; // messages by a learned rate, until one message checks it
const DOUBTFUL = 16; // messages sent one at a time after the model was wrong

interface Bucket {
  capacity: number;
  rate: number; // tokens per millisecond; 0: unknown
  level: number; // at the time `at`, which is in the future after a rejection
  at: number;
  unconfirmed: number; // costs of messages that are not known to have arrived
  costs: { [type: string]: number | null };
  keep?: { [type: string]: number };
  sure: number; // messages that may be sent before one checks the model
  doubt: number; // messages that are sent one at a time
  unknown?: boolean; // the bucket may hold much more than the model
  learned?: { quota: number; admitted: number; firstReady: number } | undefined;
}

interface Sent {
  id: string | undefined;
  at: number;
  taken: [Bucket, number][];
}

export function createPacer({ now }: Env) {
  let announced: Bucket[] | undefined;
  const learned: { [type: string]: Bucket } = {};
  let sent: Sent[] = [];
  let types: string[] = []; // of all messages on the connection, until limits are announced
  let fastest = Infinity; // round-trip time

  const bucketsOf = (type: string) => [...(announced || []), ...(learned[type] ? [learned[type]] : [])].filter((b) => b.costs[type] !== 0 && type in b.costs);

  const refill = (b: Bucket) => {
    const elapsed = now() - b.at;
    if (elapsed > 0) {
      // While messages have not arrived, the full bucket of the server may lose what returns.
      b.level = Math.min(Math.max(b.level, b.capacity - b.unconfirmed), b.level + elapsed * b.rate);
      b.at += elapsed;
    }
    return b.level;
  };

  const confirm = (id: string | undefined) => {
    const index = sent.findIndex((s) => s.id === id);
    if (index < 0) return;
    fastest = Math.min(fastest, now() - sent[index]!.at);
    for (const { taken } of sent.splice(0, index + 1)) {
      for (const [b, cost] of taken) {
        refill(b);
        b.unconfirmed -= cost;
      }
    }
  };

  /** Learns from a rejection without an announced limit. */
  const learn = (type: string, error: PenstockError, timestamp: number) => {
    const { observed, limit, reason } = error.details as any;
    const ready = timestamp + error.retryAfterMs!;
    const b: Bucket = (learned[type] ??= { capacity: limit, rate: 0, level: 0, at: 0, unconfirmed: 0, costs: {}, sure: 0, doubt: 0 });
    b.capacity = limit;
    b.costs[type] = observed;
    if (!b.learned) b.learned = { quota: 1, admitted: 0, firstReady: ready };
    else if (!reason) b.rate = b.learned.admitted / (ready - b.learned.firstReady + LEARNED_SAFETY_MS);
    b.sure = b.learned.quota = Math.min(2 * b.learned.quota, MAX_LEARNED);
    b.level = observed + Math.min(limit - observed, fastest < Infinity ? 0.9 * b.rate * fastest : 0);
    b.at = now() + error.retryAfterMs!;
  };

  return {
    /** A connection begins. */
    reset() {
      announced = undefined;
      sent = [];
      types = [];
      for (const b of Object.values(learned)) {
        b.rate = b.unconfirmed = 0; // it is unknown what was admitted
        b.learned = undefined;
      }
    },

    /** Takes the limits of a welcome. */
    announce(limits: any[] | undefined) {
      announced = limits?.flatMap(({ capacity, refill, refillMs, scope, buckets }) =>
        buckets.map(({ costs, keep }: any): Bucket => {
          const own = scope === "connection" && !announced;
          const used = types.reduce((sum, type) => sum + (costs[type] || 0), 0);
          const level = own ? Math.max(0, capacity - used) : 0;
          return { capacity, rate: (refill / refillMs) * SAFETY, level, at: now(), unconfirmed: 0, costs, keep, sure: Infinity, doubt: 0, unknown: !own };
        }),
      );
    },

    /** Milliseconds until a message may be sent; 0: it is admitted; -1: it may be rejected; Infinity: it is never admitted. */
    wait(type: string): number {
      let wait = 0;
      let certain = announced || learned[type];
      for (const b of bucketsOf(type)) {
        const cost = b.costs[type];
        const need = (cost ?? 0) + (b.keep?.[type] ?? 0);
        if (need > b.capacity) return Infinity;
        let missing = Math.max(0, b.at - now());
        if (!b.rate || b.sure <= 0) certain = undefined; // sends beyond what is known
        else if (!missing && refill(b) < need) missing = (need - b.level) / b.rate;
        if (b.unknown && missing > 1000) missing = 0, (certain = undefined);
        if (cost === null || b.doubt) certain = undefined;
        wait = Math.max(wait, missing);
      }
      return Math.ceil(wait) || (certain ? 0 : -1);
    },

    /** Takes the cost of a message. Answers to its id confirm that it has arrived, and all before it. */
    sent(type: string, id?: string) {
      if (!announced) types.push(type);
      const taken = bucketsOf(type).map((b): [Bucket, number] => {
        refill(b);
        const cost = b.costs[type] ?? b.level;
        b.level = Math.max(0, b.level - cost);
        b.unconfirmed += cost;
        b.sure--;
        if (b.learned) b.learned.admitted += cost;
        return [b, cost];
      });
      sent.push({ id, at: now(), taken });
      if (sent.length > 1000) confirm(sent[0]!.id);
    },

    confirm,

    /** The message of the id was admitted: the model was right. */
    admitted(id: string | undefined, type: string) {
      confirm(id);
      for (const b of bucketsOf(type)) {
        if (b.doubt) b.doubt--;
        if (b.costs[type] === null) b.level = 0, (b.at = now());
      }
    },

    /** The message of the id was rejected. Returns whether an announced limit was not what the model says. */
    rejected(id: string | undefined, type: string, error: PenstockError, timestamp: number): boolean {
      for (const [b, cost] of sent.find((s) => s.id === id)?.taken || []) if (b.learned) b.learned.admitted -= cost;
      confirm(id);
      const { kind, limit } = error.details as any;
      if (kind !== "rate" || typeof error.retryAfterMs !== "number") return false;
      const known = announced?.filter((b) => type in b.costs && b.capacity === limit) || [];
      for (const b of known) {
        b.doubt = DOUBTFUL;
        b.unknown = false;
        b.level = (b.costs[type] ?? 0) + (b.keep?.[type] ?? 0);
        b.at = now() + error.retryAfterMs;
      }
      if (!known.length) learn(type, error, timestamp);
      return known.length > 0;
    },
  };
}

export type Pacer = ReturnType<typeof createPacer>;

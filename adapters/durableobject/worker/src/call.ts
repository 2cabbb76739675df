import { blockNow, blockReply } from "./block";
import { takeFromBucket } from "./bucket";
import type { BucketCall } from "./bucket";
import { takeFromCounter } from "./counter";
import type { CounterCall } from "./counter";
import { takeFromLog } from "./log";
import type { LogCall } from "./log";
import { takeFromQuota } from "./quota";
import type { QuotaCall } from "./quota";
import { PENALTY_STARTS } from "./record";
import type { Result, Stored } from "./record";
import { emptyRow } from "./row";
import type { Row } from "./row";

/** A BlockCall denies a key for a time in microseconds, after which nothing counts. 0 ends a block, and removes what counts. */
export interface BlockCall {
  kind: "block";
  micros: number;
}

/** A Part of a call is about one key of one limiter. */
export interface Part {
  /** Name of the record. */
  k: string;
  /** What decides which object has the record: the key without the name of the limiter. */
  place: string;
  /** Whether the call decides as otherwise, and takes nothing. */
  look: boolean;
  /** Whether the part can be one of several, which first look. */
  isJoint: boolean;
  take: BucketCall | LogCall | CounterCall | QuotaCall | BlockCall;
}

/** A Call has parts with different records. Each takes its cost, or none does. */
export type Call = Part[];

/** The numbers of each part. */
export type CallReply = number[][];

/** Rows is what the calls of a request read and change. */
export class Rows {
  readonly changed = new Set<string>();

  constructor(private readonly rows: Map<string, Row>) {}

  get(k: string): Row {
    return this.rows.get(k) ?? emptyRow(k);
  }

  set(row: Row): void {
    this.rows.set(row.k, row);
    this.changed.add(row.k);
  }
}

/**
 * execute executes a call at a time in microseconds since 1970. If a part of several denies, the replies are
 * those before the call, and only the first part that denies may start a penalty.
 */
export function execute(rows: Rows, call: Call, now: number): CallReply {
  if (call.length === 1) {
    return call.map((part) => executePart(rows, part, now, part.look).reply);
  }
  let denied = false;
  const looks = call.map((part) => {
    const result = executePart(rows, part, now, true);
    if (!denied && !part.look && result.reply[0] === PENALTY_STARTS && part.take.kind === "cooldown") {
      executePart(rows, part, now, false);
    }
    denied ||= result.denies;
    return result.reply;
  });
  return denied ? looks : call.map((part) => executePart(rows, part, now, part.look).reply);
}

function executePart(rows: Rows, part: Part, now: number, look: boolean): { reply: number[]; denies: boolean } {
  let row = rows.get(part.k);
  if (part.take.kind === "block") {
    rows.set({ ...row, until: now + part.take.micros, numbers: [], blocked_from: part.take.micros > 0 ? now : 0 });
    return { reply: [1], denies: false };
  }
  if (row.blocked_from > 0) {
    const { from, until } = blockNow({ from: row.blocked_from, until: row.until }, now);
    if (from !== row.blocked_from && !look) {
      rows.set((row = { ...row, until, blocked_from: from }));
    }
    if (until > now) {
      return { reply: blockReply(part.take.kind, until - now, now), denies: true };
    }
  }
  const current = row.until > now && row.blocked_from === 0;
  const stored = current ? { until: row.until, numbers: row.numbers } : null;
  const result = take(stored, part.take, now, look);
  if (result.record !== undefined) {
    const { until, numbers } = result.record ?? { until: 0, numbers: [] };
    rows.set({ ...row, until, numbers, blocked_from: 0 });
  }
  return result;
}

function take(stored: Stored | null, call: Exclude<Part["take"], BlockCall>, now: number, look: boolean): Result {
  switch (call.kind) {
    case "bucket":
      return takeFromBucket(stored, call, now, look);
    case "counter":
      return takeFromCounter(stored, call, now, look);
    case "quota":
      return takeFromQuota(stored, call, now, look);
    default:
      return takeFromLog(stored, call, now, look);
  }
}

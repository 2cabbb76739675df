// Arithmetic of token buckets. Every number is an integer below 2^53, so Numbers represent it
// exactly: a full bucket and a deficit have at most 2^51 units each, a converted bucket lacks at
// most 2^52, and times are in microseconds since 1970, below 2^53 with the longest refill.

import type { Result, Stored } from "./record";

/** A policy in whole numbers, see limit.Units in Go. */
export interface Policy {
  /** Units that return to a bucket in a microsecond. */
  perMicro: number;
  /** Units of a token. */
  perToken: number;
  /** Tokens of a full bucket. */
  capacity: number;
}

/**
 * A BucketCall takes the largest multiple of divisor that is at most units and leaves a balance of at
 * least lowest, which is negative for a deficit. Negative units return to the bucket, 0 reads only.
 */
export interface BucketCall {
  kind: "bucket";
  policy: Policy;
  units: number;
  lowest: number;
  divisor: number;
  /**
   * When a bucket held the negative units that a call undoes, in microseconds since 1970: those that
   * have returned since then do not return again. 0 if all return.
   */
  since: number;
}

/** A Bucket contains the numbers of the policy that stored it; a call with other numbers converts it. */
interface Bucket {
  /** When it will be full, in microseconds since 1970. */
  fullAt: number;
  /** Units by which it is full before the end of that microsecond. */
  early: number;
  /** Units by which more than a full bucket is missing. */
  ahead: number;
  policy: Policy;
}

const MAX_MISSING = 2 ** 52;

/**
 * takeFromBucket executes a call. The reply is what the bucket held before, in units, and the time. A call
 * that takes nothing changes the record only if that is outdated, see read.
 */
export function takeFromBucket(stored: Stored | null, call: BucketCall, now: number, look: boolean): Result {
  const bucket = stored && decode(stored);
  const full = call.policy.perToken * call.policy.capacity;
  const { missing, outdated } = read(bucket, call.policy, now);
  const held = full - missing;
  const result: Result = { reply: [held, now], denies: call.units > 0 && call.units > held - call.lowest };
  let taken = 0;
  if (!look) {
    taken = call.since > 0 ? undo(bucket, call, missing, now) : take(call, held, missing);
  }
  if (taken !== 0 || outdated) {
    result.record = encode(missing + taken, call.policy, full, now);
  }
  return result;
}

/** take returns the units that a call takes. */
function take(call: BucketCall, held: number, missing: number): number {
  if (call.units < 0) {
    return Math.max(call.units, -missing);
  }
  // The quotient of integers below 2^53 never rounds up to an integer.
  const possible = Math.floor((held - call.lowest) / call.divisor) * call.divisor;
  return Math.max(Math.min(call.units, possible), 0);
}

/** undo returns 0 or the negative units that a call returns. A policy that refills faster may have written the bucket since. */
function undo(bucket: Bucket | null, call: BucketCall, missing: number, now: number): number {
  if (bucket === null || !equal(bucket.policy, call.policy)) {
    return 0;
  }
  return Math.max(Math.min(call.units + Math.max(now - call.since, 0) * call.policy.perMicro, 0), -missing);
}

function equal(a: Policy, b: Policy): boolean {
  return a.perMicro === b.perMicro && a.perToken === b.perToken && a.capacity === b.capacity;
}

/**
 * read returns the units that a bucket lacks, in units of the policy, and whether even a denied
 * call must store them: because the clock went backwards, or because the policy refills faster
 * than the one of the bucket, and the caller computes a wait that holds only with its own.
 */
function read(bucket: Bucket | null, policy: Policy, now: number): { missing: number; outdated: boolean } {
  if (bucket === null) {
    return { missing: 0, outdated: false };
  }
  const old = bucket.policy;
  // After a large step backwards the product is inexact, but still more than possible.
  let missing = (bucket.fullAt - now) * old.perMicro - bucket.early;
  if (missing <= 0) {
    return { missing: 0, outdated: false };
  }
  const possible = old.capacity * old.perToken + bucket.ahead;
  let outdated = refillsFaster(policy, old);
  if (missing > possible) {
    missing = possible;
    outdated = true;
  }
  return { missing: convert(missing, old.perToken, policy.perToken), outdated };
}

/** convert rounds up: a change of the policy never creates tokens. */
function convert(missing: number, oldPerToken: number, perToken: number): number {
  if (oldPerToken === perToken) {
    return missing;
  }
  const old = BigInt(oldPerToken);
  const units = (BigInt(missing) * BigInt(perToken) + old - 1n) / old;
  return units < BigInt(MAX_MISSING) ? Number(units) : MAX_MISSING;
}

function refillsFaster(policy: Policy, old: Policy): boolean {
  if (policy.perToken === old.perToken) {
    return policy.perMicro > old.perMicro;
  }
  return BigInt(policy.perMicro) * BigInt(old.perToken) > BigInt(old.perMicro) * BigInt(policy.perToken);
}

function decode(stored: Stored): Bucket {
  const [fullAt = 0, early = 0, ahead = 0, perMicro = 1, perToken = 1, capacity = 1] = stored.numbers;
  return { fullAt, early, ahead, policy: { perMicro, perToken, capacity } };
}

/** encode returns a bucket that lacks units, or null if it is full. */
function encode(missing: number, policy: Policy, full: number, now: number): Stored | null {
  if (missing <= 0) {
    return null;
  }
  const { perMicro, perToken, capacity } = policy;
  const micros = Math.ceil(missing / perMicro);
  const until = now + micros;
  return { until, numbers: [until, micros * perMicro - missing, Math.max(missing - full, 0), perMicro, perToken, capacity] };
}

// Arithmetic of token buckets. Every number is an integer below 2^53, so Numbers represent it
// exactly: a full bucket and a deficit have at most 2^51 units each, a converted bucket lacks at
// most 2^52, and times are in microseconds since 1970, below 2^53 with the longest refill.

import { MAX_LEASES, addLease, decodeLeases, encodeLeases, left, moveLeases } from "./lease";
import type { Lease, NewLease, Settlement } from "./lease";
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
  lease?: NewLease;
  settle?: Settlement;
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
  /** In the order of their ends. */
  leases: Lease[];
}

/** What a bucket is now, in units of the caller's policy. */
interface State {
  missing: number;
  leases: Lease[];
  /** Whether another policy has stored the bucket. */
  other: boolean;
  /**
   * Whether even a denied call must store it: because the clock went backwards, or because the policy
   * refills faster than the one of the bucket, and the caller computes a wait that holds only with its own.
   */
  outdated: boolean;
}

const MAX_MISSING = 2 ** 52;

/**
 * takeFromBucket executes a call. The reply is what the bucket held before, in units; the time; the
 * microseconds until its first lease ends, or 0; and 1 if a lease was denied because the bucket has too many.
 */
export function takeFromBucket(stored: Stored | null, call: BucketCall, now: number, look: boolean): Result {
  const state = read(stored && decode(stored), call.policy, now);
  const { missing, leases } = state;
  const held = call.policy.perToken * call.policy.capacity - missing;
  const hasAll = call.lease !== undefined && leases.length >= MAX_LEASES;
  let change = 0;
  let settles = false;
  if (!look && call.settle !== undefined) {
    ({ change, settles } = settle(state, call, call.settle, now));
  } else if (!look && !hasAll) {
    change = call.since > 0 ? undo(state, call, now) : take(call, held, missing);
  }
  if (call.lease !== undefined && change > 0) {
    const { id, micros } = call.lease;
    addLease(leases, { ends: now + micros, id, units: change, settled: false, taken: now, extra: [] });
  }
  const first = leases[0];
  const result: Result = {
    reply: [held, now, first ? first.ends - now : 0, hasAll ? 1 : 0],
    denies: hasAll || (call.units > 0 && call.units > held - call.lowest),
  };
  if (change !== 0 || settles || state.outdated) {
    result.record = encode(Math.min(missing + change, MAX_MISSING), leases, call.policy, now);
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
function undo({ missing, other }: State, call: BucketCall, now: number): number {
  if (other) {
    return 0;
  }
  return Math.max(Math.min(call.units + Math.max(now - call.since, 0) * call.policy.perMicro, 0), -missing);
}

/** settle marks a lease as settled, and returns the units to take. */
function settle(state: State, call: BucketCall, settlement: Settlement, now: number): { change: number; settles: boolean } {
  const lease = state.leases.find((each) => each.id === settlement.id);
  if (lease === undefined) {
    return { change: call.units, settles: false };
  }
  if (lease.settled) {
    return { change: 0, settles: false };
  }
  const returning = settlement.returns ? Math.min(left(lease, now, call.policy.perMicro), state.missing) : 0;
  lease.settled = true;
  return { change: Math.max(settlement.excess, -returning), settles: true };
}

/** read ends the leases of a bucket whose time has come. */
function read(bucket: Bucket | null, policy: Policy, now: number): State {
  if (bucket === null) {
    return { missing: 0, leases: [], other: true, outdated: false };
  }
  const old = bucket.policy;
  const moved = moveLeases(bucket.leases, now);
  let missing = missingUnits(bucket, now);
  const leases = bucket.leases.filter((lease) => lease.ends > now);
  const other = old.perMicro !== policy.perMicro || old.perToken !== policy.perToken || old.capacity !== policy.capacity;
  if (other) {
    leases.forEach((lease) => (lease.units = 0)); // the units of one policy mean nothing to another
  }
  if (missing <= 0) {
    return { missing: 0, leases, other, outdated: moved };
  }
  const possible = old.capacity * old.perToken + bucket.ahead;
  const outdated = moved || refillsFaster(policy, old) || missing > possible;
  missing = Math.min(missing, possible);
  return { missing: convert(missing, old.perToken, policy.perToken), leases, other, outdated };
}

/** missingUnits returns what a bucket lacks now. Each lease that has ended counts as an undo at its end. */
function missingUnits(bucket: Bucket, now: number): number {
  const { perMicro } = bucket.policy;
  let { fullAt, early } = bucket;
  for (const lease of bucket.leases) {
    if (lease.ends > now) {
      break;
    }
    const then = (fullAt - lease.ends) * perMicro - early;
    if (then > 0 && !lease.settled) {
      const rest = Math.max(then - left(lease, lease.ends, perMicro), 0);
      const micros = Math.ceil(rest / perMicro);
      fullAt = lease.ends + micros;
      early = micros * perMicro - rest;
    }
  }
  // After a large step backwards the product is inexact, but still more than possible.
  return (fullAt - now) * perMicro - early;
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
  const [fullAt = 0, early = 0, ahead = 0, perMicro = 1, perToken = 1, capacity = 1, ...leases] = stored.numbers;
  return { fullAt, early, ahead, policy: { perMicro, perToken, capacity }, leases: decodeLeases(leases, 0) };
}

/** encode returns a bucket that lacks units, or null if it is full and has no leases. */
function encode(missing: number, leases: Lease[], policy: Policy, now: number): Stored | null {
  if (missing <= 0 && leases.length === 0) {
    return null;
  }
  const { perMicro, perToken, capacity } = policy;
  const micros = Math.ceil(missing / perMicro);
  const fullAt = now + micros;
  const ahead = Math.max(missing - perToken * capacity, 0);
  return {
    until: Math.max(fullAt, leases.at(-1)?.ends ?? 0), // a settlement needs the lease until its end
    numbers: [fullAt, micros * perMicro - missing, ahead, perMicro, perToken, capacity, ...encodeLeases(leases)],
  };
}

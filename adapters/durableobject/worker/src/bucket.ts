// Arithmetic of token buckets. Every number is an integer below 2^53, so Numbers represent it
// exactly: a full bucket and a deficit have at most 2^51 units each, a converted bucket lacks at
// most 2^52, and times are in microseconds since 1970, below 2^53 with the longest refill.

import {
  addLease,
  addMark,
  decodeLeases,
  encodeLeases,
  firstEnd,
  giveBack,
  hasAllLeases,
  isOpen,
  lastEnd,
  lowerAll,
  markOf,
  moveLeases,
  settleLease,
} from "./lease";
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
  /** When the negative units were taken that a call undoes, in microseconds since 1970. 0 if all return. */
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
  /** The least that it was missing before a change, in units, since the lows of all leases were lowered. */
  low: number;
  /** In the order of their ends. */
  leases: Lease[];
}

/** What a bucket is now, in units of the caller's policy. */
interface State {
  missing: number;
  low: number;
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

/** The low of a bucket that has not changed since all lows were lowered. */
const NO_LOW = Number.MAX_SAFE_INTEGER;

/**
 * takeFromBucket executes a call. The reply is what the bucket held before, in units; the time; the
 * microseconds until its first lease ends, or 0; and 1 if a lease was denied because the bucket has too many.
 */
export function takeFromBucket(stored: Stored | null, call: BucketCall, now: number, look: boolean): Result {
  const state = read(stored && decode(stored), call.policy, now);
  const { missing, leases } = state;
  const held = call.policy.perToken * call.policy.capacity - missing;
  const hasAll = call.lease !== undefined && call.lease.id !== 0 && hasAllLeases(leases);
  let change = 0;
  let settles = false;
  if (!look && call.settle !== undefined) {
    ({ change, settles } = settle(state, call, call.settle, now));
  } else if (!look && !hasAll) {
    change = call.since > 0 ? undo(state, call, now) : take(call, held, missing);
  }
  if (call.lease !== undefined && change > 0) {
    add(state, call.lease, change, now);
  }
  const first = firstEnd(leases);
  const result: Result = {
    reply: [held, now, first === undefined ? 0 : first - now, hasAll ? 1 : 0],
    denies: hasAll || (call.units > 0 && call.units > held - call.lowest),
  };
  if (change !== 0 || settles || state.outdated) {
    result.record = encode({ ...state, missing: Math.min(missing + change, MAX_MISSING) }, call.policy, now);
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

/** add adds a lease or a mark of units that the bucket is going to miss, too. */
function add(state: State, { id, micros }: NewLease, units: number, now: number): void {
  lower(state);
  const lease = { ends: now + micros, id, units: id === 0 ? 0 : units, settled: false, taken: now, low: state.missing + units, extra: [] };
  (id === 0 ? addMark : addLease)(state.leases, lease);
}

/** lower lowers all leases to what the bucket was missing before a change. */
function lower(state: State): void {
  lowerAll(state.leases, Math.min(state.low, state.missing));
  state.low = NO_LOW;
}

/** undo returns 0 or the negative units that a call returns. A policy that refills faster may have written the bucket since. */
function undo(state: State, call: BucketCall, now: number): number {
  if (state.other) {
    return 0;
  }
  lower(state);
  const mark = markOf(state.leases, call.since);
  if (mark !== undefined) {
    return -giveBack(state.leases, -call.units, mark.low);
  }
  const left = Math.max(-call.units - Math.max(now - call.since, 0) * call.policy.perMicro, 0);
  return -giveBack(state.leases, Math.min(left, state.missing));
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
  let change = settlement.excess;
  if (change < 0) {
    lower(state);
    change = settlement.returns && lease.units > 0 ? -giveBack(state.leases, -change, lease.low) : 0;
  }
  settleLease(state.leases, lease, now);
  return { change, settles: true };
}

/** read ends the leases of a bucket whose time has come. */
function read(bucket: Bucket | null, policy: Policy, now: number): State {
  if (bucket === null) {
    return { missing: 0, low: NO_LOW, leases: [], other: true, outdated: false };
  }
  const old = bucket.policy;
  const moved = moveLeases(bucket.leases, now);
  const possible = old.capacity * old.perToken + bucket.ahead;
  const { missing: stored, low } = missingUnits(bucket, now, possible);
  const leases = bucket.leases.filter((lease) => lease.ends > now);
  const other = old.perMicro !== policy.perMicro || old.perToken !== policy.perToken || old.capacity !== policy.capacity;
  if (other) {
    for (const lease of leases.filter((each) => !each.settled)) {
      lease.units = lease.low = 0; // the units of one policy mean nothing to another
    }
  }
  if (stored <= 0) {
    return { missing: 0, low: 0, leases, other, outdated: moved };
  }
  const outdated = moved || refillsFaster(policy, old) || stored > possible;
  const missing = convert(Math.min(stored, possible), old.perToken, policy.perToken);
  return { missing, low: Math.min(low, missing), leases, other, outdated };
}

/**
 * missingUnits returns what a bucket lacks now, and its low. Each lease that has ended counts as an undo at its end:
 * what it returns and what returns with time can be subtracted in any order, because nothing else has changed the
 * bucket.
 */
function missingUnits({ policy, fullAt, early, low, leases }: Bucket, now: number, possible: number): { missing: number; low: number } {
  let returned = 0;
  for (const lease of leases.filter((each) => each.ends <= now && isOpen(each))) {
    const missing = fullAt > lease.ends ? (fullAt - lease.ends) * policy.perMicro - early - returned : 0;
    low = Math.max(Math.min(low, missing, possible), 0);
    lowerAll(leases, low);
    returned += giveBack(leases, lease.units, lease.low);
  }
  // After a large step backwards the product is inexact, but still more than possible.
  return { missing: (fullAt - now) * policy.perMicro - early - returned, low };
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
  const [fullAt = 0, early = 0, ahead = 0, perMicro = 1, perToken = 1, capacity = 1, low = NO_LOW, ...leases] = stored.numbers;
  return { fullAt, early, ahead, policy: { perMicro, perToken, capacity }, low, leases: decodeLeases(leases, 0) };
}

/** encode returns a bucket that lacks units, or null if it is full and has no leases. */
function encode({ missing, low, leases }: State, policy: Policy, now: number): Stored | null {
  if (missing <= 0 && leases.length === 0) {
    return null;
  }
  const { perMicro, perToken, capacity } = policy;
  const micros = Math.ceil(missing / perMicro);
  const fullAt = now + micros;
  const ahead = Math.max(missing - perToken * capacity, 0);
  return {
    until: Math.max(fullAt, lastEnd(leases)), // settling and undoing need them until their ends
    numbers: [fullAt, micros * perMicro - missing, ahead, perMicro, perToken, capacity, ...(leases.length > 0 ? [low, ...encodeLeases(leases)] : [])],
  };
}

// Arithmetic of token buckets. Every number is an integer below 2^53, so Numbers represent it
// exactly: a full bucket and a deficit have at most 2^51 units each, a converted bucket lacks at
// most 2^52, and times are in microseconds since 1970, below 2^53 with the longest refill.

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
 * A Row is a stored bucket, or a block in its place. It contains the numbers of the policy that
 * stored it; a request with other numbers converts it.
 */
export type Row = {
  k: string;
  /** When the bucket will be full or the block ends, in microseconds since 1970. */
  at: number;
  /** Units by which the bucket is full before the end of that microsecond. */
  early: number;
  /** Units by which more than a full bucket is missing. */
  ahead: number;
  /** Numbers of the policy; 0 in a block. */
  per_micro: number;
  per_token: number;
  capacity: number;
  /** When the block was set; 0 in a bucket. */
  set_at: number;
  /** 1 if the object of another shard may have copied the row and changed the copy. */
  copied: number;
  /** Until when the row must stay, even if the bucket is full, to hide an older row elsewhere. */
  hides_until: number;
};

/**
 * A Call takes the largest multiple of divisor that is at most units and leaves a balance of at
 * least lowest, which is negative for a deficit. Negative units return to the bucket, 0 reads only.
 */
export interface Call {
  key: string;
  units: number;
  lowest: number;
  divisor: number;
  /**
   * When a bucket held the negative units that a call undoes, in microseconds since 1970: those that
   * have returned since then do not return again. 0 if all return.
   */
  since: number;
}

/** What an operation returns: the reply, and the row to store if it has changed. */
export interface Result {
  /** Units before the operation; of a blocked bucket, BLOCKED minus the microseconds left. */
  held: number;
  row: Row;
  changed: boolean;
}

/** A bucket never holds less than this. */
const BLOCKED = -(2 ** 52);
const MAX_MISSING = 2 ** 52;

/** fullRow returns the row of a bucket that no call has changed. */
export function fullRow(k: string): Row {
  return { k, at: 0, early: 0, ahead: 0, per_micro: 0, per_token: 0, capacity: 0, set_at: 0, copied: 0, hides_until: 0 };
}

/** isObsolete reports whether a row means the same as no row. */
export function isObsolete(row: Row, now: number): boolean {
  return row.at <= now && row.hides_until <= now;
}

/** consume executes a call. A denied call changes the row only if the row is outdated, see read. */
export function consume(row: Row, policy: Policy, call: Call, now: number): Result {
  if (row.set_at > 0) {
    const result = readBlock(row, now);
    if (result.held < BLOCKED) {
      return result;
    }
  }
  const full = policy.perToken * policy.capacity;
  const { missing, outdated } = read(row, policy, now);
  const held = full - missing;
  const taken = call.since > 0 ? undo(row, policy, call, missing, now) : take(call, held, missing);
  if (taken === 0 && !outdated) {
    return { held, row, changed: false };
  }
  return { held, row: write(row, missing + taken, policy, full, now), changed: true };
}

/** take returns the units that a call takes. */
function take(call: Call, held: number, missing: number): number {
  if (call.units < 0) {
    return Math.max(call.units, -missing);
  }
  // The quotient of integers below 2^53 never rounds up to an integer.
  const possible = Math.floor((held - call.lowest) / call.divisor) * call.divisor;
  return Math.max(Math.min(call.units, possible), 0);
}

/** undo returns 0 or the negative units that a call returns. A policy that refills faster may have written the row since. */
function undo(row: Row, policy: Policy, call: Call, missing: number, now: number): number {
  if (row.per_micro !== policy.perMicro || row.per_token !== policy.perToken || row.capacity !== policy.capacity) {
    return 0;
  }
  return Math.max(Math.min(call.units + Math.max(now - call.since, 0) * policy.perMicro, 0), -missing);
}

/**
 * read returns the units that a bucket lacks, in units of the policy, and whether even a denied
 * call must store them: because the clock went backwards, or because the policy refills faster
 * than the one of the row, and the caller computes a wait that holds only with its own.
 */
function read(row: Row, policy: Policy, now: number): { missing: number; outdated: boolean } {
  // After a large step backwards the product is inexact, but still more than possible.
  let missing = (row.at - now) * row.per_micro - row.early;
  if (row.per_micro === 0 || missing <= 0) {
    return { missing: 0, outdated: false };
  }
  const possible = row.capacity * row.per_token + row.ahead;
  let outdated = refillsFaster(policy, row);
  if (missing > possible) {
    missing = possible;
    outdated = true;
  }
  return { missing: convert(missing, row.per_token, policy.perToken), outdated };
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

function refillsFaster(policy: Policy, row: Row): boolean {
  if (policy.perToken === row.per_token) {
    return policy.perMicro > row.per_micro;
  }
  return BigInt(policy.perMicro) * BigInt(row.per_token) > BigInt(row.per_micro) * BigInt(policy.perToken);
}

function write(row: Row, missing: number, policy: Policy, full: number, now: number): Row {
  const micros = Math.ceil(missing / policy.perMicro);
  return {
    ...row,
    at: now + micros,
    early: micros * policy.perMicro - missing,
    ahead: Math.max(missing - full, 0),
    per_micro: policy.perMicro,
    per_token: policy.perToken,
    capacity: policy.capacity,
    set_at: 0,
  };
}

/** readBlock moves a block to the present if the clock went backwards, which must not extend it. */
function readBlock(row: Row, now: number): Result {
  const changed = now < row.set_at;
  const left = changed ? row.at - row.set_at : row.at - now;
  return {
    held: left > 0 ? BLOCKED - left : 0,
    row: changed ? { ...row, at: now + left, set_at: now } : row,
    changed,
  };
}

/** block denies a bucket for a time, after which it is full. 0 fills it and ends a block. */
export function block(row: Row, micros: number, now: number): Row {
  return {
    ...fullRow(row.k),
    at: now + micros,
    set_at: micros > 0 ? now : 0,
    copied: row.copied,
    hides_until: row.hides_until,
  };
}

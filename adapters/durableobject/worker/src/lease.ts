// Leases of token buckets and quotas. Times are in microseconds since 1970.

/**
 * A Lease is a call whose units or tokens return at its end, unless it is settled before, or the mark of a receipt
 * without a lease, of which nothing returns at its end.
 */
export interface Lease {
  ends: number;
  /** 0 of a mark. */
  id: number;
  /** Those that return; 0 if the lease is settled or a mark, or another policy has written the bucket since. */
  units: number;
  settled: boolean;
  /** When they were taken. */
  taken: number;
  /**
   * The least that a bucket was missing since they were taken, which bounds what returns; of a settled lease, when it
   * was settled. See docs/decisions/0092-undoing-deducts-lost-refill.md.
   */
  low: number;
  /** Numbers that the kind of record adds. */
  extra: number[];
}

/**
 * A NewLease is what a call wants whose units return after a time in microseconds. With an id of 0, it is the mark of
 * a receipt.
 */
export interface NewLease {
  id: number;
  micros: number;
}

/** A Settlement replaces what a lease took. The units of its call are taken if the record does not have the lease. */
export interface Settlement {
  id: number;
  /** Units to take if the record has the lease; they return if they are negative. */
  excess: number;
  /** Whether they may return: not if the lease has been made by another policy. */
  returns: boolean;
}

/**
 * How many leases that are not settled a record can have, see limit.MaxLeases in Go. As many are known to be
 * settled.
 */
export const MAX_LEASES = 1000;

/** How many marks a record can have, see limit.MaxMarks in Go. */
const MAX_MARKS = 16;

/** The stored numbers of units of a lease that is settled, and of a mark. */
const SETTLED = -1;
const MARK = -2;

/** decodeLeases returns leases in the order of their ends, each with some extra numbers. */
export function decodeLeases(numbers: number[], extraNumbers: number): Lease[] {
  const leases: Lease[] = [];
  const size = 5 + extraNumbers;
  for (let i = 0; i + size <= numbers.length; i += size) {
    const [ends = 0, id = 0, units = 0, taken = 0, low = 0, ...extra] = numbers.slice(i, i + size);
    leases.push({ ends, id, units: Math.max(units, 0), settled: units === SETTLED, taken, low, extra });
  }
  return leases;
}

export function encodeLeases(leases: Lease[]): number[] {
  return leases.flatMap((lease) => {
    const { ends, id, units, settled, taken, low, extra } = lease;
    return [ends, id, settled ? SETTLED : isMark(lease) ? MARK : units, taken, low, ...extra];
  });
}

export function isMark(lease: Lease): boolean {
  return lease.id === 0;
}

/** isOpen reports whether a lease may return something at its end. */
export function isOpen(lease: Lease): boolean {
  return !lease.settled && !isMark(lease);
}

/** hasAllLeases reports whether there are as many leases that are not settled as there may be. */
export function hasAllLeases(leases: Lease[]): boolean {
  return leases.filter(isOpen).length >= MAX_LEASES;
}

/** firstEnd returns when the first lease ends that may return something, undefined if there is none. */
export function firstEnd(leases: Lease[]): number | undefined {
  return leases.find(isOpen)?.ends;
}

/** lastEnd returns when the last lease ends. */
export function lastEnd(leases: Lease[]): number {
  return leases.at(-1)?.ends ?? 0;
}

/** settleLease marks a lease as settled, and forgets the one that was settled first if there are too many. */
export function settleLease(leases: Lease[], lease: Lease, now: number): void {
  lease.settled = true;
  lease.low = now;
  const settled = leases.filter((each) => each.settled);
  if (settled.length > MAX_LEASES) {
    const first = settled.reduce((a, b) => (b.low < a.low ? b : a));
    leases.splice(leases.indexOf(first), 1);
  }
}

/** lowerAll lowers the lows of all leases. */
export function lowerAll(leases: Lease[], low: number): void {
  for (const lease of leases.filter((each) => !each.settled)) {
    lease.low = Math.min(lease.low, low);
  }
}

/**
 * giveBack returns how many of some units return of a lease with a low, and lowers all leases as if it had taken as
 * many less. All leases have been lowered. Without a low, only the time is known at which the units were taken.
 */
export function giveBack(leases: Lease[], units: number, low?: number): number {
  const gives = Math.min(units, low ?? units);
  for (const lease of leases.filter((each) => !each.settled)) {
    const isLater = low === undefined || lease.low >= low;
    lease.low = Math.max(isLater ? lease.low - gives : Math.min(lease.low, low - gives), 0);
  }
  return gives;
}

/**
 * addMark adds the mark of a receipt, if there is room: otherwise the last mark stands for it, whose low is less.
 * Receipts with one low need one mark, that of the first.
 */
export function addMark(leases: Lease[], mark: Lease): void {
  const byLow = new Map<number, Lease>();
  for (const other of leases.filter(isMark)) {
    const first = byLow.get(other.low);
    if (first === undefined) {
      byLow.set(other.low, other);
    } else {
      first.taken = Math.min(first.taken, other.taken);
      leases.splice(leases.indexOf(other), 1);
    }
  }
  if (byLow.size < MAX_MARKS) {
    addLease(leases, mark);
  }
}

/** markOf returns the mark of a receipt: the last one until then, whose low is at most that of the receipt. */
export function markOf(leases: Lease[], stamp: number): Lease | undefined {
  const until = leases.filter((lease) => isMark(lease) && lease.taken <= stamp);
  return until.sort((a, b) => b.taken - a.taken || b.low - a.low)[0];
}

/**
 * moveLeases moves leases to the present if the clock went backwards, so that none lasts longer than from now on. It
 * reports whether it did.
 */
export function moveLeases(leases: Lease[], now: number): boolean {
  let moved = false;
  for (const lease of leases) {
    if (lease.taken > now) {
      lease.ends -= lease.taken - now;
      lease.taken = now;
      moved = true;
    }
  }
  if (moved) {
    leases.sort((a, b) => a.ends - b.ends);
  }
  return moved;
}

/** addLease adds a lease after those that end before it or with it. */
export function addLease(leases: Lease[], lease: Lease): void {
  const at = leases.findIndex((other) => other.ends > lease.ends);
  leases.splice(at < 0 ? leases.length : at, 0, lease);
}

// Leases of token buckets and quotas. Times are in microseconds since 1970.

/** A Lease is a call whose units or tokens return at its end, unless it is settled before. */
export interface Lease {
  ends: number;
  id: number;
  /** Those that return; 0 if the lease is settled, or another policy has written the bucket since. */
  units: number;
  settled: boolean;
  /** When they were taken. */
  taken: number;
  /** Numbers that the kind of record adds. */
  extra: number[];
}

/** A NewLease is what a call wants whose units return after a time in microseconds. */
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

/** How many leases a record can have, see limit.MaxLeases in Go. */
export const MAX_LEASES = 1000;

/** The stored number of units of a lease that is settled. */
const SETTLED = -1;

/** decodeLeases returns leases in the order of their ends, each with some extra numbers. */
export function decodeLeases(numbers: number[], extraNumbers: number): Lease[] {
  const leases: Lease[] = [];
  const size = 4 + extraNumbers;
  for (let i = 0; i + size <= numbers.length; i += size) {
    const [ends = 0, id = 0, units = 0, taken = 0, ...extra] = numbers.slice(i, i + size);
    leases.push({ ends, id, units: Math.max(units, 0), settled: units === SETTLED, taken, extra });
  }
  return leases;
}

export function encodeLeases(leases: Lease[]): number[] {
  return leases.flatMap(({ ends, id, units, settled, taken, extra }) => [ends, id, settled ? SETTLED : units, taken, ...extra]);
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

/** left returns the units of a lease that have not returned with time until then. */
export function left(lease: Lease, at: number, perMicro: number): number {
  return Math.max(lease.units - Math.max(at - lease.taken, 0) * perMicro, 0);
}

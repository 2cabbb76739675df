// Leases of token buckets. Times are in microseconds since 1970.

/** A Lease is a call whose units return at its end, unless it is settled before. */
export interface Lease {
  ends: number;
  id: number;
  /** Those that return; 0 if the lease is settled, or another policy has written the bucket since. */
  units: number;
  settled: boolean;
  /** When the bucket held the units. */
  taken: number;
}

/** How many leases a bucket can have, see limit.MaxLeases in Go. */
export const MAX_LEASES = 1000;

/** Numbers of a stored lease. */
const SIZE = 4;
const SETTLED = -1;

/** decodeLeases returns leases in the order of their ends. */
export function decodeLeases(numbers: number[]): Lease[] {
  const leases: Lease[] = [];
  for (let i = 0; i + SIZE <= numbers.length; i += SIZE) {
    const [ends = 0, id = 0, units = 0, taken = 0] = numbers.slice(i, i + SIZE);
    leases.push({ ends, id, units: Math.max(units, 0), settled: units === SETTLED, taken });
  }
  return leases;
}

export function encodeLeases(leases: Lease[]): number[] {
  return leases.flatMap(({ ends, id, units, settled, taken }) => [ends, id, settled ? SETTLED : units, taken]);
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

/** left returns the units of a lease that have not returned by themselves until a time. */
export function left(lease: Lease, at: number, perMicro: number): number {
  return Math.max(lease.units - Math.max(at - lease.taken, 0) * perMicro, 0);
}

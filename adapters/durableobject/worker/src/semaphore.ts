import { ACQUIRE, RELEASE } from "./request";
import type { SemaphoreCall } from "./request";

/** A Lease is a permit of a key that its holder has until a time in milliseconds since 1970. */
export type Lease = { k: string; holder: string; ends: number };

/** 1 or 0, whether the holder has a permit; and the number of permits in use. */
export type PermitReply = [acquired: number, inUse: number];

/**
 * NO_HOLDER is the holder of a row that says that the leases of a key have been copied from
 * another object, and until when they may be copied again. It is not a permit.
 */
const NO_HOLDER = "";

/** Leases is the table of leases of an object. No method awaits, so each one is atomic. */
export class Leases {
  /** saved is called with the time at which a stored row can be removed, in milliseconds. */
  constructor(
    private readonly sql: SqlStorage,
    private readonly saved: (removableAt: number) => void,
  ) {
    sql.exec(`CREATE TABLE IF NOT EXISTS lease (
      k TEXT NOT NULL, holder TEXT NOT NULL, ends INTEGER NOT NULL, PRIMARY KEY (k, holder)
    ) WITHOUT ROWID`);
  }

  /** unsettled returns the keys whose leases may be in another object. */
  unsettled(keys: string[]): string[] {
    const known = new Set(this.load(keys).map((lease) => lease.k));
    return keys.filter((key) => !known.has(key));
  }

  /** load returns the leases of keys. */
  load(keys: string[]): Lease[] {
    return this.sql.exec<Lease>("SELECT * FROM lease WHERE k IN (SELECT value FROM json_each(?))", JSON.stringify(keys)).toArray();
  }

  /**
   * execute executes calls in order. Copies has an entry for each key that is unsettled and comes
   * from another object.
   */
  execute(calls: SemaphoreCall[], copies: Map<string, Lease[]>, now: number): PermitReply[] {
    const unsettled = this.unsettled([...copies.keys()]);
    for (const key of unsettled) {
      this.copy(key, copies.get(key) ?? [], now);
    }
    return calls.map((call) => this.executeOne(call, now));
  }

  /**
   * sweep removes at most max rows of expired leases. It returns how many, and when the next one
   * expires; null if the table is empty.
   */
  sweep(now: number, max: number): { removed: number; next: number | null } {
    const removed = this.sql.exec(
      "DELETE FROM lease WHERE (k, holder) IN (SELECT k, holder FROM lease WHERE ends <= ? LIMIT ?)",
      now,
      max,
    ).rowsWritten;
    const { next } = this.sql.exec<{ next: number | null }>("SELECT min(ends) AS next FROM lease").one();
    return { removed, next };
  }

  /** copy stores leases of another object. Without a lease there is nothing to copy again. */
  private copy(key: string, leases: Lease[], now: number): void {
    const current = leases.filter((lease) => lease.ends > now);
    for (const lease of current) {
      this.save(lease);
    }
    if (current.length > 0) {
      this.save({ k: key, holder: NO_HOLDER, ends: Math.max(...current.map((lease) => lease.ends)) });
    }
  }

  private executeOne(call: SemaphoreCall, now: number): PermitReply {
    const { k: key, holder, permits, leaseMillis, purpose } = call;
    const ends = now + leaseMillis;
    // If the clock went backwards, no lease may last longer than usual.
    this.sql.exec("UPDATE lease SET ends = ? WHERE k = ? AND ends > ? AND holder <> ?", ends, key, ends, NO_HOLDER);
    this.sql.exec("DELETE FROM lease WHERE k = ? AND ends <= ?", key, now);
    if (purpose === RELEASE) {
      this.sql.exec("DELETE FROM lease WHERE k = ? AND holder = ?", key, holder);
      return [0, this.inUse(key)];
    }
    const inUse = this.inUse(key);
    // A renewal counts even if no permit is free: its holder works, whatever the storage lost.
    if (purpose === ACQUIRE && inUse >= permits) {
      return [0, inUse];
    }
    this.save({ k: key, holder, ends });
    return [1, this.inUse(key)];
  }

  private inUse(key: string): number {
    return this.sql.exec<{ n: number }>("SELECT count(*) AS n FROM lease WHERE k = ? AND holder <> ?", key, NO_HOLDER).one().n;
  }

  private save(lease: Lease): void {
    this.sql.exec("INSERT OR REPLACE INTO lease VALUES (?, ?, ?)", lease.k, lease.holder, lease.ends);
    this.saved(lease.ends);
  }
}

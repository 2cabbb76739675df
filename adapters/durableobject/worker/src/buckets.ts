import { block, consume, fullRow, isObsolete } from "./bucket";
import type { Call, Policy, Result, Row } from "./bucket";
import type { BlockCall } from "./request";

/**
 * Buckets is the table of buckets of an object. No method awaits, so each one is atomic.
 *
 * While keys move to other shards, an object copies the row of a key from the object that had the
 * key before. Copying is idempotent: the old row stays, so a crash or a lost reply loses nothing.
 * Two columns keep an old row from being taken for the current one:
 *
 * - The copy stays until the old row has no effect (hides_until), even if the bucket is reset, so
 *   the old row is not copied again.
 * - The old row is marked (copied). If its object has the key again later, it asks the object
 *   that had the key in between.
 */
export class Buckets {
  /** saved is called with the time at which a stored row can be removed, in microseconds. */
  constructor(
    private readonly sql: SqlStorage,
    private readonly saved: (removableAt: number) => void,
  ) {
    sql.exec(`CREATE TABLE IF NOT EXISTS bucket (
      k TEXT PRIMARY KEY, at INTEGER NOT NULL, early INTEGER NOT NULL, ahead INTEGER NOT NULL,
      per_micro INTEGER NOT NULL, per_token INTEGER NOT NULL, capacity INTEGER NOT NULL,
      set_at INTEGER NOT NULL, copied INTEGER NOT NULL, hides_until INTEGER NOT NULL
    ) WITHOUT ROWID`);
  }

  /** unsettled returns the keys whose current row may be in another object. */
  unsettled(keys: string[]): string[] {
    const rows = this.load(keys);
    return keys.filter((key) => isUnsettled(rows.get(key)));
  }

  /** handOver returns the rows of keys to the object that the keys move to. */
  handOver(keys: string[]): Row[] {
    const rows = [...this.load(keys).values()];
    for (const row of rows) {
      if (row.copied === 0) {
        this.save({ ...row, copied: 1 });
      }
    }
    return rows;
  }

  /**
   * consume executes calls in order and returns what the bucket of each held before, see
   * bucket.ts. Copies has an entry for each key that is unsettled and comes from another object.
   */
  consume(policy: Policy, calls: Call[], copies: Copies, now: number): number[] {
    return this.update(calls, copies, now, (row, call) => consume(row, policy, call, now));
  }

  /** block blocks or fills the bucket of each call. */
  block(calls: BlockCall[], copies: Copies, now: number): void {
    this.update(calls, copies, now, (row, call) => ({ held: 0, row: block(row, call.micros, now), changed: true }));
  }

  /**
   * sweep removes at most max rows that mean the same as no row. It returns how many, and when
   * the next row can be removed; null if the table is empty.
   */
  sweep(now: number, max: number): { removed: number; next: number | null } {
    const removed = this.sql.exec(
      "DELETE FROM bucket WHERE k IN (SELECT k FROM bucket WHERE max(at, hides_until) <= ? LIMIT ?)",
      now,
      max,
    ).rowsWritten;
    const { next } = this.sql.exec<{ next: number | null }>("SELECT min(max(at, hides_until)) AS next FROM bucket").one();
    return { removed, next };
  }

  private update<C extends { key: string }>(
    calls: C[],
    copies: Copies,
    now: number,
    execute: (row: Row, call: C) => Result,
  ): number[] {
    const rows = this.load(calls.map((call) => call.key));
    const changed = settle(rows, copies, now);
    const held = calls.map((call) => {
      const result = execute(rows.get(call.key) ?? fullRow(call.key), call);
      if (result.changed) {
        rows.set(call.key, result.row);
        changed.add(call.key);
      }
      return result.held;
    });
    for (const key of changed) {
      const row = rows.get(key);
      if (row && !isObsolete(row, now)) {
        this.save(row);
      } else {
        this.sql.exec("DELETE FROM bucket WHERE k = ?", key);
      }
    }
    return held;
  }

  private load(keys: string[]): Map<string, Row> {
    const rows = this.sql.exec<Row>("SELECT * FROM bucket WHERE k IN (SELECT value FROM json_each(?))", JSON.stringify(keys));
    return new Map(rows.toArray().map((row) => [row.k, row]));
  }

  private save(row: Row): void {
    this.sql.exec(
      "INSERT OR REPLACE INTO bucket VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      row.k,
      row.at,
      row.early,
      row.ahead,
      row.per_micro,
      row.per_token,
      row.capacity,
      row.set_at,
      row.copied,
      row.hides_until,
    );
    this.saved(Math.max(row.at, row.hides_until));
  }
}

/** Rows of keys in the object that had the keys before; undefined if it has none. */
export type Copies = Map<string, Row | undefined>;

/** isUnsettled reports whether the current row of a key may be in another object. */
function isUnsettled(row: Row | undefined): boolean {
  return !row || row.copied === 1;
}

/**
 * settle replaces unsettled rows by their copies, and returns the keys of the replaced ones. A row
 * that another request has settled in the meantime stays.
 */
function settle(rows: Map<string, Row>, copies: Copies, now: number): Set<string> {
  const replaced = new Set<string>();
  for (const [key, copy] of copies) {
    const row = rows.get(key);
    if (!isUnsettled(row)) {
      continue;
    }
    if (copy && !isObsolete(copy, now)) {
      rows.set(key, { ...copy, copied: 0, hides_until: Math.max(copy.at, copy.hides_until) });
      replaced.add(key);
    } else if (row) {
      rows.set(key, { ...row, copied: 0 });
    }
  }
  return replaced;
}

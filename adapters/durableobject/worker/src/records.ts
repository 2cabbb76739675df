import { Rows, execute } from "./call";
import type { Call, CallReply } from "./call";
import { isObsolete } from "./row";
import type { Row } from "./row";

/**
 * Records is the table of buckets, windows, quotas and blocks of an object. No method awaits, so each one is
 * atomic.
 *
 * While keys move to other shards, an object copies the row of a key from the object that had the
 * key before. Copying is idempotent: the old row stays, so a crash or a lost reply loses nothing.
 * Two columns keep an old row from being taken for the current one:
 *
 * - The copy stays until the old row has no effect (hides_until), even if the record is reset, so
 *   the old row is not copied again.
 * - The old row is marked (copied). If its object has the key again later, it asks the object
 *   that had the key in between.
 */
export class Records {
  /** saved is called with the time at which a stored row can be removed, in microseconds. */
  constructor(
    private readonly sql: SqlStorage,
    private readonly saved: (removableAt: number) => void,
  ) {
    sql.exec(`CREATE TABLE IF NOT EXISTS record (
      k TEXT PRIMARY KEY, until INTEGER NOT NULL, numbers TEXT NOT NULL, blocked_from INTEGER NOT NULL,
      copied INTEGER NOT NULL, hides_until INTEGER NOT NULL
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
   * execute executes calls in order. Copies has an entry for each key that is unsettled and comes from
   * another object.
   */
  execute(calls: Call[], copies: Copies, now: number): CallReply[] {
    const stored = this.load(calls.flatMap((call) => call.map((part) => part.k)));
    const replaced = settle(stored, copies, now);
    const rows = new Rows(stored);
    const replies = calls.map((call) => execute(rows, call, now));
    for (const key of new Set([...replaced, ...rows.changed])) {
      const row = rows.get(key);
      if (isObsolete(row, now)) {
        this.sql.exec("DELETE FROM record WHERE k = ?", key);
      } else {
        this.save(row);
      }
    }
    return replies;
  }

  /**
   * sweep removes at most max rows that mean the same as no row. It returns how many, and when
   * the next row can be removed; null if the table is empty.
   */
  sweep(now: number, max: number): { removed: number; next: number | null } {
    const removed = this.sql.exec(
      "DELETE FROM record WHERE k IN (SELECT k FROM record WHERE max(until, hides_until) <= ? LIMIT ?)",
      now,
      max,
    ).rowsWritten;
    const { next } = this.sql.exec<{ next: number | null }>("SELECT min(max(until, hides_until)) AS next FROM record").one();
    return { removed, next };
  }

  private load(keys: string[]): Map<string, Row> {
    const rows = this.sql.exec<StoredRow>("SELECT * FROM record WHERE k IN (SELECT value FROM json_each(?))", JSON.stringify(keys));
    return new Map(rows.toArray().map((row) => [row.k, { ...row, numbers: JSON.parse(row.numbers) as number[] }]));
  }

  private save(row: Row): void {
    this.sql.exec(
      "INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?, ?, ?)",
      row.k,
      row.until,
      JSON.stringify(row.numbers),
      row.blocked_from,
      row.copied,
      row.hides_until,
    );
    this.saved(Math.max(row.until, row.hides_until));
  }
}

/** A row as the table has it: its numbers are JSON. */
type StoredRow = Omit<Row, "numbers"> & { numbers: string };

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
      rows.set(key, { ...copy, copied: 0, hides_until: Math.max(copy.until, copy.hides_until) });
      replaced.add(key);
    } else if (row) {
      rows.set(key, { ...row, copied: 0 });
    }
  }
  return replaced;
}

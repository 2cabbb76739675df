/** A Row is a stored record, or a block in its place. */
export type Row = {
  /** Name of the record: the kind, the name of the limiter, and the key. */
  k: string;
  /** When the record counts nothing any more or the block ends, in microseconds since 1970. */
  until: number;
  /** Numbers of the record, see the file of its kind. */
  numbers: number[];
  /** When the block was set; 0 in a record. */
  blocked_from: number;
  /** 1 if the object of another shard may have copied the row and changed the copy. */
  copied: number;
  /** Until when the row must stay, even if it counts nothing, to hide an older row elsewhere. */
  hides_until: number;
};

/** emptyRow returns the row of a record that no call has changed. */
export function emptyRow(k: string): Row {
  return { k, until: 0, numbers: [], blocked_from: 0, copied: 0, hides_until: 0 };
}

/** isObsolete reports whether a row means the same as no row. */
export function isObsolete(row: Row, now: number): boolean {
  return row.until <= now && row.hides_until <= now;
}

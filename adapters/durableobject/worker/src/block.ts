import { BLOCKED } from "./record";

/** A block denies every call about a key from one time to another, in microseconds since 1970. */
export interface Block {
  from: number;
  until: number;
}

/** blockNow returns the block as it counts now. A clock that went backwards must not extend it. */
export function blockNow(block: Block, now: number): Block {
  return now < block.from ? { from: now, until: now + block.until - block.from } : block;
}

/** A bucket never holds less than this; a blocked one holds this minus the microseconds left. */
const BLOCKED_BUCKET = -(2 ** 52);

/** blockReply returns the reply about a key that is blocked for some microseconds more. */
export function blockReply(kind: string, left: number, now: number): number[] {
  return kind === "bucket" ? [BLOCKED_BUCKET - left, now, 0, 0] : [BLOCKED, 0, left, left, left, left, 0, 0];
}

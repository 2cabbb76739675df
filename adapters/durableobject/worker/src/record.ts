/** A Stored value is what a limiter knows of a key: the numbers of its kind, and until when they count. */
export interface Stored {
  /** When the numbers mean the same as none, in microseconds since 1970. */
  until: number;
  numbers: number[];
}

/** What one call about a record returns. */
export interface Result {
  reply: number[];
  /** Whether the record does not admit the call. */
  denies: boolean;
  /** What to store; null if nothing counts any more, undefined if nothing has changed. */
  record?: Stored | null;
}

/** What a call does with its cost. */
export type What =
  /** Takes all of it, or nothing. */
  | "take"
  /** Takes as much as is there. */
  | "upto"
  /** Takes it even if less is there. */
  | "charge"
  | "refund"
  /** Refunds what was taken with a stamp. */
  | "undo";

/** A Cost is what a call about a window, a quota or a cooldown does, and with how many tokens. */
export interface Cost {
  what: What;
  cost: number;
  /** To what the tokens belong that are undone. */
  stamp: number;
  /** How many microseconds a call that takes a cost may wait. */
  maxWait: number;
}

/** Outcomes in replies about windows, quotas and cooldowns. */
export const ALLOWED = 0;
export const PENALTY_STARTS = 1;
export const IN_PENALTY = 2;
export const DENIED = 3;
export const BLOCKED = 4;
/** No period of the caller contains the time of this object. */
export const NO_PERIOD = 5;

/** What a reply has in addition to the tokens that count. Times are in microseconds from now; 0 is the default. */
export interface Waits {
  outcome?: number;
  /** Until the cost can be spent; of a denial, until the same call can be allowed. */
  retry?: number;
  /** Of a denial, until the key has more tokens than now. */
  more?: number;
  /** Of a denial, until the key has all tokens. */
  all?: number;
  taken?: number;
  /** To what the tokens belong that were taken. */
  stamp?: number;
}

/** A Count is a reply about a window, a quota or a cooldown. */
export interface Count extends Waits {
  outcome: number;
  /** Tokens that count after the call. */
  used: number;
  /** Until no tokens count. */
  reset: number;
  stamp: number;
}

export function count(c: Count): number[] {
  return [c.outcome, c.used, c.retry ?? 0, c.reset, c.more ?? 0, c.all ?? 0, c.taken ?? 0, c.stamp];
}

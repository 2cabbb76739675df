import { decodeError, PenstockError } from "./errors.js";

// What the client does after a connection has ended; section 5 of the protocol.

const RESTART_SPREAD_MS = 10_000;
const BUSY_BACKOFF_MS = 5_000;
const MIN_BACKOFF_MS = 500;
const MAX_BACKOFF_MS = 20_000;
const LEAST_DELAY_MS = 100;

/** The error of a close frame. A reason that is not the JSON of an error is text for developers. */
export function closeError(code: number, reason: string): PenstockError {
  try {
    return decodeError(JSON.parse(reason));
  } catch {
    return new PenstockError("UNAVAILABLE", `closed ${code} ${reason}`);
  }
}

/** A random delay, whose upper bound doubles with each attempt. */
export const backoff = (attempt: number, random: number, min = MIN_BACKOFF_MS): number =>
  LEAST_DELAY_MS + random * Math.min(MAX_BACKOFF_MS, min * 2 ** attempt);

/** The delay before the next attempt. */
export function delayAfter(code: number, { retryAfterMs }: PenstockError, attempt: number, random: () => number): number {
  const known = retryAfterMs ?? (!attempt && [1012, 4503].includes(code) ? random() * RESTART_SPREAD_MS : 0);
  return known + backoff(attempt, random(), !known && [1013, 4429].includes(code) ? BUSY_BACKOFF_MS : MIN_BACKOFF_MS);
}

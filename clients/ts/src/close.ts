import { BUSY, BUSY_BACKOFF_MS, LEAST_DELAY_MS, MAX_BACKOFF_MS, MIN_BACKOFF_MS, RESTART, RESTART_SPREAD_MS } from "./closecodes.js";
import { decodeError, PenstockError } from "./errors.js";

// When the client connects again after a connection has ended; section 5 of the protocol.

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

/** What is added to the delay that the server demands, or 0. */
export const backoffAfter = (code: number, demanded: number, attempt: number, random: () => number): number =>
  (demanded || attempt || !RESTART.includes(code) ? 0 : random() * RESTART_SPREAD_MS) +
  backoff(attempt, random(), demanded || !BUSY.includes(code) ? MIN_BACKOFF_MS : BUSY_BACKOFF_MS);

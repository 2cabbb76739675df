import { decodeError, PenstockError } from "./errors.js";

// What the client does after a connection has ended; section 5 of the protocol.

const RESTART_SPREAD_MS = 10_000;
const BUSY_BACKOFF_MS = 5_000;
const MIN_BACKOFF_MS = 500;
const MAX_BACKOFF_MS = 20_000;
const LEAST_DELAY_MS = 100;

const CODES: { [close: number]: string } = { 4401: "UNAUTHENTICATED", 4403: "PERMISSION_DENIED", 4429: "RESOURCE_EXHAUSTED", 4409: "ABORTED" };

/** The error of a close frame. Any reason that is not JSON is text for developers. */
export function closeError(code: number, reason: string): PenstockError {
  try {
    const payload = JSON.parse(reason);
    if (payload.code) return decodeError({ retryable: typeof payload.retryAfterMs === "number", ...payload });
  } catch {}
  return new PenstockError(CODES[code] || "UNAVAILABLE", reason || `closed with ${code}`, { retryable: code !== 4403 });
}

/** A random delay, whose upper bound doubles with each attempt. */
export function backoff(attempt: number, random: number, min = MIN_BACKOFF_MS): number {
  return LEAST_DELAY_MS + random * Math.min(Math.max(MAX_BACKOFF_MS, min), min * 2 ** Math.min(attempt, 20));
}

/** The delay before the next attempt. */
export function delayAfter(code: number, error: PenstockError, attempt: number, random: () => number): number {
  if (typeof error.retryAfterMs === "number") return error.retryAfterMs + (attempt ? backoff(attempt, random()) : LEAST_DELAY_MS * random());
  if (code === 1012 || code === 4503) return attempt ? backoff(attempt, random()) : LEAST_DELAY_MS + random() * RESTART_SPREAD_MS;
  return backoff(attempt, random(), code === 1013 || code === 4429 ? BUSY_BACKOFF_MS : undefined);
}

/** A retry does not correct a client that violates the protocol. */
export const isViolation = (code: number): boolean => code === 1002 || code === 1003 || code === 1007;

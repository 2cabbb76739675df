// Code generated from docs/protocol.json. DO NOT EDIT.

export const STOP = [4403, 4409];
export const VIOLATION = [1002, 1003, 1007];
export const RESTART = [1012, 4503];
export const BUSY = [1013, 4429];
export const UNAUTHENTICATED = 4401;

export const LEAST_DELAY_MS = 100;
export const MIN_BACKOFF_MS = 500;
export const MAX_BACKOFF_MS = 20_000;
export const BUSY_BACKOFF_MS = 5_000;
export const RESTART_SPREAD_MS = 10_000;
export const HEALTHY_AFTER_MS = 5_000;

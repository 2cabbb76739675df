// Parts of calls as the Go client sends them: [kind, name of the limiter, key, what, numbers...]. Every number
// has bounds within which the arithmetic of its kind is exact.

import type { BucketCall, Policy } from "./bucket";
import type { BlockCall, Part } from "./call";
import type { CounterCall } from "./counter";
import type { NewLease, Settlement } from "./lease";
import type { LogCall } from "./log";
import type { QuotaCall } from "./quota";
import type { Cost } from "./record";
import { bad, checkLength, integer, text } from "./value";

const MAX_NAME_BYTES = 256;
const MAX_KEY_BYTES = 1024;
/** Bound of a full bucket plus a microsecond's refill, as in limit.Units in Go. */
const MAX_FULL = 2 ** 51;
const MAX_MISSING = 2 ** 52;
const MAX_PER_MICRO = 9000;
const MAX_UNITS = 2 ** 52;
const MAX_LEASE_MICROS = 24 * 3600 * 1e6;
const MAX_BLOCK_MICROS = 365 * 24 * 3600 * 1e6;
/** See limit.MaxReserve in Go. */
const MAX_WAIT_MICROS = 3600 * 1e6;
/** Bounds of windows, see limit.MaxLog and limit.WindowPolicy in Go. */
const MAX_LOG = 1000;
const MAX_WINDOW_MICROS = 3650 * 24 * 3600 * 1e6;
/** More than a month, and than a day that a zone has skipped. */
const MAX_PERIOD_MICROS = 40 * 24 * 3600 * 1e6;

const kinds: Record<string, (numbers: unknown[], at: string, what: string) => Exclude<Part["take"], BlockCall>> = {
  bucket: parseBucket,
  log: (numbers, at, what) => parseLog("log", numbers, at, what),
  cooldown: (numbers, at, what) => parseLog("cooldown", numbers, at, what),
  counter: parseCounter,
  quota: parseQuota,
};

/** parsePart checks a part at a place of the request, which errors name. */
export function parsePart(part: unknown, at: string): Part {
  if (!Array.isArray(part) || part.length < 4) {
    throw bad(`${at} must be an array of a kind, a name, a key, what to do, and numbers`);
  }
  const [kind, name, key, what, ...numbers] = part as unknown[];
  const parse = typeof kind === "string" && Object.hasOwn(kinds, kind) ? kinds[kind] : undefined;
  if (parse === undefined) {
    throw bad(`${at}[0] must be one of ${Object.keys(kinds).join(", ")}`);
  }
  const place = text(key, at, 2, 0, MAX_KEY_BYTES);
  const k = `${kind}:${text(name, at, 1, 1, MAX_NAME_BYTES)}${place}`;
  if (what === "block") {
    checkLength(numbers, at, 1);
    return { k, place, look: false, isJoint: false, take: { kind: "block", micros: integer(numbers[0], at, 4, 0, MAX_BLOCK_MICROS) } };
  }
  const look = what === "look";
  const take = parse(numbers, at, look ? "take" : text(what, at, 3, 1, MAX_NAME_BYTES));
  return { k, place, look, isJoint: look || what === "take", take };
}

/**
 * parseBucket checks [perMicro, perToken, capacity, units, lowest, divisor, since], for a lease also [id, micros], and
 * to settle one [perMicro, perToken, capacity, units, id, excess, returns].
 */
function parseBucket(numbers: unknown[], at: string, what: string): BucketCall {
  if (what !== "take" && what !== "settle") {
    throw bad(`${at}[3] must be take, look, settle or block`);
  }
  checkLength(numbers, at, what === "take" && numbers.length > 7 ? 9 : 7);
  const call: BucketCall = {
    kind: "bucket",
    policy: parsePolicy(numbers, at),
    units: integer(numbers[3], at, 7, -MAX_UNITS, MAX_UNITS),
    lowest: 0,
    divisor: 1,
    since: 0,
  };
  if (what === "settle") {
    call.settle = parseSettlement(numbers.slice(4), at, 8);
    return call;
  }
  call.lowest = integer(numbers[4], at, 8, -MAX_MISSING, MAX_FULL);
  call.divisor = integer(numbers[5], at, 9, 1, MAX_UNITS);
  call.since = integer(numbers[6], at, 10, 0, Number.MAX_SAFE_INTEGER);
  if (numbers.length > 7) {
    call.lease = parseLease(numbers.slice(7), at, 11, 0);
  }
  return call;
}

/**
 * parseLease checks the two numbers of a lease, the first of which is the element of that index of the part, and at
 * least some number: 0 if marks of receipts are permitted.
 */
function parseLease([id, micros]: unknown[], at: string, index: number, least: number): NewLease {
  return {
    id: integer(id, at, index, least, Number.MAX_SAFE_INTEGER),
    micros: integer(micros, at, index + 1, 1, MAX_LEASE_MICROS),
  };
}

/** parseSettlement checks the three numbers of a settlement, the first of which is the element of that index of the part. */
function parseSettlement([id, excess, returns]: unknown[], at: string, index: number): Settlement {
  return {
    id: integer(id, at, index, 1, Number.MAX_SAFE_INTEGER),
    excess: integer(excess, at, index + 1, -MAX_UNITS, MAX_UNITS),
    returns: integer(returns, at, index + 2, 0, 1) === 1,
  };
}

function parsePolicy(numbers: unknown[], at: string): Policy {
  const policy: Policy = {
    perMicro: integer(numbers[0], at, 4, 1, MAX_PER_MICRO),
    perToken: integer(numbers[1], at, 5, 1, MAX_FULL),
    capacity: integer(numbers[2], at, 6, 1, MAX_FULL),
  };
  // An inexact product is above the bound, too.
  if (policy.perToken * policy.capacity + policy.perMicro > MAX_FULL) {
    throw bad(`${at} has more than 2^51 units in a full bucket`);
  }
  return policy;
}

/** parseLog checks [max, window, penalty, cost, stamp or time to wait]. */
function parseLog(kind: LogCall["kind"], numbers: unknown[], at: string, what: string): LogCall {
  checkLength(numbers, at, 5);
  const [least, most] = kind === "log" ? [0, 0] : [1, MAX_WINDOW_MICROS];
  return {
    kind,
    max: integer(numbers[0], at, 4, 1, MAX_LOG),
    window: integer(numbers[1], at, 5, 1, MAX_WINDOW_MICROS),
    penalty: integer(numbers[2], at, 6, least, most),
    ...parseCost(numbers.slice(3), at, 7, what),
  };
}

/** parseCounter checks [max, window, cost, stamp or time to wait]. */
function parseCounter(numbers: unknown[], at: string, what: string): CounterCall {
  checkLength(numbers, at, 4);
  const window = integer(numbers[1], at, 5, 1, MAX_WINDOW_MICROS / 1000);
  return {
    kind: "counter",
    max: integer(numbers[0], at, 4, 1, Math.floor(MAX_FULL / window)),
    window,
    ...parseCost(numbers.slice(2), at, 6, what),
  };
}

/**
 * parseQuota checks [max, five bounds, cost, stamp or time to wait], for a lease also [id, micros], and to settle one
 * [max, five bounds, cost, id, excess, returns].
 */
function parseQuota(numbers: unknown[], at: string, what: string): QuotaCall {
  checkLength(numbers, at, what === "settle" || (what === "take" && numbers.length > 8) ? 10 : 8);
  const max = integer(numbers[0], at, 4, 1, MAX_FULL);
  const bounds = [integer(numbers[1], at, 5, -Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER)];
  for (let i = 1; i < 5; i++) {
    const before = bounds[i - 1] ?? 0;
    bounds.push(integer(numbers[i + 1], at, i + 5, before + 1, before + MAX_PERIOD_MICROS));
  }
  if (what === "settle") {
    const settle = parseSettlement(numbers.slice(7), at, 11);
    return { kind: "quota", max, bounds, ...parseCost([numbers[6], 0], at, 10, "charge"), settle };
  }
  const call: QuotaCall = { kind: "quota", max, bounds, ...parseCost(numbers.slice(6), at, 10, what) };
  if (numbers.length > 8) {
    call.lease = parseLease(numbers.slice(8), at, 12, 1);
  }
  return call;
}

/** parseCost checks what a call does, the cost, and the stamp, or for a cost that is taken whole the time to wait. */
function parseCost([cost, stamp]: unknown[], at: string, index: number, what: string): Cost {
  const tokens = integer(cost, at, index, 0, MAX_UNITS);
  switch (what) {
    case "take":
      return { what, cost: tokens, stamp: 0, maxWait: integer(stamp, at, index + 1, 0, MAX_WAIT_MICROS) };
    case "upto":
    case "charge":
    case "refund":
    case "undo":
      return { what, cost: tokens, stamp: integer(stamp, at, index + 1, -Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER), maxWait: 0 };
    default:
      throw bad(`${at}[3] must be take, look, upto, charge, refund, undo or block`);
  }
}

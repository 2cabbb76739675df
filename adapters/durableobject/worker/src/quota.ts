import { ALLOWED, DENIED, NO_PERIOD, count } from "./record";
import type { Cost, Result, Stored } from "./record";

/**
 * A QuotaCall is a call about a period of the caller's calendar, in which at most max tokens can be taken. Its
 * stamp is when a period began.
 */
export interface QuotaCall extends Cost {
  kind: "quota";
  max: number;
  /**
   * When the previous, the current and the next two periods of the caller's clock begin, and when the last one
   * ends, in microseconds since 1970. No caller's clock differs by more than a period.
   */
  bounds: number[];
}

/** A Period has bounds in microseconds since 1970. */
interface Period {
  start: number;
  end: number;
}

/** A Quota has the tokens of a period, and those that are reserved in the next one, which begins when it ends. */
interface Quota extends Period {
  used: number;
  reserved: number;
  /** When the next period ends; 0 if nothing is reserved. */
  reservedEnd: number;
}

/** More than a quota counts. */
const MAX_COUNT = 2 ** 52;

/** takeFromQuota executes a call. The stamp of its reply is when the period began to which the taken tokens belong. */
export function takeFromQuota(stored: Stored | null, call: QuotaCall, now: number, look: boolean): Result {
  const calendar = periodOf(call.bounds, now);
  if (calendar === undefined) {
    return { reply: count({ outcome: NO_PERIOD, used: 0, reset: 0, stamp: now }), denies: true };
  }
  const { quota, moved } = read(stored, calendar, now);
  const before = { ...quota };
  const never = call.cost > call.max && call.what === "take"; // it is denied, and is not counted
  let outcome = ALLOWED;
  let retry = 0;
  let taken = 0;
  let stamp = quota.start;
  if (call.what === "refund" || call.what === "undo") {
    giveBack(quota, call);
  } else if (call.what === "charge") {
    add(quota, call.cost, calendar);
  } else if (call.cost > 0 && !never) {
    ({ outcome, retry, taken, stamp } = take(quota, call, calendar, now));
  }
  const all = (quota.reserved > 0 ? quota.reservedEnd : quota.end) - now;
  const more = quota.reserved < call.max ? quota.end - now : all;
  const used = quota.reserved > 0 ? call.max : quota.used; // nothing more can be spent in the period
  const reset = used > 0 ? all : 0;
  const result: Result = { reply: count({ outcome, used, retry, reset, more, all, taken, stamp }), denies: outcome !== ALLOWED || never };
  if (!look && (quota.used !== before.used || quota.reserved !== before.reserved || moved)) {
    result.record = encode(quota);
  }
  return result;
}

function periodOf(bounds: number[], now: number): Period | undefined {
  for (let i = 0; i < 3; i++) {
    const [start = 0, end = 0] = bounds.slice(i, i + 2);
    if (start <= now && now < end) {
      return { start, end };
    }
  }
  return undefined;
}

/**
 * read returns the quota now. If the clock went back to the period before that of the record, the latter counts
 * until its end. If it went back further, what was taken counts in the period that the clock went to.
 */
function read(stored: Stored | null, calendar: Period, now: number): { quota: Quota; moved: boolean } {
  let [start = 0, end = 0, used = 0, reserved = 0, reservedEnd = 0] = stored?.numbers ?? [];
  if (reserved > 0 && end <= now) {
    [start, end, used, reserved, reservedEnd] = [end, reservedEnd, reserved, 0, 0]; // the next period has begun
  }
  if (stored === null || now >= end) {
    return { quota: { ...calendar, used: 0, reserved: 0, reservedEnd: 0 }, moved: false };
  }
  if (calendar.end < start) {
    return { quota: { ...calendar, used: Math.min(used + reserved, MAX_COUNT), reserved: 0, reservedEnd: 0 }, moved: true };
  }
  return { quota: { start, end, used, reserved, reservedEnd }, moved: false };
}

function giveBack(quota: Quota, call: QuotaCall): void {
  const newest = call.what === "refund" || call.stamp === quota.end ? Math.min(call.cost, quota.reserved) : 0;
  quota.reserved -= newest;
  if (call.what === "refund" || call.stamp === quota.start) {
    quota.used -= Math.min(call.cost - newest, quota.used);
  }
}

/** add counts tokens in the period. A policy with other periods may have written the record. */
function add(quota: Quota, tokens: number, calendar: Period): void {
  quota.used = Math.min(quota.used + tokens, MAX_COUNT);
  if (quota.reserved === 0) {
    quota.end = Math.max(quota.end, calendar.end);
  }
}

interface Taken {
  outcome: number;
  retry: number;
  taken: number;
  stamp: number;
}

/** take takes a cost of the period, or of the next one if the call may wait so long. */
function take(quota: Quota, call: QuotaCall, calendar: Period, now: number): Taken {
  let cost = call.cost;
  if (call.what === "upto") {
    cost = quota.reserved > 0 ? 1 : Math.max(Math.min(cost, call.max - quota.used), 1);
  }
  const stamp = quota.start;
  const wait = quota.end - now;
  if (quota.reserved === 0 && quota.used + cost <= call.max) {
    add(quota, cost, calendar);
    return { outcome: ALLOWED, retry: 0, taken: cost, stamp };
  }
  if (quota.reserved + cost > call.max) {
    // Not in the next period, and no call reserves in a later one.
    return { outcome: DENIED, retry: Math.max(wait, quota.reservedEnd - call.maxWait - now), taken: 0, stamp };
  }
  if (wait > call.maxWait) {
    return { outcome: DENIED, retry: wait - call.maxWait, taken: 0, stamp };
  }
  quota.reserved += cost;
  quota.reservedEnd = Math.max(quota.reservedEnd, nextEnd(quota, call.bounds, calendar));
  return { outcome: ALLOWED, retry: wait, taken: cost, stamp: quota.end };
}

/** nextEnd returns when the caller's period ends that contains the beginning of the next one. */
function nextEnd(quota: Quota, bounds: number[], calendar: Period): number {
  const end = bounds.find((bound, i) => i > 0 && bound > quota.end);
  return end ?? quota.end + calendar.end - calendar.start; // a policy with longer periods has written the record
}

function encode(quota: Quota): Stored | null {
  const { start, end, used, reserved, reservedEnd } = quota;
  if (used === 0 && reserved === 0) {
    return null;
  }
  return reserved > 0 ? { until: reservedEnd, numbers: [start, end, used, reserved, reservedEnd] } : { until: end, numbers: [start, end, used] };
}

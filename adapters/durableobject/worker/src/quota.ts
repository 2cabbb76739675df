import { ALLOWED, DENIED, NO_PERIOD, count } from "./record";
import type { Result, Stored, What } from "./record";

/** A QuotaCall is a call about a period of the caller's calendar, in which at most max tokens can be taken. */
export interface QuotaCall {
  kind: "quota";
  what: What;
  max: number;
  /**
   * When the previous, the current and the next period of the caller's clock begin, and when the latter
   * ends, in microseconds since 1970.
   */
  bounds: number[];
  cost: number;
  /** When the period began in which an undone cost was taken. */
  stamp: number;
}

/** A Period has bounds in microseconds since 1970. */
interface Period {
  start: number;
  end: number;
}

/** takeFromQuota executes a call. The stamp of its reply is when the period began. */
export function takeFromQuota(stored: Stored | null, call: QuotaCall, now: number, look: boolean): Result {
  const calendar = periodOf(call.bounds, now);
  if (calendar === undefined) {
    return { reply: count({ outcome: NO_PERIOD, used: 0, reset: 0, stamp: now }), denies: true };
  }
  const { period, used, moved } = read(stored, calendar, now);
  const never = call.cost > call.max && call.what === "take"; // it is denied, and is not counted
  let change = never ? 0 : call.cost;
  if (call.what === "refund" || call.what === "undo") {
    change = call.what === "refund" || call.stamp === period.start ? -Math.min(call.cost, used) : 0;
  } else if (call.what === "upto" && change > 0) {
    change = Math.max(Math.min(change, call.max - used), 1);
  }
  const cost = change;
  const denies = change > 0 && used + change > call.max;
  if (denies || (look && change > 0)) {
    change = 0;
  }
  // A policy with other periods may have written the record.
  const end = change > 0 ? Math.max(period.end, calendar.end) : period.end;
  const counts = look && !denies ? used + cost : used + change;
  const result: Result = { reply: reply(counts, denies, period.start, end, change, now), denies: denies || never };
  if (change !== 0 || moved) {
    result.record = used + change > 0 ? { until: end, numbers: [period.start, end, used + change] } : null;
  }
  return result;
}

function periodOf(bounds: number[], now: number): Period | undefined {
  for (let i = 0; i + 1 < bounds.length; i++) {
    const [start = 0, end = 0] = bounds.slice(i, i + 2);
    if (start <= now && now < end) {
      return { start, end };
    }
  }
  return undefined;
}

/**
 * read returns the period in which tokens are counted now. If the clock went back to the period before
 * that of the record, the latter counts until its end. If it went back further, what was taken counts in the
 * period that the clock went to.
 */
function read(stored: Stored | null, calendar: Period, now: number): { period: Period; used: number; moved: boolean } {
  const [start = 0, end = 0, used = 0] = stored?.numbers ?? [];
  if (now >= end) {
    return { period: calendar, used: 0, moved: false };
  }
  const moved = calendar.end < start;
  return { period: moved ? calendar : { start, end }, used, moved };
}

function reply(used: number, denied: boolean, start: number, end: number, taken: number, now: number): number[] {
  const wait = denied ? end - now : 0;
  const reset = used > 0 ? end - now : 0;
  return count({ outcome: denied ? DENIED : ALLOWED, used, retry: wait, reset, more: wait, all: wait, taken, stamp: start });
}

import { addLease, decodeLeases, encodeLeases, firstEnd, hasAllLeases, lastEnd, moveLeases, settleLease } from "./lease";
import type { Lease, NewLease, Settlement } from "./lease";
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
  lease?: NewLease;
  settle?: Settlement;
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
  /**
   * In the order of their ends. Their extra numbers are the beginning of the period that has the tokens; and the
   * beginning of the caller's period and the maximum, which identify the policy: the end of another policy's lease
   * returns nothing.
   */
  leases: Lease[];
}

/** Extra numbers of a lease. */
const EXTRA = 3;

/** More than a quota counts. */
const MAX_COUNT = 2 ** 52;

/** takeFromQuota executes a call. The stamp of its reply is when the period began to which the taken tokens belong. */
export function takeFromQuota(stored: Stored | null, call: QuotaCall, now: number, look: boolean): Result {
  const calendar = periodOf(call.bounds, now);
  if (calendar === undefined) {
    return { reply: count({ outcome: NO_PERIOD, used: 0, reset: 0, stamp: now }), denies: true };
  }
  const { quota, moved } = read(stored, call, calendar, now);
  const before = { ...quota };
  const end = firstEnd(quota.leases);
  const hasAll = call.lease !== undefined && hasAllLeases(quota.leases);
  const never = call.cost > call.max && call.what === "take"; // it is denied, and is not counted
  let result: Taken = { outcome: ALLOWED, retry: 0, taken: 0, stamp: quota.start };
  let settles = false;
  if (call.settle !== undefined) {
    settles = settle(quota, call, call.settle, calendar, now);
  } else if (call.what === "refund" || call.what === "undo") {
    giveBack(quota, call);
  } else if (call.what === "charge") {
    add(quota, call.cost, calendar);
  } else if (call.cost > 0 && !never) {
    result = take(quota, call, calendar, now, hasAll);
  }
  const { outcome, taken, stamp } = result;
  let { retry } = result;
  const all = (quota.reserved > 0 ? quota.reservedEnd : quota.end) - now;
  let more = quota.reserved < call.max ? quota.end - now : all;
  if (end !== undefined) {
    more = hasAll ? 0 : Math.min(more, end - now); // too many leases deny no call without one
    retry = hasAll && outcome === DENIED ? Math.max(retry, end - now) : retry;
  }
  const used = quota.reserved > 0 ? call.max : quota.used; // nothing more can be spent in the period
  const reset = used > 0 ? all : 0;
  const reply = count({ outcome, used, retry, reset, more, all, taken, stamp });
  const changed = quota.used !== before.used || quota.reserved !== before.reserved || moved || settles;
  return { reply, denies: outcome !== ALLOWED || never, ...(!look && changed ? { record: encode(quota) } : {}) };
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
function read(stored: Stored | null, call: QuotaCall, calendar: Period, now: number): { quota: Quota; moved: boolean } {
  let [start = 0, end = 0, used = 0, reserved = 0, reservedEnd = 0, ...rest] = stored?.numbers ?? [];
  const all = decodeLeases(rest, EXTRA);
  const moved = moveLeases(all, now);
  const leases = all.filter((lease) => lease.ends > now);
  for (const { ends, units, settled, extra } of all) {
    const [period = 0, own = 0, max = 0] = extra;
    if (ends <= now && !settled && period === start && max === call.max && call.bounds.slice(0, 3).includes(own)) {
      used -= Math.min(units, used);
    }
  }
  if (reserved > 0 && end <= now) {
    [start, end, used, reserved, reservedEnd] = [end, reservedEnd, reserved, 0, 0]; // the next period has begun
  }
  if (stored === null || now >= end) {
    return { quota: { ...calendar, used: 0, reserved: 0, reservedEnd: 0, leases }, moved };
  }
  if (calendar.end < start) {
    const counted = Math.min(used + reserved, MAX_COUNT);
    return { quota: { ...calendar, used: counted, reserved: 0, reservedEnd: 0, leases }, moved: true };
  }
  return { quota: { start, end, used, reserved, reservedEnd, leases }, moved };
}

/** settle replaces what a lease took, and reports whether the quota has the lease. */
function settle(quota: Quota, call: QuotaCall, { id, excess, returns }: Settlement, calendar: Period, now: number): boolean {
  const lease = quota.leases.find((each) => each.id === id);
  if (lease === undefined) {
    add(quota, call.cost, calendar);
    return false;
  }
  if (lease.settled) {
    return false;
  }
  settleLease(quota.leases, lease, now);
  if (excess >= 0) {
    add(quota, excess, calendar);
  } else if (returns && lease.extra[0] === quota.start) {
    quota.used -= Math.min(-excess, quota.used);
  }
  return true;
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
function take(quota: Quota, call: QuotaCall, calendar: Period, now: number, hasAll: boolean): Taken {
  let cost = call.cost;
  if (call.what === "upto") {
    cost = quota.reserved > 0 ? 1 : Math.max(Math.min(cost, call.max - quota.used), 1);
  }
  const stamp = quota.start;
  const wait = quota.end - now;
  if (quota.reserved === 0 && quota.used + cost <= call.max) {
    if (hasAll) {
      return { outcome: DENIED, retry: 0, taken: 0, stamp };
    }
    add(quota, cost, calendar);
    if (call.lease !== undefined) {
      const { id, micros } = call.lease;
      const extra = [stamp, calendar.start, call.max];
      addLease(quota.leases, { ends: now + micros, id, units: cost, settled: false, taken: now, low: 0, extra });
    }
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
  const { start, end, used, reserved, reservedEnd, leases } = quota;
  if (used === 0 && reserved === 0 && leases.length === 0) {
    return null;
  }
  // A settlement needs the lease until its end.
  const until = Math.max(reserved > 0 ? reservedEnd : end, lastEnd(leases));
  return { until, numbers: [start, end, used, reserved, reserved > 0 ? reservedEnd : 0, ...encodeLeases(leases)] };
}

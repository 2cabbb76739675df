// Sliding-window logs, and cooldowns, which are logs with penalties. Times are in microseconds since 1970.

import { ALLOWED, DENIED, IN_PENALTY, PENALTY_STARTS, count } from "./record";
import type { Cost, Result, Stored, Waits } from "./record";

/** A LogCall is a call about a window in which at most max calls count. Its stamp is the time of calls. */
export interface LogCall extends Cost {
  kind: "log" | "cooldown";
  max: number;
  /** In microseconds. */
  window: number;
  /** In microseconds; 0 of a log. */
  penalty: number;
}

/** A Run is a number of calls at one time, which is in the future if they are reserved. */
interface Run {
  at: number;
  calls: number;
}

/**
 * A Log contains at least the newest calls, twice as many as the largest maximum of all policies that have
 * written it, of the last largest window. So a process with any of these policies finds the calls that
 * it must count: the newest of its window, at most twice as many as its maximum.
 */
interface Log {
  /** When the penalty ends; 0 without one. */
  penaltyEnds: number;
  /** The largest maximum and the largest window. */
  keep: number;
  retain: number;
  /** Calls that do not count for the policy of the call, and those that do; oldest first. */
  outside: Run[];
  counted: Run[];
}

/** takeFromLog executes a call. The stamp of its reply is the time of what was taken. */
export function takeFromLog(stored: Stored | null, call: LogCall, now: number, look: boolean): Result {
  const { log, moved } = read(stored, call, now);
  if (call.what === "refund" || call.what === "undo") {
    const removed = giveBack(log, call);
    const result: Result = { reply: reply(log, call, now, {}), denies: false };
    if (removed || moved) {
      result.record = encode(log, now);
    }
    return result;
  }
  if (call.what === "charge") {
    add(log, now, Math.min(call.cost, 2 * call.max));
    return { reply: reply(log, call, now, {}), denies: false, record: encode(log, now) };
  }
  const inWindow = total(log.counted);
  const never = call.cost > call.max && call.what === "take"; // it is denied, starts no penalty, and is not counted
  let cost = never ? 0 : call.cost;
  if (call.what === "upto" && cost > 0) {
    cost = Math.max(Math.min(cost, call.max - inWindow), 1);
  }
  const inPenalty = log.penaltyEnds > now;
  // A log with reservations has at most twice as many calls as the maximum.
  const at = allowsAt(log, call, cost);
  const reachedAt = Math.max(at - call.maxWait, leavesAt(log, call, inWindow + cost - 2 * call.max));
  if (cost > 0 && !inPenalty && reachedAt <= now) {
    return admit(log, call, cost, Math.max(at, now), now, look);
  }
  const starts = cost > 0 && !inPenalty && call.penalty > 0;
  const result: Result = { reply: denialReply(log, call, cost, reachedAt, now), denies: cost > 0 || never };
  if (!look && (starts || moved)) {
    result.record = encode(log, now);
  }
  return result;
}

function admit(log: Log, call: LogCall, cost: number, at: number, now: number, look: boolean): Result {
  add(log, at, cost);
  const result: Result = { reply: reply(log, call, now, { retry: at - now, taken: cost, stamp: at }), denies: false };
  if (!look) {
    result.record = encode(log, now);
  }
  return result;
}

/** denialReply returns the reply about a call that is not admitted, or costs nothing. It starts a penalty. */
function denialReply(log: Log, call: LogCall, cost: number, reachedAt: number, now: number): number[] {
  let outcome = ALLOWED;
  let retryAt = reachedAt;
  let moreAt = log.penaltyEnds;
  if (log.penaltyEnds > now) {
    outcome = IN_PENALTY;
    retryAt = allowsAt(log, call, cost);
  } else if (cost > 0 && call.penalty > 0) {
    outcome = PENALTY_STARTS;
    log.penaltyEnds = now + call.penalty;
    log.penaltyEnds = allowsAt(log, call, cost);
    retryAt = moreAt = log.penaltyEnds;
  } else if (cost > 0) {
    outcome = DENIED;
    moreAt = allowsAt(log, call, Math.max(call.max - total(log.counted), 0) + 1);
  }
  const allAt = allowsAt(log, call, call.max);
  return reply(log, call, now, { outcome, retry: wait(retryAt, now), more: wait(moreAt, now), all: wait(allAt, now) });
}

/** read returns the log now. If the clock went backwards, the whole record moves with it, so that nothing lasts for the step. */
function read(stored: Stored | null, call: LogCall, now: number): { log: Log; moved: boolean } {
  const [written = 0, penaltyEnds = 0, keep = 0, retain = 0, ...pairs] = stored?.numbers ?? [];
  const step = Math.max(written - now, 0);
  const log: Log = {
    penaltyEnds: Math.max(penaltyEnds - step, 0),
    keep: Math.max(keep, call.max),
    retain: Math.max(retain, call.window),
    outside: [],
    counted: [],
  };
  let room = 2 * call.max;
  for (let i = pairs.length - 2; i >= 0; i -= 2) {
    const run: Run = { at: Math.max((pairs[i] ?? 0) - step, 0), calls: pairs[i + 1] ?? 0 };
    const counted = run.at > now - call.window ? Math.min(run.calls, room) : 0;
    room -= counted;
    if (counted > 0) {
      log.counted.push({ at: run.at, calls: counted });
    }
    if (counted < run.calls) {
      log.outside.push({ at: run.at, calls: run.calls - counted });
    }
  }
  log.outside.reverse();
  log.counted.reverse();
  return { log, moved: step > 0 };
}

/** add adds calls at a time; those of reservations may be later. */
function add(log: Log, at: number, calls: number): void {
  const later = log.counted.findIndex((run) => run.at > at);
  const position = later < 0 ? log.counted.length : later;
  const last = log.counted[position - 1];
  if (last?.at === at) {
    last.calls += calls;
  } else {
    log.counted.splice(position, 0, { at, calls });
  }
}

/** giveBack removes the newest calls that count, or those of a time, and reports whether there are any. */
function giveBack(log: Log, call: LogCall): boolean {
  let left = call.cost;
  for (const run of log.counted.toReversed()) {
    if (call.what === "refund" || run.at === call.stamp) {
      const removed = Math.min(left, run.calls);
      run.calls -= removed;
      left -= removed;
    }
  }
  log.counted = log.counted.filter((run) => run.calls > 0);
  return left < call.cost;
}

function total(runs: Run[]): number {
  return runs.reduce((sum, run) => sum + run.calls, 0);
}

/** leavesAt returns when that many of the calls that count, the oldest ones, no longer do; 0 for no call. */
function leavesAt(log: Log, call: LogCall, calls: number): number {
  let left = calls;
  for (const run of log.counted) {
    if (left <= 0) {
      break;
    }
    left -= run.calls;
    if (left <= 0) {
      return run.at + call.window;
    }
  }
  return 0;
}

/** allowsAt returns when a cost can be allowed. */
function allowsAt(log: Log, call: LogCall, cost: number): number {
  return Math.max(log.penaltyEnds, leavesAt(log, call, total(log.counted) + cost - call.max));
}

function reply(log: Log, call: LogCall, now: number, waits: Waits): number[] {
  const newest = log.counted.at(-1)?.at ?? 0;
  const reset = wait(Math.max(log.penaltyEnds, newest + call.window), now);
  // Those of the window that do not count were admitted by a policy with a larger maximum.
  const used = total(log.counted) + total(log.outside.filter((run) => run.at > now - call.window));
  return count({ outcome: ALLOWED, used, reset, stamp: now, ...waits });
}

function wait(at: number, now: number): number {
  return Math.max(at - now, 0);
}

function encode(log: Log, now: number): Stored | null {
  const kept: Run[] = [];
  let room = 2 * log.keep;
  for (const run of [...log.outside, ...log.counted].reverse()) {
    if (room <= 0 || run.at <= now - log.retain) {
      break;
    }
    kept.push({ at: run.at, calls: Math.min(run.calls, room) });
    room -= run.calls;
  }
  kept.reverse();
  const newest = kept.at(-1);
  const until = Math.max(log.penaltyEnds, newest ? newest.at + log.retain : 0);
  if (until <= now) {
    return null;
  }
  return { until, numbers: [now, log.penaltyEnds, log.keep, log.retain, ...kept.flatMap((run) => [run.at, run.calls])] };
}

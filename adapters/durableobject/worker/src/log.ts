// Sliding-window logs, and cooldowns, which are logs with penalties. Times are in microseconds since 1970.

import { ALLOWED, DENIED, IN_PENALTY, PENALTY_STARTS, count } from "./record";
import type { Result, Stored, What } from "./record";

/** A LogCall is a call about a window in which at most max calls count. */
export interface LogCall {
  kind: "log" | "cooldown";
  what: What;
  max: number;
  /** In microseconds. */
  window: number;
  /** In microseconds; 0 of a log. */
  penalty: number;
  cost: number;
  /** When an undone cost was taken. */
  stamp: number;
}

/** A Run is a number of calls at one time. */
interface Run {
  at: number;
  calls: number;
}

/**
 * A Log contains at least the newest calls, as many as the largest maximum of all policies that have
 * written it, of the last largest window. So a process with any of these policies finds the calls that
 * it must count.
 */
interface Log {
  /** When the penalty ends; 0 without one. */
  penaltyEnds: number;
  /** The largest maximum and the largest window. */
  keep: number;
  retain: number;
  /** Oldest first. */
  runs: Run[];
}

/** takeFromLog executes a call. The stamp of its reply is the time. */
export function takeFromLog(stored: Stored | null, call: LogCall, now: number, look: boolean): Result {
  const { log, moved } = read(stored, call, now);
  if (call.what === "refund" || call.what === "undo") {
    const removed = call.what === "refund" ? removeNewest(log, call, now) : removeAt(log, call, now);
    const result: Result = { reply: reply(log, call, now, {}), denies: false };
    if (removed > 0 || moved) {
      result.record = encode(log, now);
    }
    return result;
  }
  const inWindow = countAfter(log, now - call.window);
  const never = call.cost > call.max && call.what === "take"; // it is denied, starts no penalty, and is not counted
  let cost = never ? 0 : call.cost;
  if (call.what === "upto" && cost > 0) {
    cost = Math.max(Math.min(cost, call.max - inWindow), 1);
  }
  const inPenalty = log.penaltyEnds > now;
  if (cost > 0 && !inPenalty && inWindow + cost <= call.max) {
    add(log, now, cost);
    const result: Result = { reply: reply(log, call, now, { taken: cost }), denies: false };
    if (!look) {
      result.record = encode(log, now);
    }
    return result;
  }
  const starts = cost > 0 && !inPenalty && call.penalty > 0;
  const result: Result = { reply: denialReply(log, call, cost, inWindow, now), denies: cost > 0 || never };
  if (!look && (starts || moved)) {
    result.record = encode(log, now);
  }
  return result;
}

/** denialReply returns the reply about a call that is not admitted, or costs nothing. It starts a penalty. */
function denialReply(log: Log, call: LogCall, cost: number, inWindow: number, now: number): number[] {
  const allowsAt = (calls: number) => Math.max(log.penaltyEnds, leavesWindowAt(log, call, inWindow + calls - call.max, now));
  let outcome = ALLOWED;
  let moreAt = log.penaltyEnds;
  if (log.penaltyEnds > now) {
    outcome = IN_PENALTY;
  } else if (cost > 0) {
    outcome = DENIED;
    moreAt = allowsAt(Math.max(call.max - inWindow, 0) + 1);
    if (call.penalty > 0) {
      outcome = PENALTY_STARTS;
      log.penaltyEnds = now + call.penalty;
      log.penaltyEnds = allowsAt(cost);
      moreAt = log.penaltyEnds;
    }
  }
  return reply(log, call, now, { outcome, retry: wait(allowsAt(cost), now), more: wait(moreAt, now), all: wait(allowsAt(call.max), now) });
}

/** read returns the log now. If the clock went backwards, the whole record moves with it, so that nothing lasts for the step. */
function read(stored: Stored | null, call: LogCall, now: number): { log: Log; moved: boolean } {
  if (stored === null) {
    return { log: { penaltyEnds: 0, keep: call.max, retain: call.window, runs: [] }, moved: false };
  }
  const [written = 0, penaltyEnds = 0, keep = 0, retain = 0, ...pairs] = stored.numbers;
  const step = Math.max(written - now, 0);
  const runs: Run[] = [];
  for (let i = 0; i + 1 < pairs.length; i += 2) {
    runs.push({ at: Math.max((pairs[i] ?? 0) - step, 0), calls: pairs[i + 1] ?? 0 });
  }
  return {
    log: { penaltyEnds: Math.max(penaltyEnds - step, 0), keep: Math.max(keep, call.max), retain: Math.max(retain, call.window), runs },
    moved: step > 0,
  };
}

function add(log: Log, now: number, calls: number): void {
  const last = log.runs.at(-1);
  if (last?.at === now) {
    last.calls += calls;
  } else {
    log.runs.push({ at: now, calls });
  }
}

/** removeNewest removes calls of the window, and returns how many. */
function removeNewest(log: Log, call: LogCall, now: number): number {
  const removed = Math.min(call.cost, countAfter(log, now - call.window));
  let left = removed;
  while (left > 0) {
    const last = log.runs.at(-1) as Run;
    const some = Math.min(left, last.calls);
    left -= some;
    last.calls -= some;
    if (last.calls === 0) {
      log.runs.pop();
    }
  }
  return removed;
}

/** removeAt removes calls of the time at which the cost was taken, and returns how many. */
function removeAt(log: Log, call: LogCall, now: number): number {
  let removed = 0;
  for (const run of log.runs) {
    if (run.at === call.stamp && run.at > now - call.window) {
      const some = Math.min(call.cost - removed, run.calls);
      run.calls -= some;
      removed += some;
    }
  }
  log.runs = log.runs.filter((run) => run.calls > 0);
  return removed;
}

function countAfter(log: Log, at: number): number {
  return log.runs.reduce((sum, run) => (run.at > at ? sum + run.calls : sum), 0);
}

/** leavesWindowAt returns when that many calls of the window no longer count; 0 for no call. */
function leavesWindowAt(log: Log, call: LogCall, calls: number, now: number): number {
  let left = calls;
  for (const run of log.runs) {
    if (left <= 0) {
      break;
    }
    if (run.at > now - call.window) {
      left -= run.calls;
      if (left <= 0) {
        return run.at + call.window;
      }
    }
  }
  return 0;
}

interface Waits {
  outcome?: number;
  retry?: number;
  more?: number;
  all?: number;
  taken?: number;
}

function reply(log: Log, call: LogCall, now: number, waits: Waits): number[] {
  const newest = log.runs.at(-1)?.at ?? 0;
  const reset = wait(Math.max(log.penaltyEnds, newest + call.window), now);
  return count({ outcome: ALLOWED, used: countAfter(log, now - call.window), reset, stamp: now, ...waits });
}

function wait(at: number, now: number): number {
  return Math.max(at - now, 0);
}

function encode(log: Log, now: number): Stored | null {
  const kept: Run[] = [];
  let left = log.keep;
  for (const run of log.runs.toReversed()) {
    if (left <= 0 || run.at <= now - log.retain) {
      break;
    }
    kept.unshift({ at: run.at, calls: Math.min(run.calls, left) });
    left -= run.calls;
  }
  const newest = kept.at(-1);
  const until = Math.max(log.penaltyEnds, newest ? newest.at + log.retain : 0);
  if (until <= now) {
    return null;
  }
  return { until, numbers: [now, log.penaltyEnds, log.keep, log.retain, ...kept.flatMap((run) => [run.at, run.calls])] };
}

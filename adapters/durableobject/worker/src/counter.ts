// Sliding-window counters. Times are in milliseconds since 1970 unless their names say otherwise. Counts are at most
// twice the maximum, so products of a count and a time are at most 2^52, and Numbers represent them.

import { ALLOWED, DENIED, count } from "./record";
import type { Cost, Result, Stored, Waits } from "./record";

/** A CounterCall is a call about a window in which at most max tokens count. Its stamp is when a window began. */
export interface CounterCall extends Cost {
  kind: "counter";
  max: number;
  /** In milliseconds. */
  window: number;
}

/** A Counter has the tokens of fixed windows. */
interface Counter {
  /** Length of the windows, which are those of the policy that took tokens last. */
  length: number;
  /** When the current window began. */
  start: number;
  previous: number;
  current: number;
  /** Tokens of the next window. */
  reserved: number;
  /** When the last reserved tokens of any window can be spent. */
  reservedAt: number;
}

/** takeFromCounter executes a call. The stamp of its reply is when the window began to which the taken tokens belong. */
export function takeFromCounter(stored: Stored | null, call: CounterCall, now: number, look: boolean): Result {
  const tick = Math.floor(now / 1000);
  const { counter, moved } = read(stored, call, tick);
  switch (call.what) {
    case "refund":
    case "undo": {
      giveBack(counter, call);
      const result: Result = { reply: reply(counter, call, now, {}), denies: false };
      if (stored) {
        result.record = encode(counter, tick);
      }
      return result;
    }
    case "charge": {
      const most = Math.min(counter.current + call.cost, 2 * call.max, Math.floor(2 ** 52 / counter.length));
      counter.current = Math.max(counter.current, most);
      return { reply: reply(counter, call, now, {}), denies: false, record: encode(counter, tick) };
    }
  }
  const never = call.cost > call.max && call.what === "take"; // it is denied, and is not counted
  const waits = never || call.cost === 0 ? {} : take(counter, call, now);
  const result: Result = { reply: reply(counter, call, now, waits), denies: waits.outcome === DENIED || never };
  if (!look && (moved || (waits.taken ?? 0) > 0)) {
    result.record = encode(counter, tick);
  }
  return result;
}

/** read returns the counter now. If the clock went backwards, the windows move with it, so that nothing lasts for the step. */
function read(stored: Stored | null, call: CounterCall, tick: number): { counter: Counter; moved: boolean } {
  const [length = 1, began = 0, previous = 0, current = 0, written = 0, reserved = 0, reservedAt = 0] = stored?.numbers ?? [];
  const step = Math.max(written - tick, 0);
  const start = began - step;
  const passed = Math.floor((tick - start) / length);
  const counts = [previous, current, reserved, 0, 0].slice(Math.min(passed, 3));
  const counter: Counter = {
    length,
    start: start + passed * length,
    previous: counts[0] ?? 0,
    current: counts[1] ?? 0,
    reserved: counts[2] ?? 0,
    reservedAt: reservedAt - step,
  };
  if (counter.previous + counter.current + counter.reserved > 0) {
    return { counter, moved: step > 0 };
  }
  const fresh = { length: call.window, start: tick - (tick % call.window), previous: 0, current: 0, reserved: 0, reservedAt: 0 };
  return { counter: fresh, moved: step > 0 };
}

function giveBack(counter: Counter, call: CounterCall): void {
  let left = call.cost;
  const remove = (tokens: number, start: number) => {
    const removed = call.what === "refund" || call.stamp === start ? Math.min(left, tokens) : 0;
    left -= removed;
    return tokens - removed;
  };
  counter.reserved = remove(counter.reserved, counter.start + counter.length);
  counter.current = remove(counter.current, counter.start);
  counter.previous = remove(counter.previous, counter.start - counter.length);
}

/** take takes a cost, or as much as is there, now or within the time that the call may wait. */
function take(counter: Counter, call: CounterCall, now: number): Waits {
  const tick = Math.floor(now / 1000);
  const isClosed = closed(counter, call, tick);
  let cost = call.cost;
  if (call.what === "upto") {
    cost = isClosed ? 1 : Math.max(Math.min(cost, call.max - counted(counter, tick)), 1);
  }
  if (!isClosed && counted(counter, tick) + cost <= call.max) {
    if (counter.length !== call.window) {
      // Another policy has written the record. Its tokens count as those of a window that has just
      // ended: as many as before, and they return at the rate of this policy.
      const previous = counted(counter, tick);
      Object.assign(counter, { length: call.window, start: tick, previous, current: 0 });
    }
    counter.current += cost;
    return { taken: cost, stamp: counter.start };
  }
  const at = allowsAt(counter, call, cost, tick);
  const reachedAt = reservableAt(counter, call, at);
  if (reachedAt > now) {
    const more = isClosed ? 1 : Math.max(call.max - counted(counter, tick), 0) + 1;
    const wait = (tokens: number) => micros(allowsAt(counter, call, tokens, tick), now);
    return { outcome: DENIED, retry: reachedAt - now, more: wait(more), all: wait(call.max) };
  }
  let stamp = counter.start;
  if (at >= counter.start + counter.length) {
    stamp = counter.start + counter.length;
    counter.reserved += cost;
  } else {
    counter.current += cost;
  }
  counter.reservedAt = Math.max(counter.reservedAt, at);
  return { retry: at * 1000 - now, taken: cost, stamp };
}

/**
 * reservableAt returns when a call can reserve a cost that can be spent at a tick, in microseconds: in the window
 * before that one, and not in windows of another length.
 */
function reservableAt(counter: Counter, call: CounterCall, at: number): number {
  if (counter.length !== call.window) {
    return at * 1000;
  }
  const before = counter.start + (Math.floor((at - counter.start) / counter.length) - 1) * counter.length;
  return Math.max(at * 1000 - call.maxWait, before * 1000);
}

/** counted returns how many tokens of the previous and the current window count, rounded up. */
function counted({ length, start, previous, current }: Counter, tick: number): number {
  return Math.ceil((previous * (start + length - tick)) / length) + current;
}

/**
 * closed reports whether no token can be spent in the current window: while tokens of the next one are reserved,
 * because those of the current one count in it, too, and by a policy with windows of another length while any are,
 * because they would return at another rate.
 */
function closed(counter: Counter, call: CounterCall, tick: number): boolean {
  return counter.reserved > 0 || (tick < counter.reservedAt && counter.length !== call.window);
}

/** fitsAt returns the first tick at which a cost fits: one of the current window, or of one of the three after it. */
function fitsAt(counter: Counter, max: number, cost: number, tick: number): number {
  const { length, start, previous, current, reserved } = counter;
  const room = max - cost;
  const inNext = room - reserved;
  if (inNext < 0) {
    // In the window after the next one, reserved is previous.
    return start + 3 * length - Math.floor((room * length) / reserved);
  }
  if (current > inNext) {
    // In the next one, current is previous.
    return start + 2 * length - Math.floor((inNext * length) / current);
  }
  if (reserved > 0) {
    return start + length;
  }
  if (counted(counter, tick) <= room) {
    return tick;
  }
  return start + length - Math.floor(((room - current) * length) / previous);
}

/** allowsAt returns the first tick at which a cost can be spent. */
function allowsAt(counter: Counter, call: CounterCall, cost: number, tick: number): number {
  const at = fitsAt(counter, call.max, cost, tick);
  return counter.length === call.window ? at : Math.max(at, counter.reservedAt);
}

function emptyAt({ length, start, previous, current, reserved }: Counter): number {
  if (reserved > 0) {
    return start + 3 * length;
  }
  if (current > 0) {
    return start + 2 * length;
  }
  return previous > 0 ? start + length : 0;
}

function micros(tick: number, now: number): number {
  return Math.max(tick * 1000 - now, 0);
}

function reply(counter: Counter, call: CounterCall, now: number, waits: Waits): number[] {
  const tick = Math.floor(now / 1000);
  const used = closed(counter, call, tick) ? call.max : counted(counter, tick);
  return count({ outcome: ALLOWED, used, reset: micros(emptyAt(counter), now), stamp: counter.start, ...waits });
}

function encode(counter: Counter, tick: number): Stored | null {
  const until = emptyAt(counter);
  if (until <= tick) {
    return null;
  }
  const { length, start, previous, current, reserved, reservedAt } = counter;
  return { until: until * 1000, numbers: [length, start, previous, current, tick, reserved, reservedAt] };
}

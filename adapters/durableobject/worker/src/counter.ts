// Sliding-window counters. Times are in milliseconds since 1970 unless their names say otherwise. Products of a
// count and a time stay below 2^53 wherever an exact one matters, so Numbers represent them.

import { ALLOWED, DENIED, count } from "./record";
import type { Result, Stored, What } from "./record";

/** A CounterCall is a call about a window in which at most max tokens count. */
export interface CounterCall {
  kind: "counter";
  what: What;
  max: number;
  /** In milliseconds. */
  window: number;
  cost: number;
  /** When the window began in which an undone cost was taken. */
  stamp: number;
}

/** A Counter has the tokens of two fixed windows. */
interface Counter {
  /** Length of its windows, which are those of the policy that took tokens last. */
  length: number;
  /** When the current window began. */
  start: number;
  previous: number;
  current: number;
}

/** takeFromCounter executes a call. The stamp of its reply is when the window began. */
export function takeFromCounter(stored: Stored | null, call: CounterCall, now: number, look: boolean): Result {
  const tick = Math.floor(now / 1000);
  const { counter, moved } = read(stored, call, tick);
  if (call.what === "refund" || call.what === "undo") {
    giveBack(counter, call);
    const result: Result = { reply: reply(counter, now, {}), denies: false };
    if (stored) {
      result.record = encode(counter, tick);
    }
    return result;
  }
  const never = call.cost > call.max && call.what === "take"; // it is denied, and is not counted
  let cost = never ? 0 : call.cost;
  if (call.what === "upto" && cost > 0) {
    cost = Math.max(Math.min(cost, call.max - counted(counter, tick)), 1);
  }
  const { previous, start, length, current } = counter;
  if (cost > 0 && previous * (start + length - tick) <= (call.max - current - cost) * length) {
    return admit(counter, call, cost, now, look);
  }
  const result: Result = { reply: reply(counter, now, cost > 0 ? denial(counter, call.max, cost, now) : {}), denies: cost > 0 || never };
  if (moved) {
    result.record = encode(counter, tick);
  }
  return result;
}

/** read returns the counter now. If the clock went backwards, the windows move with it, so that nothing lasts for the step. */
function read(stored: Stored | null, call: CounterCall, tick: number): { counter: Counter; moved: boolean } {
  const fresh: Counter = { length: call.window, start: tick - (tick % call.window), previous: 0, current: 0 };
  if (stored === null) {
    return { counter: fresh, moved: false };
  }
  const [length = 1, began = 0, previous = 0, current = 0, written = 0] = stored.numbers;
  const moved = tick < written;
  const start = moved ? began - (written - tick) : began;
  switch (Math.floor((tick - start) / length)) {
    case 0:
      return { counter: { length, start, previous, current }, moved };
    case 1:
      return { counter: { length, start: start + length, previous: current, current: 0 }, moved };
    default:
      return { counter: fresh, moved };
  }
}

function giveBack(counter: Counter, call: CounterCall): void {
  if (call.what === "refund") {
    const newest = Math.min(call.cost, counter.current);
    counter.current -= newest;
    counter.previous = Math.max(counter.previous - call.cost + newest, 0);
  } else if (call.stamp === counter.start) {
    counter.current = Math.max(counter.current - call.cost, 0);
  } else if (call.stamp === counter.start - counter.length) {
    counter.previous = Math.max(counter.previous - call.cost, 0);
  }
}

function admit(counter: Counter, call: CounterCall, cost: number, now: number, look: boolean): Result {
  const tick = Math.floor(now / 1000);
  let after = counter;
  if (counter.length !== call.window) {
    // Another policy has written the record. Its tokens count as those of a window that has just
    // ended: as many as before, and they return at the rate of this policy.
    after = { length: call.window, start: tick, previous: counted(counter, tick), current: 0 };
  }
  after = { ...after, current: after.current + cost };
  const result: Result = { reply: reply(after, now, { taken: cost }), denies: false };
  if (!look) {
    result.record = encode(after, tick);
  }
  return result;
}

interface Waits {
  outcome?: number;
  retry?: number;
  more?: number;
  all?: number;
  taken?: number;
}

function denial(counter: Counter, max: number, cost: number, now: number): Waits {
  const more = Math.max(max - counted(counter, Math.floor(now / 1000)), 0) + 1;
  const wait = (tokens: number) => micros(allowsAt(counter, max, tokens), now);
  return { outcome: DENIED, retry: wait(cost), more: wait(more), all: wait(max) };
}

function reply(counter: Counter, now: number, waits: Waits): number[] {
  const tick = Math.floor(now / 1000);
  return count({ outcome: ALLOWED, used: counted(counter, tick), reset: micros(emptyAt(counter), now), stamp: counter.start, ...waits });
}

/** counted returns how many tokens count, rounded up. */
function counted({ length, start, previous, current }: Counter, tick: number): number {
  return Math.ceil((previous * (start + length - tick)) / length) + current;
}

/** allowsAt returns the first tick at which a denied cost can be allowed. */
function allowsAt({ length, start, previous, current }: Counter, max: number, cost: number): number {
  const room = max - cost;
  if (current > room) {
    // Not in this window; in the next one, current is previous.
    return start + 2 * length - Math.floor((room * length) / current);
  }
  return start + length - Math.floor(((room - current) * length) / previous);
}

function emptyAt({ length, start, previous, current }: Counter): number {
  if (current > 0) {
    return start + 2 * length;
  }
  return previous > 0 ? start + length : 0;
}

function micros(tick: number, now: number): number {
  return Math.max(tick * 1000 - now, 0);
}

function encode(counter: Counter, tick: number): Stored | null {
  const until = emptyAt(counter);
  if (until <= tick) {
    return null;
  }
  return { until: until * 1000, numbers: [counter.length, counter.start, counter.previous, counter.current, tick] };
}

import type { ClientOptions, Clock, Off } from "./types.js";

export const noop = (): void => {};

const systemClock: Clock = {
  now: () => performance.now(),
  setTimeout(callback, ms, watch) {
    const timer: any = setTimeout(callback, ms);
    if (watch) timer.unref?.(); // Node.js only
    return timer;
  },
  clearTimeout: (timer) => clearTimeout(timer),
};

/** What every part of a client needs. */
export interface Env {
  now(): number;
  random(): number;
  /** Calls f after ms, and returns a function that cancels it. */
  after(ms: number, f: () => void, watch?: boolean): Off;
  /** Reports an error that no promise reports. */
  report(error: unknown, type?: string): void;
  /** Calls each function, and reports what they throw. */
  emit<A extends unknown[]>(functions: Iterable<(...args: A) => void>, ...args: A): void;
  onError: Set<(error: unknown, type?: string) => void>;
}

export function createEnv({ clock = systemClock, random = Math.random }: ClientOptions): Env {
  const onError: Env["onError"] = new Set();
  const report = (error: unknown, type?: string) => {
    if (!onError.size) console.error(error);
    for (const f of onError) f(error, type);
  };
  return {
    now: () => clock.now(),
    random,
    after(ms, f, watch) {
      if (ms > 2 ** 31 - 1) return noop; // the timers of browsers overflow
      const timer = clock.setTimeout(f, ms, watch);
      return () => clock.clearTimeout(timer);
    },
    report,
    emit(functions, ...args) {
      for (const f of [...functions]) {
        try {
          f(...args);
        } catch (error) {
          report(error);
        }
      }
    },
    onError,
  };
}

/** Adds to a set, and returns a function that removes it. */
export function addTo<T>(set: Set<T>, value: T): Off {
  set.add(value);
  return () => void set.delete(value);
}

import type { Welcome } from "./protocol.js";
import type { ClientOptions, Clock, Format, Off } from "./types.js";

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
  /** Cancels all timers. */
  stopAll(): void;
  /** Calls each function, and reports what they throw. */
  emit(functions: Iterable<((...args: any[]) => void) | undefined>, ...args: any[]): void;
  /** Adds a listener by name: the type of a message, or $error, $loss and $state. */
  on(name: string, f: (...args: any[]) => void): Off;
  log: ClientOptions["log"];
  /** The latest answer to a greeting. */
  welcome: Partial<Welcome>;
  format: Format;
  /** Calls the listeners of a name. */
  deliver(name: string, ...args: any[]): void;
}

export function createEnv({ clock = systemClock, random = Math.random, log, format = JSON as unknown as Format }: ClientOptions): Env {
  const timers = new Set<Off>();
  const listeners: { [name: string]: Set<(...args: any[]) => void> } = { __proto__: null } as any;
  const emit: Env["emit"] = (functions, ...args) => {
    for (const f of [...functions]) {
      try {
        f?.(...args);
      } catch (error) {
        env.deliver("$error", error);
      }
    }
  };
  const env: Env = {
    now: () => clock.now(),
    random,
    format,
    after(ms, f, watch) {
      if (ms >= 2 ** 31) return noop; // the timers of browsers overflow
      const off = () => {
        timers.delete(off);
        clock.clearTimeout(timer);
      };
      const timer = clock.setTimeout(() => (off(), f()), ms, watch);
      timers.add(off);
      return off;
    },
    stopAll: () => emit(timers),
    emit,
    on(name, f) {
      const set = (listeners[name] ??= new Set());
      set.add(f);
      return () => set.delete(f);
    },
    log,
    welcome: {},
    deliver(name, ...args) {
      log?.(name, ...args);
      if (listeners[name]?.size) emit(listeners[name], ...args);
      else if (name === "$error") console.error(...args);
    },
  };
  return env;
}

import { PenstockError } from "./index.js";
import { stream } from "./streams.js";
import type { CallOptions, Client, TopicName } from "./index.js";

// Runs are read by the number of an item, so that a reader continues on any connection, and on any node.

type Streams<C> = C extends { streams: infer S } ? S : {};

/** The types of the items of runs: those for which the contract has a stream "<type>.attach". */
export type RunName<C> = string extends keyof Streams<C> ? string : keyof Streams<C> extends infer K ? (K extends `${infer N}.attach` ? N : never) : never;
/** The items of a run. */
export type RunItem<C, N extends string> = string extends keyof Streams<C> ? any : Streams<C> extends { [K in `${N}.attach`]: { item: { item?: infer I } } } ? I : never;

/** An item, or several neighbors that are merged into one. Its numbers are those from number to number + count - 1. */
export interface RunPart<Item> {
  number: number;
  count: number;
  item: Item;
}

/** How a run has ended. */
export interface RunEnd {
  run: string;
  state: "completed" | "failed" | "stopped" | "interrupted" | "exhausted" | "expired";
  /** How many items the run has. */
  items: number;
  /** The ID of the user who has stopped it. */
  by?: string;
  /** Why it is not completed. */
  error?: PenstockError;
}

export interface AttachOptions<Item = any> {
  /** The ID of the run. The latest run of the topic by default. */
  run?: string;
  /** The number of the first item, 0 by default. */
  from?: number;
  signal?: AbortSignal;
  /**
   * Returns one item for two neighbors, or undefined if they must stay two. Each part then has everything since `from`, as far as it can be
   * merged: it replaces the part before if that has the same number. After an interruption, only what is new is requested.
   */
  merge?: (first: Item, second: Item) => Item | undefined;
}

/** The items of a run, each once and in order, until it has ended. Another loop continues behind the last item. */
export interface Run<Item> extends AsyncIterable<RunPart<Item>> {
  /** The ID; undefined before the first part, unless the options have it. */
  readonly run: string | undefined;
  /** The number of the first item that the loop has not received. */
  readonly next: number;
  /** undefined until the loop has received all items. */
  readonly end: RunEnd | undefined;
}

const CREDIT = 32; // enough for 100 items a second and 300 ms to the server and back
const MIN_BACKOFF_MS = 500; // the upper bound of the first one
const MAX_BACKOFF_MS = 20_000;
const MAX_TIMER_MS = 2 ** 31 - 1; // longer ones overflow, and fire at once

/**
 * Reads a run of a topic, whose items have the type `name`. After a lost connection, a restart of the server, or an error that does not last, it
 * attaches again behind the last item. Leaving the loop, or the signal, does not stop the run. The loop throws NOT_FOUND if there is no
 * such run, or the client may not read it, and other errors that last. If the run is not completed, it does not throw: `end` has the reason.
 */
export function attach<C, N extends RunName<C>>(client: Client<C>, name: N, topic: TopicName<C>, options: AttachOptions<RunItem<C, N>> = {}): Run<RunItem<C, N>> {
  const { signal, merge } = options;
  let { run, from: next = 0 } = options;
  let last: RunPart<any> | undefined;
  let end: RunEnd | undefined;

  async function* parts() {
    for (let failures = 0; !end; ) {
      try {
        let reply: any;
        const request = { topic, run, from: next };
        for await (const { run: id, n, count = 1, item } of stream(client as Client<any>, `${name}.attach`, request, {
          ...(signal && { signal }),
          credit: CREDIT,
          onReply: (r) => (reply = r),
        }) as AsyncIterable<any>) {
          if (!item) {
            run = id;
            failures = 0;
            continue;
          }
          if (n !== next) throw new PenstockError("INTERNAL", `the server has sent item ${n} of the run; it must be ${next}`);
          next += count;
          const merged = last && merge?.(last.item, item);
          last = merged === undefined ? { number: n, count, item } : { number: last!.number, count: last!.count + count, item: merged };
          yield last;
        }
        if (!reply) throw new PenstockError("UNAVAILABLE", "the stream has ended before the run", { retryable: true });
        end = endOf(reply);
      } catch (error) {
        await beforeAttempt(error, failures++, signal);
      }
    }
  }

  return {
    get run() {
      return run;
    },
    get next() {
      return next;
    },
    get end() {
      return end;
    },
    [Symbol.asyncIterator]: parts,
  };
}

/**
 * Ends a run of a topic, and returns how it has ended when that is stored. A run that has ended stays as it is. After a lost connection, it is
 * sent again. The error is NOT_FOUND if there is no such run, or the client may not stop it.
 */
export async function stop<C, N extends RunName<C>>(client: Client<C>, name: N, topic: TopicName<C>, run: string, options: Pick<CallOptions, "signal" | "timeoutMs"> = {}): Promise<RunEnd> {
  for (let failures = 0; ; failures++) {
    try {
      return endOf(await (client as Client<any>).call(`${name}.stop`, { topic, run }, { ...options, idempotent: true }));
    } catch (error) {
      if ((error as PenstockError).code === "DEADLINE_EXCEEDED") throw error;
      await beforeAttempt(error, failures, options.signal);
    }
  }
}

function endOf({ run, state, items, by, error }: any): RunEnd {
  const { code, message, ...more } = error ?? {};
  return { run, state, items, ...(by && { by }), ...(error && { error: new PenstockError(code, message, more) }) };
}

/** Waits before a request is repeated, after a number of failures since the last success. Throws the error if repeating it makes no sense. */
async function beforeAttempt(error: any, failures: number, signal: AbortSignal | undefined): Promise<void> {
  if (!(error instanceof PenstockError && (error.retryable || error.mayHaveExecuted)) || signal?.aborted) throw error;
  if (error.mayHaveExecuted && !failures) return; // the client waits before it connects again
  await new Promise<void>((resolve, reject) => {
    const cancel = () => {
      clearTimeout(timer);
      reject(new PenstockError("CANCELLED", "", { cause: signal!.reason }));
    };
    const timer = setTimeout(
      () => {
        signal?.removeEventListener("abort", cancel);
        resolve();
      },
      Math.min(MAX_TIMER_MS, (error.retryAfterMs ?? 0) + Math.random() * Math.min(MAX_BACKOFF_MS, MIN_BACKOFF_MS * 2 ** failures)),
    );
    signal?.addEventListener("abort", cancel);
  });
}

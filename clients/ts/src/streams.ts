import { noop } from "./env.js";
import type { PenstockError } from "./errors.js";
import type { Item } from "./outbox.js";
import type { Stream, StreamOptions } from "./types.js";

// Streams are asynchronous iterators. Credits bound what arrives before it is consumed.

const DEFAULT_CREDIT = 16;

export function createStream(
  options: StreamOptions,
  submit: (item: Pick<Item, "meta" | "signal" | "progress" | "done">) => void,
  grant: (credit: number) => void,
): Stream<any, any> {
  const { credit = DEFAULT_CREDIT, signal } = options;
  const controller = new AbortController();
  const items: any[] = [];
  let wake = noop;
  let ended: { error?: PenstockError | undefined; reply?: any } | undefined;
  let resolve!: (reply: any) => void;
  let reject!: (error: unknown) => void;
  const reply = new Promise((...f) => ([resolve, reject] = f));
  reply.catch(noop);

  const abort = () => controller.abort(signal?.reason);
  const cancel = () => {
    resolve(undefined);
    abort();
  };

  async function* iterate() {
    let consumed = 0;
    signal?.addEventListener("abort", abort);
    if (signal?.aborted) abort();
    submit({
      meta: { credit },
      signal: controller.signal,
      progress(item) {
        items.push(item);
        wake();
      },
      done(error, payload) {
        ended = { error, reply: payload };
        signal?.removeEventListener("abort", abort);
        if (error) reject(error);
        else resolve(payload);
        wake();
      },
    });
    try {
      for (;;) {
        while (items.length) {
          yield items.shift();
          if (++consumed >= credit / 2) {
            if (!ended) grant(consumed);
            consumed = 0;
          }
        }
        if (ended) break;
        await new Promise<void>((f) => (wake = f));
      }
      if (ended.error) throw ended.error;
      return ended.reply;
    } finally {
      cancel();
    }
  }

  const iterator = iterate();
  return {
    reply,
    next: () => iterator.next(),
    return(value) {
      cancel(); // a next() that waits would delay it
      return iterator.return(value);
    },
    throw(error) {
      cancel();
      return iterator.throw(error);
    },
    [Symbol.asyncIterator]() {
      return this;
    },
  } as Stream<any, any>;
}

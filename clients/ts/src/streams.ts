import { noop } from "./env.js";
import type { PenstockError } from "./errors.js";
import type { Item } from "./outbox.js";
import type { Stream, StreamOptions } from "./types.js";

// Streams are asynchronous iterators. Credits bound what arrives before it is consumed.

const DEFAULT_CREDIT = 16;

export function createStream(
  { credit = DEFAULT_CREDIT, signal, onReply }: StreamOptions<any>,
  submit: (item: Pick<Item, "meta" | "signal" | "progress" | "done">) => { grant(credit: number): void } | void,
): Stream<any, any> {
  const controller = new AbortController();
  const abort = () => controller.abort(signal?.reason);
  const items: any[] = [];
  let wake = noop;
  let ended = false;
  let error: PenstockError | undefined;
  let reply: any;

  async function* iterate() {
    let consumed = 0;
    if (signal?.aborted) abort();
    signal?.addEventListener("abort", abort);
    const sent = submit({
      meta: { credit },
      signal: controller.signal,
      progress(item) {
        items.push(item);
        wake();
      },
      done(failure, payload) {
        signal?.removeEventListener("abort", abort);
        ended = true;
        error = failure;
        reply = payload;
        wake();
      },
    });
    try {
      while (items.length || !ended) {
        if (!items.length) await new Promise<void>((resolve) => (wake = resolve));
        else {
          yield items.shift();
          if (++consumed >= credit / 2 && !ended) {
            sent?.grant(consumed);
            consumed = 0;
          }
        }
      }
      if (error) throw error;
      onReply?.(reply);
      return reply;
    } finally {
      abort();
    }
  }

  const iterator: any = iterate();
  const { return: end } = iterator;
  iterator.return = (value: unknown) => {
    abort(); // a next() that waits would delay it
    return end.call(iterator, value);
  };
  return iterator;
}

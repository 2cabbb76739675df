import type { Client, Stream, StreamArguments, StreamName, StreamOf, StreamOptions } from "./index.js";

// Streams are asynchronous iterators over the progress of a call. Credits bound what arrives before it is consumed.

const DEFAULT_CREDIT = 16;

/** The reason with which the call of a stream is aborted when its loop is left. */
export const LEFT = "the loop over the stream was left";

/** Returns the items of a stream. It is sent when the first item is asked for, and aborted when the loop is left. */
export function stream<C, K extends StreamName<C>>(client: Client<C>, type: K, ...[payload, options]: StreamArguments<C, K>): StreamOf<C, K> {
  const { credit = DEFAULT_CREDIT, meta, onReply, signal, timeoutMs = Infinity } = (options ?? {}) as StreamOptions<any>;
  const items: any[] = [];
  const controller = new AbortController();
  let wake = () => {};
  let grant: ((credit: number) => void) | undefined;
  let outcome: { reply?: any; error?: unknown } | undefined;

  const settle = (result: typeof outcome) => {
    outcome = result;
    wake();
  };

  async function* iterate() {
    const abort = () => controller.abort(signal!.reason);
    let consumed = 0;
    if (signal?.aborted) abort();
    signal?.addEventListener("abort", abort);
    (client as Client<any>)
      .call(type, payload, {
        meta: { ...meta, credit } as typeof meta & {},
        signal: controller.signal,
        timeoutMs,
        onProgress(item, more) {
          grant = more;
          items.push(item);
          wake();
        },
      })
      .then(
        (reply) => settle({ reply }),
        (error) => settle({ error }),
      );
    try {
      while (items.length || !outcome) {
        if (!items.length) await new Promise<void>((resolve) => (wake = resolve));
        else {
          yield items.shift();
          if (++consumed >= credit / 2 && !outcome) {
            grant!(consumed);
            consumed = 0;
          }
        }
      }
      const { reply, error } = outcome;
      if (error) throw error;
      onReply?.(reply);
      return reply;
    } finally {
      signal?.removeEventListener("abort", abort);
      controller.abort(LEFT); // no effect on a call that has its answer
    }
  }

  const iterator: Stream<any, any> = iterate();
  const { return: end } = iterator;
  iterator.return = (value) => {
    controller.abort(LEFT); // a next() that waits would delay it
    return end.call(iterator, value);
  };
  return iterator as StreamOf<C, K>;
}

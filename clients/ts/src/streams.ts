import { noop } from "./env.js";
import type { Entry, Item } from "./outbox.js";
import type { Stream, StreamOptions } from "./types.js";

// Streams are asynchronous iterators. Credits bound what arrives before it is consumed.

const DEFAULT_CREDIT = 16;

export function createStream({ credit = DEFAULT_CREDIT, meta, onReply }: StreamOptions<any>, submit: (item: Pick<Item, "meta" | "onProgress" | "done">) => Entry | void): Stream<any, any> {
  const items: any[] = [];
  let wake = noop;
  let sent: Entry | void;
  let ended: Parameters<NonNullable<Item["done"]>> | undefined;

  async function* iterate() {
    let consumed = 0;
    sent = submit({
      meta: { ...meta, credit },
      onProgress(item) {
        items.push(item);
        wake();
      },
      done(...outcome) {
        ended = outcome;
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
      const [error, reply] = ended;
      if (error) throw error;
      onReply?.(reply);
      return reply;
    } finally {
      sent?.cancel();
    }
  }

  const iterator: any = iterate();
  const { return: end } = iterator;
  iterator.return = (value: unknown) => {
    sent?.cancel(); // a next() that waits would delay it
    return end.call(iterator, value);
  };
  return iterator;
}

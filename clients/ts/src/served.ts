import type { Env } from "./env.js";
import { PenstockError } from "./index.js";
import type { Frame, Link } from "./link.js";
import type { Outbox } from "./outbox.js";
import type { ServedContext } from "./types.js";

// Calls of the server.

const MAX_SERVED = 64; // at the same time

type Handler = [replyType: string, handle: (request: any, context: ServedContext) => unknown];

export function createServed(env: Env, outbox: Outbox) {
  const handlers = new Map<string, Handler>();

  async function answer(link: Link, { type, meta, payload }: Frame): Promise<void> {
    const id = meta.correlationId!;
    const serving = (link.answering ??= new Map());
    const controller = new AbortController();
    const { signal } = controller;
    const stopTimer = env.after(meta.timeoutMs ?? Infinity, () => controller.abort());
    const reply = (replyType: string, content: unknown) => {
      if (signal.aborted) return;
      const done = (error?: PenstockError) => {
        if (error) throw error.cause ?? error; // of encoding it, or it is too big
      };
      outbox.submit({ type: replyType, meta: { correlationId: id }, payload: content, oneWay: true, first: true, done }, link);
    };
    const fail = ({ code, message, retryable, retryAfterMs, details }: PenstockError) =>
      reply("RPC_ERROR", { code, message, retryable, retryAfterMs, details });
    try {
      if (serving.size >= MAX_SERVED) throw new PenstockError("RESOURCE_EXHAUSTED", "", { retryable: true });
      serving.set(id, controller);
      const handler = handlers.get(type);
      if (!handler) throw new PenstockError("UNIMPLEMENTED");
      reply(handler[0], await handler[1](payload, { ...meta, signal }));
    } catch (error) {
      try {
        if (!(error instanceof PenstockError)) throw error;
        fail(error);
      } catch (cause) {
        fail(new PenstockError("INTERNAL")); // the cause may contain what the server must not see
        env.deliver("$error", cause, type);
      }
    }
    stopTimer();
    serving.delete(id);
  }

  return {
    handle(type: string, ...handler: Handler) {
      handlers.set(type, handler);
      return () => {
        if (handlers.get(type) === handler) handlers.delete(type);
      };
    },

    /** Handles a call of the server, or its end. */
    receive(link: Link, frame: Frame): void {
      if (frame.type === "$ws:abort") link.answering?.get(frame.meta.correlationId!)?.abort();
      else void answer(link, frame);
    },
  };
}

export type Served = ReturnType<typeof createServed>;

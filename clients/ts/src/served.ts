import type { Env, } from "./env.js";
import { PenstockError } from "./errors.js";
import type { Frame, Link } from "./link.js";
import type { Outbox } from "./outbox.js";
import type { Off, ServedContext } from "./types.js";

// Calls of the server.

const MAX_SERVED = 64; // at the same time

interface Handler {
  replyType: string;
  handle(request: any, context: ServedContext): unknown;
}

export function createServed(env: Env, outbox: Outbox) {
  const handlers = new Map<string, Handler>();
  const running = new Map<string, { link: Link; controller: AbortController }>();

  const answer = (link: Link, id: string, type: string, payload: unknown) => outbox.control(link, type, { correlationId: id }, payload);

  const reject = (link: Link, id: string, { code, message, details, retryable, retryAfterMs }: PenstockError) =>
    answer(link, id, "RPC_ERROR", { code, message, details, retryable, retryAfterMs });

  async function serve(link: Link, { type, meta, payload }: Frame, id: string): Promise<void> {
    const handler = handlers.get(type);
    if (!handler) return reject(link, id, new PenstockError("UNIMPLEMENTED"));
    if (running.size >= MAX_SERVED) return reject(link, id, new PenstockError("RESOURCE_EXHAUSTED", "", { retryable: true }));
    const controller = new AbortController();
    const { signal } = controller;
    const stopTimer = env.after(meta.timeoutMs ?? Infinity, () => controller.abort(), true);
    running.set(id, { link, controller });
    try {
      const reply = await handler.handle(payload, meta.timeoutMs ? { signal, timeoutMs: meta.timeoutMs } : { signal });
      if (!signal.aborted) answer(link, id, handler.replyType, reply);
    } catch (error) {
      // Other errors may contain what the server must not see.
      if (!signal.aborted) reject(link, id, error instanceof PenstockError ? error : new PenstockError("INTERNAL"));
      if (!(error instanceof PenstockError)) env.report(error, type);
    } finally {
      stopTimer();
      running.delete(id);
    }
  }

  return {
    handle(type: string, replyType: string, handle: Handler["handle"]): Off {
      const handler = { replyType, handle };
      handlers.set(type, handler);
      return () => {
        if (handlers.get(type) === handler) handlers.delete(type);
      };
    },

    /** Handles a call of the server. Returns false if the message is none. */
    receive(link: Link, frame: Frame): boolean {
      const id = frame.meta?.correlationId;
      if (!id?.startsWith("$ws:")) return false;
      if (frame.type === "$ws:abort") running.get(id)?.controller.abort();
      else void serve(link, frame, id);
      return true;
    },

    lost(old: Link) {
      for (const { link, controller } of running.values()) if (link === old) controller.abort();
    },
  };
}

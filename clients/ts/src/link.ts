import type { Meta, WebSocketLike } from "./types.js";

/** One WebSocket. Everything that belongs to a connection refers to its link. */
export interface Link {
  socket: WebSocketLike;
  /** Calls of the server that have no answer. */
  serving: Map<string, AbortController>;
  /** The link has been replaced: only answers to its calls count. */
  retired?: boolean;
}

export interface Frame {
  type: string;
  meta: Meta & { correlationId?: string; timeoutMs?: number };
  payload?: any;
}

import type { Connection, Meta, TraceContext, WebSocketLike } from "./types.js";

/** One WebSocket. Everything that belongs to a connection refers to its link. */
export interface Link {
  socket: WebSocketLike;
  about: Connection;
  /** Calls of the server that have no answer. */
  answering?: Map<string, AbortController>;
  /** Calls without an answer. */
  openCalls: number;
  /** The server permits no other call before one is answered. */
  crowded?: boolean;
  /** The link has been replaced: only answers to its calls count. */
  retired?: boolean;
}

export interface Frame {
  type: string;
  meta: Meta & TraceContext & { correlationId?: string; timeoutMs?: number };
  payload?: any;
}

import type { Meta, WebSocketLike } from "./types.js";

/** One WebSocket. Everything that belongs to a connection refers to its link. */
export interface Link {
  socket: WebSocketLike;
  /** The link has been replaced: only answers to its calls count. */
  retired?: boolean;
}

export interface Frame {
  type: string;
  meta: Meta & { correlationId?: string; timeoutMs?: number };
  payload?: any;
}

/** Writes a message. type and meta come first, so that the server can answer a message that is too large. */
export function write(link: Link, type: string, meta: object, body?: string): void {
  const payload = body === undefined ? "" : `,"payload":${body}`;
  link.socket.send(`{"type":${JSON.stringify(type)},"meta":${JSON.stringify(meta)}${payload}}`);
}

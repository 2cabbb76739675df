// A substitute for @ws-kit/client 0.10, which is not in the npm registry. It handles frames as
// that client's source does: the request tracker sees a frame first, then the handlers of its
// type, and everything else goes to onUnhandled. Frames are validated with the schemas of the
// published @ws-kit/zod. It does not reconnect: a test opens one connection.

import { randomUUID } from "node:crypto";
import WebSocket from "ws";

class ClientError extends Error {
  constructor(message, fields = {}) {
    super(message);
    this.name = new.target.name;
    Object.assign(this, fields);
  }
}
export class RpcError extends ClientError {}
export class ServerError extends ClientError {}
export class ValidationError extends ClientError {}
export class TimeoutError extends ClientError {}
export class StateError extends ClientError {}
export class ConnectionClosedError extends ClientError {}

const reservedMeta = new Set(["clientId", "receivedAt", "correlationId"]);

function metaOf(user, correlationId) {
  const own = Object.entries(user ?? {}).filter(([key]) => !reservedMeta.has(key));
  const meta = { timestamp: Date.now(), ...Object.fromEntries(own) };
  if (correlationId !== undefined) meta.correlationId = correlationId;
  return meta;
}

// address returns the URL and the subprotocols of a handshake with a token.
function address({ url, protocols = [], auth }) {
  const token = auth?.token;
  if (auth?.attach === "protocol") return [url, [...protocols, `bearer.${token}`]];
  const target = new URL(url);
  if (token) target.searchParams.set("access_token", token);
  return [target.href, protocols];
}

export function createClient(options) {
  const { queueSize = 1000, pendingRequestsLimit = 1000, onUnhandled, onError, onFrame } = options;
  const [url, protocols] = address(options);
  const socket = new WebSocket(url, protocols);
  const queue = []; // what was sent before the connection is open
  const pending = new Map(); // by correlation ID
  const handlers = new Map(); // by type

  const closed = new Promise((resolve) => {
    socket.on("close", (code, reason) => {
      for (const id of [...pending.keys()]) {
        settle(id, (request) => request.reject(new ConnectionClosedError("Connection closed")));
      }
      resolve({ code, reason: reason.toString() });
    });
  });
  const opened = new Promise((resolve, reject) => {
    socket.on("error", reject);
    socket.on("open", () => {
      for (const text of queue.splice(0)) socket.send(text);
      resolve();
    });
  });
  socket.on("message", (data, isBinary) => receive(isBinary ? data : data.toString()));

  function transmit(text) {
    if (socket.readyState === WebSocket.OPEN) socket.send(text);
    else if (socket.readyState === WebSocket.CONNECTING && queue.length < queueSize) queue.push(text);
    else return false;
    return true;
  }

  function settle(id, how) {
    const request = pending.get(id);
    pending.delete(id);
    clearTimeout(request.timer);
    request.unlisten();
    how(request);
  }

  // receive handles a frame: text is parsed, anything else is a parse error.
  function receive(data) {
    onFrame?.(data);
    let message;
    try {
      message = JSON.parse(data);
    } catch (error) {
      onError?.(error, { type: "parse" });
      return;
    }
    if (typeof message?.type !== "string") {
      onError?.(new ValidationError("Message has no type"), { type: "parse" });
      return;
    }
    track(message);
    dispatch(message);
  }

  // track settles the request that a frame answers. The first frame with its correlation ID that
  // is not progress settles it.
  function track({ type, meta, ...message }) {
    const id = meta?.correlationId;
    const request = pending.get(id);
    if (!request) return;
    if (type === "$ws:rpc-progress") {
      request.onProgress?.(message.data);
      return;
    }
    const payload = message.payload ?? {};
    if (type === "RPC_ERROR") {
      const { retryable, retryAfterMs } = payload;
      const fields = { code: payload.code ?? "INTERNAL", details: payload.details, correlationId: id };
      if (typeof retryable === "boolean") fields.retryable = retryable;
      if (typeof retryAfterMs === "number") fields.retryAfterMs = retryAfterMs;
      settle(id, ({ reject }) => reject(new RpcError(payload.message || "RPC error", fields)));
      return;
    }
    if (type === "ERROR") {
      const fields = { code: payload.code ?? "UNKNOWN", details: payload.details };
      settle(id, ({ reject }) => reject(new ServerError(payload.message || "Server error", fields)));
      return;
    }
    const expected = request.reply.messageType;
    if (type !== expected) {
      const error = new ValidationError(`Expected type ${expected}, got ${type}`);
      settle(id, ({ reject }) => reject(error));
      return;
    }
    const parsed = request.reply.safeParse({ type, meta, ...message });
    settle(id, ({ resolve, reject }) => {
      if (parsed.success) resolve(parsed.data);
      else reject(new ValidationError(`Reply validation failed: ${parsed.error.message}`, { issues: parsed.error.issues }));
    });
  }

  function dispatch(message) {
    const registered = handlers.get(message.type);
    if (!registered) {
      onUnhandled?.(message);
      return;
    }
    const parsed = registered.schema.safeParse(message);
    if (!parsed.success) {
      onError?.(parsed.error, { type: "validation", message });
      return;
    }
    for (const handle of registered.handlers) {
      try {
        handle(parsed.data);
      } catch (error) {
        onError?.(error, { type: "handler", message });
      }
    }
  }

  // encode returns the text of a message, or undefined if it does not match its schema.
  function encode(schema, payload, meta) {
    const message = { type: schema.messageType, meta };
    if (payload !== undefined) message.payload = payload;
    const parsed = schema.safeParse(message);
    return parsed.success ? JSON.stringify(parsed.data) : undefined;
  }

  return {
    opened,
    closed, // resolves to the code and the reason of the close frame
    get protocol() {
      return socket.protocol;
    },
    get pending() {
      return pending.size;
    },

    on(schema, handle) {
      const type = schema.messageType;
      if (!handlers.has(type)) handlers.set(type, { schema, handlers: new Set() });
      handlers.get(type).handlers.add(handle);
      return () => handlers.get(type).handlers.delete(handle);
    },

    send(schema, payload, { meta, correlationId } = {}) {
      const text = encode(schema, payload, metaOf(meta, correlationId));
      return text !== undefined && transmit(text);
    },

    request(schema, payload, opts = {}) {
      const { correlationId = randomUUID(), timeoutMs = 30_000, signal, onProgress, meta } = opts;
      const text = encode(schema, payload, metaOf(meta, correlationId));
      if (text === undefined) return Promise.reject(new ValidationError("Outbound validation failed"));
      if (signal?.aborted) return Promise.reject(new StateError("Request aborted before dispatch"));
      if (pending.size >= pendingRequestsLimit) {
        return Promise.reject(new StateError("Pending request limit exceeded"));
      }
      return new Promise((resolve, reject) => {
        const fail = (error) => settle(correlationId, () => reject(error));
        const abort = () => fail(new StateError("Request aborted"));
        signal?.addEventListener("abort", abort);
        pending.set(correlationId, {
          resolve, reject, onProgress, reply: schema.response,
          timer: setTimeout(() => fail(new TimeoutError(`No reply within ${timeoutMs} ms`)), timeoutMs),
          unlisten: () => signal?.removeEventListener("abort", abort),
        });
        if (!transmit(text)) fail(new StateError("Cannot send: the connection is not open"));
      });
    },

    // sendText sends text that need not be valid.
    sendText: transmit,

    close(code = 1000, reason = "") {
      socket.close(code, reason);
      return closed;
    },
  };
}

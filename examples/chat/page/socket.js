// A WebSocket that reconnects with backoff, detects a silent connection, and matches replies with calls.

const MIN_BACKOFF_MS = 300;
const MAX_BACKOFF_MS = 10_000;
const MIN_BACKOFF_MS_BY_CODE = { 1012: 10_000, 1013: 5_000, 4429: 5_000, 4503: 10_000 };
const STOP_CODES = [4401, 4403]; // the token is invalid, or lacks the permission
const STABLE_AFTER_MS = 5_000; // a connection that lasts this long resets the backoff
const CONNECT_TIMEOUT_MS = 10_000;
const CALL_TIMEOUT_MS = 10_000;
const HEARTBEAT_AFTER_MS = 25_000; // without a received message
const HEARTBEAT_TIMEOUT_MS = 10_000;
const GOAWAY_RECHECK_MS = 100;

// The error that the server sent instead of a reply, or the reason why there is no reply.
export class CallError extends Error {
  constructor({ code = "UNKNOWN", message, details, retryable = false, retryAfterMs } = {}) {
    super(message || code);
    this.code = code;
    this.details = details ?? {};
    this.retryable = retryable;
    this.retryAfterMs = retryAfterMs; // null: a retry can never succeed
  }

  get isRateLimit() {
    return this.code === "RESOURCE_EXHAUSTED" && typeof this.retryAfterMs === "number";
  }

  // The server may have handled the call, or may still do so.
  get isUnknownOutcome() {
    return ["OUTCOME_UNKNOWN", "TIMEOUT", "CONNECTION_LOST"].includes(this.code);
  }
}

export class Socket {
  #url;
  #onState;
  #onMessage;
  #onRejected;
  #ws = null;
  #calls = new Map();
  #attempt = 0;
  #onlineSince = 0;
  #reason = "";
  #retryTimer = 0;
  #heartbeatTimer = 0;
  #onOnline = () => this.reconnectNow();
  // A browser may keep a page in its back/forward cache with the connection open. Closing it
  // removes the user from the room; a page that is shown again reconnects.
  #onPageHide = () => this.#ws?.close(1000);

  // onState({ name, until, reason, attempt }): name is "connecting", "online",
  // "reconnecting" or "offline"; until is the time of the next attempt by performance.now.
  // onRejected(reason) is called when the server does not accept the token. The socket then stops.
  constructor(token, { onState, onMessage, onRejected }) {
    this.#url = socketURL(token);
    this.#onState = onState;
    this.#onMessage = onMessage;
    this.#onRejected = onRejected;
  }

  start() {
    addEventListener("online", this.#onOnline);
    addEventListener("pagehide", this.#onPageHide);
    this.#connect();
  }

  stop() {
    removeEventListener("online", this.#onOnline);
    removeEventListener("pagehide", this.#onPageHide);
    clearTimeout(this.#retryTimer);
    clearTimeout(this.#heartbeatTimer);
    const ws = this.#ws;
    this.#ws = null;
    ws?.close(1000);
    this.#failAllCalls("The connection was closed.");
  }

  reconnectNow() {
    if (!this.#ws) this.#connect();
  }

  get isOpen() {
    return this.#ws?.readyState === WebSocket.OPEN;
  }

  // call sends a message with a correlation ID. reply is a promise. The server does not
  // reply to an event: the caller resolves it when the server publishes its effect.
  call(type, payload) {
    const id = newId();
    const reply = new Promise((resolve, reject) => {
      if (!this.isOpen) {
        reject(new CallError({ code: "CONNECTION_LOST", message: "Not connected." }));
        return;
      }
      const timer = setTimeout(() => this.#failCall(id, timeoutError(type)), CALL_TIMEOUT_MS);
      this.#calls.set(id, { type, resolve, reject, timer });
      this.#send(type, { timestamp: Date.now(), correlationId: id, timeoutMs: CALL_TIMEOUT_MS }, payload);
    });
    return { id, reply };
  }

  // abort asks the server to cancel a call. Its reply is then rejected with CANCELLED, unless the
  // server has replied already.
  abort(id) {
    if (this.#calls.has(id)) this.#send("$ws:abort", { correlationId: id });
  }

  resolve(id, payload) {
    this.#removeCall(id)?.resolve(payload);
  }

  // rejectLatest fails the latest call of a type and returns false if there is none. A
  // custom message in place of an error does not say which call the server rejected.
  rejectLatest(type, error) {
    const id = [...this.#calls].findLast(([, call]) => call.type === type)?.[0];
    return this.#failCall(id, new CallError(error));
  }

  #connect() {
    clearTimeout(this.#heartbeatTimer);
    clearTimeout(this.#retryTimer);
    this.#reportState("connecting");
    const ws = new WebSocket(this.#url);
    const connectTimer = setTimeout(() => ws.close(), CONNECT_TIMEOUT_MS);
    this.#ws = ws;
    this.#onlineSince = 0;
    ws.onopen = () => {
      if (ws === this.#ws) this.#greet();
    };
    ws.onmessage = (event) => {
      clearTimeout(connectTimer);
      if (ws === this.#ws) this.#receive(event.data);
    };
    ws.onclose = (event) => {
      clearTimeout(connectTimer);
      if (ws === this.#ws) this.#handleClose(event.code, event.reason);
    };
  }

  // A server that rejects the connection opens it and closes it at once, so the page is online
  // when the first message arrives: the answer to the greeting. Servers ask only clients that have
  // greeted to go away.
  #greet() {
    this.call("$ws:hello").reply.catch(() => {}); // an error is an answer, too
  }

  #handleOnline() {
    this.#onlineSince = performance.now();
    this.#reportState("online");
  }

  // The server shuts down soon: connect again after the delay, but not while calls have no reply.
  #goAway({ reconnectAfterMs }) {
    clearTimeout(this.#retryTimer);
    this.#retryTimer = setTimeout(() => {
      if (this.#calls.size > 0) return this.#goAway({ reconnectAfterMs: GOAWAY_RECHECK_MS });
      this.#ws.close(1000);
      this.#attempt = 0;
      this.#connect();
    }, reconnectAfterMs);
  }

  // A network can fail without closing the connection, and scripts cannot see WebSocket pings.
  #restartHeartbeat() {
    clearTimeout(this.#heartbeatTimer);
    this.#heartbeatTimer = setTimeout(() => {
      this.call("__heartbeat").reply.catch(() => {}); // every answer proves that the connection works
      this.#heartbeatTimer = setTimeout(() => this.#abandonConnection(), HEARTBEAT_TIMEOUT_MS);
    }, HEARTBEAT_AFTER_MS);
  }

  #abandonConnection() {
    this.#ws.onclose = null;
    this.#ws.close(); // onclose would wait for the server's close frame
    this.#handleClose(1006);
  }

  #handleClose(code, reason = "") {
    clearTimeout(this.#heartbeatTimer);
    clearTimeout(this.#retryTimer);
    const wasOnline = this.#onlineSince > 0;
    // The backoff continues if the server accepts connections and closes them at once.
    if (wasOnline && performance.now() - this.#onlineSince >= STABLE_AFTER_MS) this.#attempt = 0;
    const { message, retryAfterMs } = parseReason(reason);
    this.#reason = message ? sentence(message) : wasOnline ? "The connection was lost." : "The server cannot be reached.";
    this.#ws = null;
    this.#failAllCalls("The connection was lost.");
    if (STOP_CODES.includes(code)) {
      this.#onRejected(this.#reason);
      return;
    }
    const minBackoffMs = retryAfterMs ? MIN_BACKOFF_MS : MIN_BACKOFF_MS_BY_CODE[code] ?? MIN_BACKOFF_MS;
    const backoffMs = Math.random() * Math.min(MAX_BACKOFF_MS, minBackoffMs * 2 ** this.#attempt);
    const delayMs = Math.max(backoffMs, retryAfterMs ?? 0);
    this.#attempt++;
    this.#retryTimer = setTimeout(() => this.#connect(), delayMs);
    this.#reportState(navigator.onLine ? "reconnecting" : "offline", performance.now() + delayMs);
  }

  #send(type, meta, payload) {
    this.#ws.send(JSON.stringify({ type, meta, payload }));
  }

  #receive(data) {
    this.#restartHeartbeat();
    if (!this.#onlineSince) this.#handleOnline();
    const { type, meta = {}, payload = {} } = JSON.parse(data);
    const id = meta.correlationId;
    if (type === "$ws:goaway") return this.#goAway(payload);
    if (type === "RPC_ERROR" && this.#failCall(id, new CallError(payload))) return;
    if (type !== "RPC_ERROR") this.resolve(id, payload);
    this.#onMessage(type, payload, meta);
  }

  #reportState(name, until = 0) {
    this.#onState({ name, until, reason: this.#reason, attempt: this.#attempt });
  }

  #removeCall(id) {
    const call = this.#calls.get(id);
    if (call) clearTimeout(call.timer);
    this.#calls.delete(id);
    return call;
  }

  #failCall(id, error) {
    const call = this.#removeCall(id);
    call?.reject(error);
    return Boolean(call);
  }

  #failAllCalls(message) {
    for (const id of [...this.#calls.keys()]) this.#failCall(id, new CallError({ code: "CONNECTION_LOST", message }));
  }
}

// parseReason returns the error in the reason of a close frame, or {} if the reason is a text.
function parseReason(reason) {
  try {
    return JSON.parse(reason) ?? {};
  } catch {
    return {};
  }
}

function sentence(text) {
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

function timeoutError(type) {
  return new CallError({ code: "TIMEOUT", message: `${type} was not answered within ${CALL_TIMEOUT_MS / 1000} s.` });
}

function socketURL(token) {
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  const query = token ? `?access_token=${encodeURIComponent(token)}` : "";
  return `${scheme}//${location.host}/ws${query}`;
}

// crypto.randomUUID is available only over https and on localhost.
export function newId() {
  return Array.from(crypto.getRandomValues(new Uint32Array(3)), (n) => n.toString(36)).join("-");
}

// A WebSocket that comes back by itself, and calls that are answered or fail.

const FIRST_PAUSE = 300;
const LONGEST_PAUSE = 10_000;
const STABLE_AFTER = 5_000;
const CONNECT_TIMEOUT = 10_000;
const CALL_TIMEOUT = 10_000;
const LONGEST_SILENCE = 25_000;
const PATIENCE = 10_000; // with a server that was asked for a sign of life

const CLOSE_REASONS = {
  1001: "The server went away.",
  1008: "The server closed the connection: it broke a rule.",
  1009: "The server closed the connection: a message was too large.",
  1011: "The server had an internal error.",
  1012: "The server is restarting.",
  1013: "The server asked to come back later.",
};

// What the server answered instead of a reply, or why there was no answer.
export class WireError extends Error {
  constructor({ code = "UNKNOWN", message, details, retryable = false, retryAfterMs } = {}) {
    super(message || code);
    this.code = code;
    this.details = details ?? {};
    this.retryable = retryable;
    this.retryAfterMs = retryAfterMs; // null: no wait can help
  }

  get isRateLimit() {
    return this.code === "RESOURCE_EXHAUSTED" && typeof this.retryAfterMs === "number";
  }

  // The call may have reached the server all the same.
  get isUnknownOutcome() {
    return this.code === "TIMEOUT" || this.code === "CONNECTION_LOST";
  }
}

export class Socket {
  #url;
  #onState;
  #onMessage;
  #ws = null;
  #calls = new Map();
  #attempt = 0;
  #openedAt = 0;
  #reason = "";
  #retry = 0;
  #silence = 0;
  #onNetworkBack = () => this.reconnectNow();
  // A browser may keep a page that was left, connection and all. It is lost and
  // made anew when the page is shown again.
  #onLeave = () => this.#ws?.close(1000);

  // onState({ name, until, reason, attempt }): name is "connecting", "online",
  // "reconnecting" or "offline"; until is on the clock of performance.now.
  constructor(token, { onState, onMessage }) {
    this.#url = socketURL(token);
    this.#onState = onState;
    this.#onMessage = onMessage;
  }

  start() {
    addEventListener("online", this.#onNetworkBack);
    addEventListener("pagehide", this.#onLeave);
    this.#connect();
  }

  stop() {
    removeEventListener("online", this.#onNetworkBack);
    removeEventListener("pagehide", this.#onLeave);
    clearTimeout(this.#retry);
    clearTimeout(this.#silence);
    const ws = this.#ws;
    this.#ws = null;
    ws?.close(1000);
    this.#failCalls("The connection was closed.");
  }

  reconnectNow() {
    if (!this.#ws) this.#connect();
  }

  get isOpen() {
    return this.#ws?.readyState === WebSocket.OPEN;
  }

  // call sends a message that can be matched with its answer. The reply comes
  // as a promise; an event has none, so whoever sees its effect settles it.
  call(type, payload) {
    const id = newId();
    const reply = new Promise((resolve, reject) => {
      if (!this.isOpen) {
        reject(new WireError({ code: "CONNECTION_LOST", message: "Not connected." }));
        return;
      }
      const timer = setTimeout(() => this.#fail(id, timedOut(type)), CALL_TIMEOUT);
      this.#calls.set(id, { type, resolve, reject, timer });
      this.#ws.send(JSON.stringify({ type, meta: { timestamp: Date.now(), correlationId: id }, payload }));
    });
    return { id, reply };
  }

  settle(id, payload) {
    this.#take(id)?.resolve(payload);
  }

  // refuse fails the youngest call of a type. A server that was told to send an
  // event in place of an error does not say which call it refused.
  refuse(type, error) {
    const id = [...this.#calls].findLast(([, call]) => call.type === type)?.[0];
    return this.#fail(id, new WireError(error));
  }

  #connect() {
    clearTimeout(this.#retry);
    this.#report("connecting");
    const ws = new WebSocket(this.#url);
    const impatience = setTimeout(() => ws.close(), CONNECT_TIMEOUT);
    this.#ws = ws;
    this.#openedAt = 0;
    ws.onopen = () => {
      clearTimeout(impatience);
      if (ws === this.#ws) this.#opened();
    };
    ws.onmessage = (event) => {
      if (ws === this.#ws) this.#receive(event.data);
    };
    ws.onclose = (event) => {
      clearTimeout(impatience);
      if (ws === this.#ws) this.#lost(event.code);
    };
  }

  #opened() {
    this.#openedAt = performance.now();
    this.#heard();
    this.#report("online");
  }

  // A network may go away without a word, and a page cannot see pings.
  #heard() {
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => {
      this.call("__heartbeat").reply.catch(() => {}); // any answer will do
      this.#silence = setTimeout(() => this.#giveUp(), PATIENCE);
    }, LONGEST_SILENCE);
  }

  #giveUp() {
    this.#ws.onclose = null;
    this.#ws.close(); // which would wait for the server
    this.#lost(1006);
  }

  #lost(code) {
    clearTimeout(this.#silence);
    const wasOpen = this.#openedAt > 0;
    // A server that accepts and closes at once must not be asked ever faster.
    if (wasOpen && performance.now() - this.#openedAt >= STABLE_AFTER) this.#attempt = 0;
    const pause = Math.random() * Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** this.#attempt);
    this.#attempt++;
    this.#reason = closeReason(code, wasOpen);
    this.#ws = null;
    this.#retry = setTimeout(() => this.#connect(), pause);
    this.#failCalls("The connection was lost.");
    this.#report(navigator.onLine ? "reconnecting" : "offline", performance.now() + pause);
  }

  #receive(data) {
    this.#heard();
    const { type, meta = {}, payload = {} } = JSON.parse(data);
    const id = meta.correlationId;
    if (type === "RPC_ERROR" && this.#fail(id, new WireError(payload))) return;
    if (type !== "RPC_ERROR") this.settle(id, payload);
    this.#onMessage(type, payload);
  }

  #report(name, until = 0) {
    this.#onState({ name, until, reason: this.#reason, attempt: this.#attempt });
  }

  #take(id) {
    const call = this.#calls.get(id);
    if (call) clearTimeout(call.timer);
    this.#calls.delete(id);
    return call;
  }

  #fail(id, error) {
    const call = this.#take(id);
    call?.reject(error);
    return Boolean(call);
  }

  #failCalls(message) {
    for (const id of [...this.#calls.keys()]) this.#fail(id, new WireError({ code: "CONNECTION_LOST", message }));
  }
}

function closeReason(code, wasOpen) {
  if (CLOSE_REASONS[code]) return CLOSE_REASONS[code];
  return wasOpen ? "The connection was lost." : "The server cannot be reached.";
}

function timedOut(type) {
  return new WireError({ code: "TIMEOUT", message: `${type} was not answered within ${CALL_TIMEOUT / 1000} s.` });
}

function socketURL(token) {
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  const query = token ? `?access_token=${encodeURIComponent(token)}` : "";
  return `${scheme}//${location.host}/ws${query}`;
}

// crypto.randomUUID would be shorter, but plain http on another host has none.
function newId() {
  return Array.from(crypto.getRandomValues(new Uint32Array(3)), (n) => n.toString(36)).join("-");
}

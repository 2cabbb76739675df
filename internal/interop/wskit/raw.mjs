// A client of the protocol without a library: what docs/protocol.md specifies, and the WebSocket
// that browsers have.

import { afterEach } from "node:test";
import { WebSocket } from "ws"; // has the interface of a browser's; Node.js before 22 has none

const url = process.env.PENSTOCK_URL;

// A test that fails must not leave a connection open, which would keep the program running.
const open = new Set();
afterEach(() => open.forEach((socket) => socket.close()));

export class Raw {
  #received = [];
  #waiting = [];

  // open connects with a token and optional subprotocols.
  static open(token, protocols = []) {
    const raw = new this();
    return new Promise((resolve, reject) => {
      const socket = new WebSocket(`${url}?access_token=${token}`, protocols);
      socket.binaryType = "arraybuffer";
      raw.socket = socket;
      open.add(socket);
      raw.closed = new Promise((ended) => socket.addEventListener("close", ({ code, reason }) => ended({ code, reason })));
      socket.addEventListener("message", ({ data }) => raw.#arrive(raw.decode(data)));
      socket.addEventListener("open", () => resolve(raw));
      socket.addEventListener("error", reject);
    });
  }

  decode(data) {
    return JSON.parse(data);
  }

  encode(message) {
    return JSON.stringify(message);
  }

  #arrive(message) {
    const i = this.#waiting.findIndex(({ matches }) => matches(message));
    if (i < 0) this.#received.push(message);
    else {
      const [{ resolve, timer }] = this.#waiting.splice(i, 1);
      clearTimeout(timer);
      resolve(message);
    }
  }

  send(type, meta = {}, payload = undefined) {
    this.socket.send(this.encode({ type, meta, payload }));
  }

  // take returns the next message that matches, and leaves the others.
  take(matches) {
    const i = this.#received.findIndex(matches);
    if (i >= 0) return Promise.resolve(this.#received.splice(i, 1)[0]);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`no message matches ${matches}`)), 10_000);
      this.#waiting.push({ matches, resolve, timer });
    });
  }

  next() {
    return this.take(() => true);
  }

  ofType(type) {
    return this.take((message) => message.type === type);
  }

  // call returns the answer to a call: the reply or the error.
  call(correlationId, type, payload, meta = {}) {
    this.send(type, { ...meta, correlationId }, payload);
    return this.answer(correlationId);
  }

  // answer returns the next message with a correlation ID, except an acknowledgment.
  answer(correlationId) {
    return this.take(({ type, meta }) => type !== "$ws:ack" && meta.correlationId === correlationId);
  }

  // rest returns what has arrived and was not taken, once the server has handled the events that were
  // sent before.
  async rest() {
    await this.call("rest", "ASK", { do: "" });
    return this.#received.splice(0);
  }

  close() {
    this.socket.close();
    return this.closed;
  }
}

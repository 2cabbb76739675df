// What the programs share: a WebSocket that checks every frame of the server, and clients that use it.

import assert from "node:assert/strict";
import { after } from "node:test";
import { readUIMessageStream, WebSocketChatTransport } from "ai";
import { WebSocket } from "ws";

export const urls = process.env.PENSTOCK_URLS.split(" ");

// text is that of an answer with n items.
export const text = (n) => [...Array(n).keys()].map((i) => `w${i} `).join("");

let serial = 0;

// newChat returns the ID of a chat that no other test uses.
export const newChat = (user = "ann") => `${user}-${process.pid}-${++serial}`;

export const userMessage = (id = `m${++serial}`, content = "hello") => ({ id, role: "user", parts: [{ type: "text", text: content }] });

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// until waits for a condition.
export async function until(condition, what = String(condition)) {
  for (const began = Date.now(); !condition(); await sleep(5)) {
    assert.ok(Date.now() - began < 30_000, `timeout: ${what}`);
  }
}

// checkNulls fails for a null in an optional field of a chunk.
function checkNulls(chunk) {
  for (const [name, value] of Object.entries(chunk)) {
    assert.ok(value !== null || ["input", "output", "data", "messageMetadata"].includes(name), `${chunk.type}: ${name} is null`);
  }
}

// checkedWebSocket returns a class for the option webSocket of the transport. tamper returns the frames that the client
// receives instead of one. problems receives what is wrong.
function checkedWebSocket({ tamper = (frame) => [frame], problems }) {
  return class {
    static sockets = [];
    static sent = [];
    requests = new Map();

    constructor(url, protocols) {
      this.constructor.sockets.push(this);
      this.ws = new WebSocket(url, protocols);
      this.ws.on("open", () => this.onopen?.({}));
      this.ws.on("error", (error) => this.onerror?.({ error }));
      this.ws.on("close", (code, reason) => this.onclose?.({ code, reason: String(reason) }));
      this.ws.on("message", (data) => {
        for (const frame of tamper(JSON.parse(String(data)))) {
          try {
            this.check(frame);
          } catch (error) {
            problems.push(error);
          }
          this.onmessage?.({ data: JSON.stringify(frame) });
        }
      });
    }

    check({ type, requestId, ...rest }) {
      const request = this.requests.get(requestId);
      assert.ok(request, `a frame ${type} for no request`);
      assert.ok(!request.ended, `a frame ${type} after the end`);
      const members = { start: [], chunk: ["chunk", "sequence"], end: [], error: ["errorText"], "no-active": [] }[type];
      assert.deepEqual(Object.keys(rest).sort(), members);
      switch (type) {
        case "start":
          assert.equal(request.started, undefined, "two starts");
          request.started = true;
          break;
        case "chunk":
          assert.ok(request.started, "a chunk before the start");
          assert.equal(rest.sequence, request.next++, "the sequence");
          checkNulls(rest.chunk);
          break;
        default:
          request.ended = true;
      }
    }

    get readyState() {
      return this.ws.readyState;
    }

    get bufferedAmount() {
      return this.ws.bufferedAmount;
    }

    send(data) {
      const frame = JSON.parse(data);
      this.constructor.sent.push(frame);
      if (frame.type !== "abort") {
        this.requests.set(frame.requestId, { next: 0 });
      }
      this.ws.send(data);
    }

    close(code, reason) {
      this.ws.close(code, reason);
    }

    // cut ends the connection without a close frame.
    cut() {
      this.ws.terminate();
    }
  };
}

const tabs = [];

// The program ends although a test has failed.
after(() => {
  for (const socket of tabs.flatMap((tab) => tab.Socket.sockets)) {
    socket.cut();
  }
});

// A Tab is a page with a transport of its own.
export class Tab {
  problems = [];

  constructor({ user = "ann", node = 0, tamper } = {}) {
    tabs.push(this);
    this.Socket = checkedWebSocket({ tamper, problems: this.problems });
    this.transport = new WebSocketChatTransport({ url: urls[node], params: { user }, webSocket: this.Socket });
  }

  // send sends a message. The result has the chunks that have arrived, and a promise of the last message.
  async send(chatId, body, { message = userMessage(), trigger = "submit-message", abortSignal } = {}) {
    return read(await this.transport.sendMessages({ chatId, messages: [message], trigger, body, abortSignal }));
  }

  // resume returns the same for the run of a chat, or null.
  async resume(chatId, { abortSignal } = {}) {
    const stream = await this.transport.reconnectToStream({ chatId, abortSignal });
    return stream && read(stream);
  }

  cut() {
    this.Socket.sockets.at(-1).cut();
  }

  // close closes the connection, and fails for frames that were wrong.
  close() {
    this.transport.close();
    assert.deepEqual(this.problems, []);
  }
}

// read reads a stream in two ways: as chunks, and as the message that a page shows.
function read(stream) {
  const [first, second] = stream.tee();
  const chunks = [];
  const end = (async () => {
    for await (const chunk of first) {
      chunks.push(chunk);
    }
  })();
  const message = (async () => {
    let last;
    let failure;
    for await (const m of readUIMessageStream({ stream: second, onError: (e) => (failure ??= e), terminateOnError: true })) {
      last = m;
    }
    if (failure) {
      throw failure;
    }
    return last;
  })();
  end.catch(() => {});
  message.catch(() => {});
  return { chunks, end, message };
}

export const textOf = (message) =>
  (message?.parts ?? [])
    .filter((p) => p.type === "text")
    .map((p) => p.text)
    .join("");

// checkAnswer fails unless a stream has a complete answer with n items.
export async function checkAnswer(answer, n) {
  await answer.end;
  const message = await answer.message;
  assert.equal(textOf(message), text(n));
  assert.equal(answer.chunks[0].type, "start");
  assert.equal(answer.chunks.at(-1).type, "finish");
  assert.equal(message.id, answer.chunks[0].messageId);
  return message;
}

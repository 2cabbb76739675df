// When a client falls back from WebSocket to HTTP, and when it returns.

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";

import { createClient, type Client } from "../src/index.ts";
import { Browser, observe } from "./fallback-fixture.ts";
import { welcome } from "./fixture.ts";

let browser: Browser;
let clients: Client[] = [];
beforeEach(() => void (browser = new Browser()));
afterEach(() => {
  clients.forEach((client) => client.close());
  clients = [];
  return browser.restore();
});

const refused = () => new Response(null, { status: 503 });
const answer = (status: number, headers = {}) => new Response(null, { status, headers });
const checks = () => browser.server.all("").length;

/** An attempt that fails. */
async function fail(constructor: any): Promise<void> {
  observe(constructor);
  await browser.advance();
  browser.last.end();
  await browser.advance();
}

/** As many attempts that fail as it takes where WebSocket has never worked. */
async function block(constructor: any): Promise<void> {
  await fail(constructor);
  await fail(constructor);
}

/** An attempt that succeeds, and whose connection is lost later. */
async function works(constructor: any): Promise<void> {
  observe(constructor);
  browser.last.receive();
  await browser.advance(5000);
  browser.last.end();
  await browser.advance();
}

/** The transport that the next socket uses. */
function next(constructor: any): "websocket" | "http" {
  const before = browser.sockets.length;
  const { socket } = observe(constructor);
  socket.onclose = null;
  socket.close();
  return browser.sockets.length > before ? "websocket" : "http";
}

test("a WebSocket that receives a message is used, and nothing is asked", async () => {
  const constructor = browser.fallback();
  const { messages } = observe(constructor, "ws://test/ws", ["bearer.t"]);
  assert.deepEqual([browser.last.url, browser.last.protocols], ["ws://test/ws", ["bearer.t"]]);
  browser.last.open();
  browser.last.receive("{}");
  await browser.advance(60_000);
  assert.deepEqual(messages, ["{}"]);
  assert.deepEqual(browser.reports, ["websocket: connected"]);
  assert.equal(browser.server.requests.length, 0);
});

for (const [reason, attempts, end] of [
  ["refused", 2, () => browser.last.end()],
  ["ended", 2, () => (browser.last.open(), browser.last.end())],
  ["silent", 1, () => browser.last.open()],
] as const)
  test(`WebSocket has never worked, and is ${reason} while HTTP works: HTTP is used after ${attempts}`, async () => {
    const constructor = browser.fallback();
    for (let i = 0; i < attempts; i++) {
      const { closes } = observe(constructor);
      end();
      await browser.advance(5000);
      assert.deepEqual(closes, [{ code: 1006, reason: "" }]);
    }
    const second = observe(constructor, "ws://test/ws?a=b", ["bearer.t"]);
    await browser.advance();
    assert.equal(browser.sockets.length, attempts);
    assert.equal(second.opened, 1);
    assert.deepEqual(browser.server.opening, { protocols: ["bearer.t"], query: "a=b", mode: "stream" });
    assert.deepEqual(browser.reports, [`stream: ${reason}`]);
  });

test("a message just before 5 s is proof, and one that arrives while HTTP is asked, too", async () => {
  const constructor = browser.fallback();
  observe(constructor);
  browser.last.open();
  await browser.advance(4999);
  browser.last.receive();
  await browser.advance(10_000);
  assert.equal(checks(), 0);

  browser.server.fate = () => "lost";
  const { closes } = observe(browser.fallback());
  await browser.advance(5000);
  assert.equal(checks(), 1);
  browser.last.receive();
  browser.server.fate = () => undefined;
  await browser.advance(60_000);
  assert.deepEqual(closes, []);
  assert.equal(next(constructor), "websocket");
});

test("a message that arrives while HTTP is asked does not complete a row of failures", async () => {
  const page = browser.fallback();
  await works(page);
  await fail(page);
  await fail(page);
  observe(page);
  const { last } = browser;
  browser.server.fate = ({ method }) => (method === "GET" ? last.receive() : undefined) as undefined;
  await browser.advance(5000);
  assert.equal(checks(), 3);
  assert.equal(next(page), "websocket");
});

for (const code of [1012, 1013, 4000, 4401, 4429, 4503])
  test(`the close code ${code} proves WebSocket`, async () => {
    const constructor = browser.fallback();
    observe(constructor);
    browser.last.open();
    browser.last.end(code);
    await browser.advance(10_000);
    assert.equal(checks(), 0);
    assert.equal(next(constructor), "websocket");
  });

for (const code of [1000, 1001, 1006, 1011])
  test(`the close code ${code} without a message does not`, async () => {
    const constructor = browser.fallback();
    for (let i = 0; i < 2; i++) {
      observe(constructor);
      browser.last.open();
      browser.last.end(code);
      await browser.advance();
    }
    assert.equal(next(constructor), "http");
  });

test("an answer over HTTP that takes longer than 2 s decides nothing: the network is slow", async () => {
  const page = browser.fallback();
  browser.server.permission = "lost";
  const { closes } = observe(page);
  browser.last.open();
  await browser.advance(6999);
  assert.equal(browser.server.requests[0]!.signal.aborted, false);
  await browser.advance(1);
  assert.equal(browser.server.requests[0]!.signal.aborted, true);
  await browser.advance(60_000);
  assert.deepEqual(closes, []);
  assert.equal(next(page), "websocket");
});

for (const [what, permission] of [
  ["no answer", "failed"],
  ["an answer that never comes", "lost"],
  ["204 without our header", answer(204)],
  ["200 with our header", answer(200, { "Penstock-Fallback": "1" })],
  ["503 of our server", answer(503, { "Penstock-Fallback": "1" })],
  ["429", answer(429)],
  ["a page of a proxy", answer(403)],
] as const)
  test(`${what} is an outage: the client keeps to WebSocket`, async () => {
    browser.server.permission = permission;
    const constructor = browser.fallback();
    for (let i = 0; i < 5; i++) {
      await fail(constructor);
      await browser.advance(10_000);
    }
    assert.equal(checks(), 5);
    assert.equal(next(constructor), "websocket");
    assert.deepEqual(browser.reports, []);
  });

test("the header 0 forbids to fall back, which is reported", async () => {
  browser.server.permission = answer(204, { "Penstock-Fallback": "0" });
  const constructor = browser.fallback();
  for (let i = 0; i < 3; i++) await fail(constructor);
  assert.equal(next(constructor), "websocket");
  assert.deepEqual(browser.reports, ["blocked: refused"]);
});

test("while the computer is offline, nothing is decided", async () => {
  browser.navigator.onLine = false;
  const constructor = browser.fallback();
  for (let i = 0; i < 5; i++) await fail(constructor);
  assert.equal(checks(), 0);
  assert.equal(next(constructor), "websocket");
});

test("where WebSocket has worked, three failures in a row are needed", async () => {
  const constructor = browser.fallback();
  await works(constructor);
  await fail(constructor);
  await fail(constructor);
  assert.equal(next(constructor), "websocket");
  await works(constructor); // the row begins anew
  await fail(constructor);
  await fail(constructor);
  assert.equal(next(constructor), "websocket");
  await fail(constructor);
  assert.equal(next(constructor), "http");
});

for (const [what, first] of [["on the first visit", () => undefined], ["where WebSocket has worked", works]] as const)
  test(`a proxy that kills WebSockets after the first messages, ${what}: HTTP after the third one`, async () => {
    const page = browser.fallback();
    await first(page);
    for (let i = 0; i < 3; i++) {
      assert.equal(next(page), "websocket");
      observe(page);
      browser.last.open();
      browser.last.receive();
      await browser.advance(4000);
      browser.last.receive();
      browser.last.end();
      await browser.advance();
    }
    assert.equal(next(page), "http");
  });

test("a connection that the server closes soon after its first message proves WebSocket", async () => {
  const page = browser.fallback();
  for (let i = 0; i < 5; i++) {
    observe(page);
    browser.last.receive();
    browser.last.end(1000);
    await browser.advance();
  }
  assert.equal(checks(), 0);
});

test("a connection that the client closes soon after its first message decides nothing", async () => {
  const page = browser.fallback();
  for (let i = 0; i < 5; i++) {
    const { socket } = observe(page);
    browser.last.receive();
    socket.onclose = null;
    socket.close();
    browser.last.end();
    await browser.advance();
  }
  assert.equal(checks(), 0);
  assert.equal(browser.clock.timers, 0);
});

test("the end of an outage: an attempt that fails just before HTTP works is not enough", async () => {
  const page = browser.fallback();
  await fail(page);
  assert.equal(next(page), "websocket");
  await works(page);
  await fail(page);
  await fail(page);
  assert.equal(next(page), "websocket");
});

test("an outage ends the row", async () => {
  const constructor = browser.fallback();
  await works(constructor);
  for (const permission of [undefined, undefined, "failed", undefined, undefined] as const) {
    browser.server.permission = permission;
    await fail(constructor);
  }
  assert.equal(next(constructor), "websocket");
  await fail(constructor);
  assert.equal(next(constructor), "http");
});

test("a deploy: servers refuse, then some answer HTTP, and nobody falls back", async () => {
  const constructor = browser.fallback();
  const { closes } = observe(constructor);
  browser.last.receive();
  browser.last.end(1012);
  assert.deepEqual(closes, [{ code: 1012, reason: "" }]);
  for (const permission of [refused(), "failed", undefined, undefined] as const) {
    browser.server.permission = permission;
    await fail(constructor);
  }
  assert.equal(next(constructor), "websocket");
});

test("an attempt that fails after 5 s and ends later counts once", async () => {
  const constructor = browser.fallback();
  await works(constructor);
  observe(constructor);
  await browser.advance(5000);
  browser.last.end();
  await browser.advance();
  assert.equal(checks(), 1);
  await fail(constructor);
  assert.equal(next(constructor), "websocket");
  await fail(constructor);
  assert.equal(next(constructor), "http");
});

test("an attempt that the client ends decides nothing", async () => {
  const constructor = browser.fallback();
  const { socket } = observe(constructor);
  socket.onclose = null; // as the client does before it closes
  socket.close();
  await browser.advance(5000);
  browser.last.end();
  await browser.advance(10_000);
  assert.equal(checks(), 0);
});

test("attempts that run while another one decides end at once", async () => {
  const constructor = browser.fallback();
  await fail(browser.fallback({ url: "http://other/ws/http" })); // another server
  browser.server.permission = "lost";
  observe(constructor);
  await browser.advance(5000);
  browser.server.permission = undefined;
  const { closes } = observe(constructor);
  browser.last.open();
  await browser.advance(5000);
  assert.deepEqual(closes, [{ code: 1006, reason: "" }]);
});

test("the hint is for ten minutes, and for the next page", async () => {
  await block(browser.fallback());
  assert.equal(next(browser.fallback()), "http");
  await browser.advance(599_000);
  assert.equal(next(browser.fallback()), "http");
  assert.equal(next(browser.fallback({ url: "http://other/ws/http" })), "websocket");
  const page = browser.fallback();
  observe(page);
  await browser.advance(999);
  assert.deepEqual(browser.reports, ["stream: remembered"]);
  await browser.advance(2);
  assert.equal(next(page), "websocket");
  assert.equal(next(browser.fallback()), "websocket");
});

test("without a storage, the hint is for the page", async () => {
  Object.defineProperty(globalThis, "sessionStorage", { configurable: true, get: () => { throw new DOMException("denied", "SecurityError"); } });
  const page = browser.fallback();
  await block(page);
  assert.equal(next(page), "http");
  assert.equal(next(browser.fallback()), "websocket");
});

for (const [what, erase] of [
  ["online", () => browser.fire("online")],
  ["another network", () => void (browser.navigator.connection = { type: "cellular" })],
] as const)
  test(`${what} erases the hint, and what is known of WebSocket`, async () => {
    browser.navigator.connection = { type: "wifi" };
    const page = browser.fallback();
    await works(page);
    for (let i = 0; i < 3; i++) await fail(page);
    assert.equal(next(page), "http");
    erase();
    assert.equal(next(page), "websocket");
    assert.equal(next(browser.fallback()), "websocket");
    await block(page); // WebSocket has not worked on this network
    assert.equal(next(page), "http");
  });

test("the network of a new page does not erase the hint", async () => {
  browser.navigator.connection = { type: "wifi" };
  await block(browser.fallback());
  assert.equal(next(browser.fallback()), "http");
});

test("a WebSocket that was late erases the hint", async () => {
  const page = browser.fallback();
  observe(page);
  const { last } = browser;
  await block(page);
  assert.equal(next(page), "http");
  last.receive();
  await browser.advance(5000);
  assert.equal(next(page), "websocket");
});

test("a refused handshake over HTTP says nothing about WebSocket", async () => {
  const page = browser.fallback();
  await block(page);
  const { closes } = observe(page);
  browser.server.fate = ({ exchange }) =>
    exchange === "open" ? new Response(':\n\nevent: close\nid: 1\ndata: {"code":4401,"reason":"{}"}\n\n', { headers: { "Penstock-Fallback": "1" } }) : undefined;
  await browser.advance();
  assert.deepEqual(closes, [{ code: 4401, reason: "{}" }]);
  assert.deepEqual(browser.reports, []);
  assert.equal(next(page), "websocket");
  await fail(page);
  assert.equal(next(page), "http");
});

test("binary messages stay with WebSocket", async () => {
  const page = browser.fallback();
  for (let i = 0; i < 3; i++) {
    observe(page, "ws://test/ws", ["penstock.v1.cbor", "bearer.t"]);
    browser.last.end();
    await browser.advance();
  }
  assert.equal(browser.sockets.length, 3);
  assert.deepEqual(browser.reports, ["blocked: refused"]);
});

for (const [what, permission, blocked] of [
  ["404", answer(404), true],
  ["204 of the server part", undefined, true],
  ["502", answer(502), false],
  ["429", answer(429), false],
  ["no answer", "failed", false],
] as const)
  test(`mode measure, ${what}: ${blocked ? "reports that HTTP would be used" : "an outage"}`, async () => {
    browser.server.permission = permission;
    const page = browser.fallback({ mode: "measure" });
    await fail(page);
    await fail(page);
    assert.equal(next(page), "websocket");
    assert.deepEqual(browser.reports, blocked ? ["blocked: refused"] : []);
    assert.equal(browser.server.requests[0]!.mode, "no-cors");
    observe(page);
    browser.last.receive();
    await browser.advance();
    assert.deepEqual(browser.reports.at(-1), blocked ? "websocket: returned" : "websocket: connected");
  });

test("mode measure does not obey a hint", async () => {
  await block(browser.fallback());
  assert.equal(next(browser.fallback({ mode: "measure" })), "websocket");
});

for (const mode of ["stream", "poll"] as const)
  test(`mode ${mode} uses HTTP only`, async () => {
    const page = browser.fallback({ mode });
    const { opened } = observe(page);
    assert.equal(opened, 0);
    await browser.advance(600_000);
    assert.equal(browser.server.opening.mode, mode);
    assert.equal(browser.sockets.length, 0); // no probes either
    assert.deepEqual(browser.reports, [`${mode}: option`]);
  });

/** Falls back and stays connected. */
async function blocked() {
  const page = browser.fallback();
  await block(page);
  const observed = observe(page);
  await browser.advance();
  assert.equal(observed.opened, 1);
  browser.sockets.length = 0;
  return { page, ...observed };
}

const GOAWAY = { type: "$ws:goaway", meta: {}, payload: { reconnectAfterMs: 0 } };

test("a probe that receives two messages apart returns the client to WebSocket", async () => {
  const { page, messages } = await blocked();
  await browser.advance(60_000);
  assert.equal(browser.sockets.length, 1);
  assert.deepEqual([browser.last.url, browser.last.protocols], ["ws://test/ws/http", []]);
  browser.last.open();
  browser.last.receive("0");
  await browser.advance(3000);
  assert.deepEqual(messages, []);
  browser.last.receive("1");
  assert.deepEqual(messages.map((m) => JSON.parse(m)), [GOAWAY]);
  assert.equal(next(page), "websocket");
  assert.equal(next(browser.fallback()), "websocket");
  await browser.advance(10_000);
  assert.equal(browser.sockets[0]!.closed, true);
});

test("probes that fail are repeated after 1, 2, 4, ... 30 minutes", async () => {
  const { messages } = await blocked();
  const minutes: number[] = [];
  let before = browser.clock.now();
  for (let i = 0; i < 8; i++) {
    const { length } = browser.sockets;
    while (browser.sockets.length === length) await browser.clock.advance(1000);
    minutes.push(Math.round((browser.clock.now() - before) / 60_000));
    before = browser.clock.now();
    browser.last.open();
    if (i % 2) browser.last.receive("0"), browser.last.receive("1"); // together: a proxy has held them
    else browser.last.end();
  }
  assert.deepEqual(minutes, [1, 2, 4, 8, 16, 30, 30, 30]);
  assert.deepEqual(messages, []);
});

for (const [what, wake] of [
  ["online", () => browser.fire("online")],
  ["the page becomes visible", () => (browser.show("hidden"), browser.show("visible"))],
] as const)
  test(`${what}: probes soon, but at most once a minute`, async () => {
    await blocked();
    await browser.advance(60_000);
    browser.last.end();
    await browser.advance(61_000);
    assert.equal(browser.sockets.length, 1);
    wake();
    await browser.advance(6000);
    assert.equal(browser.sockets.length, 2);
    wake();
    await browser.advance(6000);
    assert.equal(browser.sockets.length, 2);
  });

test("a page that is shown again and again does not delay a probe", async () => {
  await blocked();
  await browser.advance(30_000); // a wake is heard from now on
  browser.sockets.length = 0;
  for (let i = 0; i < 60 && !browser.sockets.length; i++) {
    browser.show(i % 2 ? "visible" : "hidden");
    await browser.advance(500);
  }
  assert.equal(browser.sockets.length, 1);
});

test("probes end with the connections, and the timer of one does not keep a program running", async () => {
  const { socket } = await blocked();
  socket.close(1000);
  await browser.advance(600_000);
  assert.equal(browser.sockets.length, 0);
  assert.equal(browser.clock.timers, 0);
});

function connect(options: object = {}) {
  const client = createClient({ url: "ws://test/ws", clock: browser.clock, page: null, random: () => 0.5, webSocket: browser.fallback(), ...options });
  clients.push(client);
  return client;
}

async function refuseTwice(): Promise<void> {
  for (let i = 0; i < 2; i++) {
    await browser.advance();
    browser.last.end();
    await browser.advance(1000);
  }
}

/** Answers the greeting of a client on HTTP. */
async function greetOverHTTP(more = {}): Promise<void> {
  await browser.advance();
  const { meta } = JSON.parse(browser.server.received.at(-1)!);
  browser.server.send({ type: "$ws:welcome", meta: { timestamp: 1, correlationId: meta.correlationId }, payload: { ...welcome, pingIntervalMs: 600_000, ...more } });
  await browser.advance();
}

test("the first visit behind a proxy that kills WebSockets: a client is connected within two seconds", async () => {
  const client = connect();
  const connected = client.connect();
  for (let i = 0; i < 2; i++) {
    await browser.advance(400);
    browser.last.open();
    browser.last.end();
  }
  await browser.advance(1000);
  await greetOverHTTP();
  await connected;
  assert.equal(client.state, "open");
});

test("the first visit behind a proxy that swallows messages: a client is connected within 6 s", async () => {
  const client = connect();
  void client.connect();
  await browser.advance();
  browser.last.open();
  await browser.advance(6000);
  await greetOverHTTP();
  assert.equal(client.state, "open");
});

/** A client on HTTP, and what a probe that succeeds makes it open. */
async function returning(options: object, more: object) {
  const client = connect(options);
  const states: string[] = [];
  client.onState((state) => states.push(state));
  void client.connect();
  await refuseTwice();
  await greetOverHTTP(more);
  const call = client.call("ASK", { n: 1 }, { timeoutMs: 600_000 });
  await browser.advance(60_000);
  const probe = browser.last;
  probe.receive("0");
  await browser.advance(3000);
  probe.receive("1");
  await browser.advance();
  const { last } = browser;
  assert.notEqual(last, probe);
  last.open();
  last.answer("$ws:welcome", welcome);
  await browser.advance();
  const sent = () => browser.server.received.map((message) => JSON.parse(message));
  const answer = (type: string, correlationId: string, payload: object) => browser.server.send({ type, meta: { timestamp: 1, correlationId }, payload });
  return { client, states, call, last, sent, answer };
}

test("the return to WebSocket continues the session, and loses no call", async () => {
  const { client, states, call, last, sent, answer } = await returning({ resume: true }, { session: { token: "S", resumeWithinMs: 60_000 } });
  // The client asks on the old connection whether all has arrived.
  assert.deepEqual(sent().map(({ type }) => type), ["$ws:hello", "ASK", "$ws:hello"]);
  answer("$ws:welcome", sent()[2].meta.correlationId, welcome);
  await browser.advance();
  assert.equal(last.sent.at(-1).type, "$ws:resume");
  last.answer("$ws:resumed", { memberId: "c1", topics: [] });
  assert.equal(client.connection!.resumed, true);
  answer("ANSWER", sent()[1].meta.correlationId, { n: 1 });
  await browser.advance();
  assert.deepEqual(await call, { n: 1 });
  assert.deepEqual(browser.server.closes, [{ code: 1000 }]);
  assert.deepEqual(browser.reports, ["stream: refused", "websocket: returned"]);
  assert.deepEqual(states, ["connecting", "waiting", "connecting", "waiting", "connecting", "open", "open"]);
});

test("without a session, the return to WebSocket is a new connection, and the old one answers its calls", async () => {
  const { client, call, sent, answer } = await returning({}, {});
  assert.equal(client.connection!.resumed, false);
  void client.call("ASK", { n: 2 });
  await browser.advance();
  assert.deepEqual(sent().map(({ type }) => type), ["$ws:hello", "ASK"]);
  assert.deepEqual(browser.server.closes, []);
  answer("ANSWER", sent()[1].meta.correlationId, { n: 1 });
  await browser.advance();
  assert.deepEqual(await call, { n: 1 });
  assert.deepEqual(browser.server.closes, [{ code: 1000 }]);
});

test("a return that fails leaves the client on HTTP", async () => {
  const client = connect();
  void client.connect();
  await refuseTwice();
  await greetOverHTTP();
  await browser.advance(60_000);
  browser.last.receive("0");
  await browser.advance(3000);
  browser.last.receive("1");
  await browser.advance();
  for (let i = 0; i < 3; i++) {
    assert.equal(client.state, "open");
    assert.equal(browser.server.opened, 1);
    browser.last.end();
    await browser.advance();
    await browser.advance(4500); // less than an attempt may last
  }
  assert.equal(browser.server.opened, 2); // the third failure in a row: another connection over HTTP
});

test("the server part is not there any more: the client tries WebSocket again", async () => {
  const page = browser.fallback();
  await block(page);
  browser.server.fate = ({ exchange }) => (exchange === "open" ? answer(404) : undefined);
  const { closes } = observe(page);
  await browser.advance();
  assert.deepEqual(closes, [{ code: 1006, reason: "" }]);
  assert.equal(next(page), "websocket");
});

// A connection over HTTP: its requests, the events in their responses, and what happens when either is lost.

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";

import { readEvents } from "../src/fallback-http.ts";
import { Browser, observe, type Exchange, type Observed } from "./fallback-fixture.ts";

let browser: Browser;
beforeEach(() => void (browser = new Browser()));
afterEach(() => browser.restore());

const answer = (status: number, headers = {}) => new Response(null, { status, headers: { "Penstock-Fallback": "1", ...headers } });
const stranger = (status: number) => new Response("<html>", { status });

/** A connection that is open. */
async function open(mode: "stream" | "poll" = "stream"): Promise<Observed> {
  const observed = observe(browser.fallback({ mode }), "ws://test/ws?a=b&c", ["bearer.t", "other"]);
  await browser.advance();
  assert.equal(observed.opened, 1);
  return observed;
}

const ups = () => browser.server.all("up");
const heads = () => ups().map(({ head: { secret, ...head } }) => head);

test("opening, messages in both directions, and the close frame of the server", async () => {
  const { socket, messages, closes } = await open();
  assert.deepEqual(browser.server.opening, { protocols: ["bearer.t", "other"], query: "a=b&c", mode: "stream" });
  const [opening] = browser.server.requests;
  assert.equal(opening!.method, "POST");
  socket.send('{"n":1}');
  socket.send('{"n":2}');
  await browser.advance();
  assert.deepEqual(heads(), [{ seq: 1, ack: 0 }]);
  assert.deepEqual(browser.server.received, ['{"n":1}', '{"n":2}']);
  browser.server.send("A");
  browser.server.send("B");
  await browser.advance();
  assert.deepEqual(messages, ["A", "B"]);
  browser.server.close(4401, "expired");
  await browser.advance();
  assert.deepEqual(closes, [{ code: 4401, reason: "expired" }]);
  assert.equal(browser.clock.timers, 0);
});

test("messages that wait for a request share the next one, and bufferedAmount has their bytes until they are received", async () => {
  const { socket } = await open();
  browser.server.fate = () => "lost";
  socket.send("é");
  await browser.advance();
  for (let i = 0; i < 5; i++) socket.send(`${i}`);
  assert.equal(socket.bufferedAmount, 7);
  await browser.advance(9000);
  assert.equal(ups().length, 1);
  browser.server.fate = () => undefined;
  await browser.advance(2000);
  assert.deepEqual(browser.server.received, ["é", "0", "1", "2", "3", "4"]);
  assert.equal(socket.bufferedAmount, 0);
});

test("a request has at most 64,000 bytes of messages, or one message", async () => {
  const { socket } = await open();
  const sizes = [30_000, 30_000, 30_000, 200_000, 10, 64_000 - 10];
  for (const size of sizes) socket.send("x".repeat(size));
  socket.send("é".repeat(33_000));
  await browser.advance();
  assert.deepEqual(ups().map(({ messages }) => messages.map(({ length }) => length)), [[30_000, 30_000], [30_000], [200_000], [10, 63_990], [33_000]]);
  assert.equal(socket.bufferedAmount, 0);
});

for (const [what, fate] of [
  ["is lost", "lost"],
  ["is handled, but its answer is lost", "unanswered"],
  ["fails", "failed"],
  ["is answered by a proxy", stranger(502)],
  ["is answered by a proxy with 204", new Response(null, { status: 204 })],
  ["is answered with 500", answer(500)],
] as const)
  test(`a request that ${what} is repeated with the same bytes, and handled once`, async () => {
    const { socket } = await open();
    let times = 2;
    browser.server.fate = ({ messages }) => (messages.length && times-- > 0 ? fate : undefined);
    socket.send("A");
    await browser.advance();
    socket.send("B");
    browser.server.send("meanwhile");
    await browser.advance(25_000);
    assert.deepEqual(browser.server.received, ["A", "B"]);
    const [first, second, third] = ups().filter(({ messages }) => messages[0] === "A");
    assert.equal(first!.body, second!.body);
    assert.equal(first!.body, third!.body);
  });

for (const status of [429, 503])
  test(`${status} with Retry-After delays the same request`, async () => {
    const { socket } = await open();
    let times = 1;
    browser.server.fate = ({ exchange }) => (exchange === "up" && times-- > 0 ? answer(status, { "Retry-After": "4" }) : undefined);
    socket.send("A");
    await browser.advance(3999);
    assert.equal(ups().length, 1);
    await browser.advance(2);
    assert.deepEqual(browser.server.received, ["A"]);
    assert.equal(ups()[0]!.body, ups()[1]!.body);
  });

test("a request is abandoned after 10 s, and the connection after 30 s without success", async () => {
  const { socket, closes } = await open();
  browser.server.fate = ({ exchange }) => (exchange === "up" ? "lost" : undefined);
  socket.send("A");
  await browser.advance(9999);
  assert.equal(ups()[0]!.signal.aborted, false);
  await browser.advance(2);
  assert.equal(ups()[0]!.signal.aborted, true);
  await browser.advance(25_000);
  assert.deepEqual(closes, [{ code: 1006, reason: "" }]);
  assert.equal(browser.clock.timers, 0);
});

for (const mode of ["stream", "poll"] as const)
  for (const [status, code] of [[400, 1006], [403, 1006], [409, 1006], [413, 1009]] as const)
    test(`${mode}: ${status} ends the connection with ${code}; from a proxy it does not`, async () => {
      const { socket, closes } = await open(mode);
      browser.server.fate = ({ exchange }) => (exchange === "up" ? stranger(status) : undefined);
      socket.send("A");
      await browser.advance();
      assert.deepEqual(closes, []);
      browser.server.fate = ({ exchange }) => (exchange === "up" ? answer(status) : undefined);
      await browser.advance(1000);
      assert.deepEqual(closes, [{ code, reason: "" }]);
      assert.equal(browser.server.stream!.open, false);
      assert.equal(browser.clock.timers, mode === "poll" ? 1 : 0); // that of the server
    });

for (const mode of ["stream", "poll"] as const)
  test(`${mode}: messages that the server refuses because it has closed the connection do not hide its close code`, async () => {
    const { socket, messages, closes } = await open(mode);
    const { server } = browser;
    let late = true; // the response with the last events is slower than that to the messages
    server.fate = ({ exchange }) => (exchange === "up" ? answer(409) : late ? "lost" : undefined);
    server.stream!.end();
    await browser.advance();
    server.send("last words");
    server.close(4401, "expired");
    socket.send("A");
    late = false;
    await browser.advance();
    assert.deepEqual(messages, ["last words"]);
    assert.deepEqual(closes, [{ code: 4401, reason: "expired" }]);
    assert.equal(ups().length, 1);
  });

test("events are acknowledged after 5 s, after 16 KiB, and with messages", async () => {
  const { socket } = await open();
  browser.server.send("A");
  browser.server.ping();
  await browser.advance(4999);
  assert.equal(ups().length, 0);
  await browser.advance(1);
  assert.deepEqual(heads(), [{ ack: 2 }]);
  assert.equal(browser.server.kept, 0);
  browser.server.send("x".repeat(16_384));
  await browser.advance();
  assert.deepEqual(heads().at(-1), { ack: 3 });
  browser.server.send("B");
  await browser.advance();
  socket.send("M");
  await browser.advance(60_000);
  assert.deepEqual(heads().slice(2), [{ seq: 1, ack: 4 }]);
});

test("an acknowledgment does not wait for messages, and has no other beside it", async () => {
  const { socket } = await open();
  browser.server.fate = ({ exchange }) => (exchange === "up" ? "lost" : undefined);
  socket.send("A");
  await browser.advance();
  browser.server.send("x".repeat(20_000));
  await browser.advance();
  browser.server.send("x".repeat(20_000));
  await browser.advance();
  assert.deepEqual(heads(), [{ seq: 1, ack: 0 }, { ack: 1 }]);
  browser.server.fate = () => undefined;
  await browser.advance(10_000);
  await browser.advance(5000);
  assert.equal(browser.server.kept, 0);
});

test("a response that ends is continued, without a gap or a duplicate", async () => {
  const { messages } = await open();
  browser.server.send("A");
  await browser.advance();
  browser.server.stream!.end();
  browser.server.send("B");
  browser.server.send("C");
  await browser.advance();
  assert.deepEqual(messages, ["A", "B", "C"]);
  const [{ head }] = browser.server.all("down") as [Exchange];
  assert.deepEqual(head, { secret: "secret 1", ack: 1, mode: "stream" });
});

test("a response that breaks within an event is continued with it", async () => {
  const { messages } = await open();
  browser.server.stream!.write('id: 1\ndata: "AB');
  await browser.advance();
  browser.server.stream!.cut();
  browser.server.send("AB");
  await browser.advance(1000);
  assert.deepEqual(messages, ["AB"]);
});

test("an event that comes twice is handled once", async () => {
  const { messages } = await open();
  browser.server.send("A");
  browser.server.stream!.write("id: 1\ndata: A\n\n");
  browser.server.send("B");
  await browser.advance();
  assert.deepEqual(messages, ["A", "B"]);
});

test("a gap in the numbers ends the connection", async () => {
  const { messages, closes } = await open();
  browser.server.stream!.write("id: 2\ndata: B\n\nid: 3\ndata: C\n\n");
  await browser.advance();
  assert.deepEqual([messages, closes], [[], [{ code: 1006, reason: "" }]]);
});

test("events of unknown types are ignored, but counted", async () => {
  const { messages } = await open();
  browser.server.stream!.write("event: news\ndata: x\n\n: comment\n\nretry: 5\n\n");
  browser.server.ping();
  browser.server.send("A");
  await browser.advance(5000);
  assert.deepEqual(messages, ["A"]);
  assert.deepEqual(heads(), [{ ack: 2 }]);
});

test("a stream that breaks at once is not asked for without a pause", async () => {
  await open();
  browser.server.fate = ({ exchange }) => (exchange === "down" ? "failed" : undefined);
  browser.server.stream!.cut();
  await browser.advance(10_000);
  assert.ok(browser.server.all("down").length <= 11, `${browser.server.all("down").length} requests`);
});

test("409 to a request for events ends the connection", async () => {
  const { closes } = await open();
  browser.server.forget();
  browser.server.stream!.end();
  await browser.advance(1000);
  assert.deepEqual(closes, [{ code: 1006, reason: "" }]);
});

test("an outage of up to 30 s is survived, a longer one is not", async () => {
  const { messages, closes } = await open();
  await browser.advance(20_000);
  browser.server.stream!.write(":\n\n");
  await browser.advance();
  browser.server.fate = () => "failed";
  browser.server.stream!.cut();
  await browser.advance(25_000);
  browser.server.fate = () => undefined;
  browser.server.send("A");
  await browser.advance(2000);
  assert.deepEqual([messages, closes], [["A"], []]);
  browser.server.fate = () => "failed";
  browser.server.stream!.cut();
  await browser.advance(33_000);
  assert.deepEqual(closes, [{ code: 1006, reason: "" }]);
});

test("a stream without a comment for 25 s is replaced", async () => {
  const { messages } = await open();
  await browser.advance(24_999);
  assert.equal(browser.server.all("down").length, 0);
  const dead = browser.server.stream!;
  await browser.advance(1001);
  assert.equal(browser.server.all("down").length, 1);
  assert.equal(dead.open, false);
  browser.server.send("A");
  await browser.advance();
  assert.deepEqual(messages, ["A"]);
});

test("a stream that is mute for 3 s becomes polls, also on the next page", async () => {
  browser.server.buffers = true;
  const page = browser.fallback();
  for (let i = 0; i < 2; i++) {
    observe(page);
    browser.last.end();
    await browser.advance();
  }
  const { opened, messages, socket } = observe(page);
  await browser.advance(2999);
  assert.equal(browser.server.opened, 1);
  await browser.advance(1);
  assert.deepEqual([opened, browser.server.opened, browser.server.opening.mode], [0, 2, "poll"]);
  browser.server.send("A");
  await browser.advance();
  browser.server.send("B");
  await browser.advance();
  assert.deepEqual(messages, ["A", "B"]);
  assert.deepEqual(browser.reports, ["poll: refused"]);
  socket.onclose = null;
  socket.close();
  observe(browser.fallback());
  await browser.advance();
  assert.equal(browser.server.opening.mode, "poll");
});

test("a stream that becomes mute later is replaced by polls", async () => {
  const { messages } = await open();
  browser.server.buffers = true;
  browser.server.stream!.end();
  await browser.advance(4000);
  browser.server.send("A");
  await browser.advance();
  assert.deepEqual(messages, ["A"]);
  assert.deepEqual(browser.server.all("down").map(({ head }) => head.mode), ["stream", "poll", "poll"]);
  assert.deepEqual(browser.reports, ["stream: option", "poll: option"]);
});

test("501 says that the server cannot stream", async () => {
  browser.server.fate = ({ exchange, head }) => (exchange === "open" && head.mode === "stream" ? answer(501) : undefined);
  await open();
  assert.equal(browser.server.opening.mode, "poll");
});

test("polls: each is asked for at once, and acknowledges what the one before had", async () => {
  const { messages, closes } = await open("poll");
  for (const message of ["A", "B", "C"]) {
    browser.server.send(message);
    await browser.advance();
  }
  assert.deepEqual(messages, ["A", "B", "C"]);
  assert.deepEqual(browser.server.all("down").map(({ head }) => [head.ack, head.mode]), [[0, "poll"], [1, "poll"], [2, "poll"], [3, "poll"]]);
  await browser.advance(120_000); // without messages
  assert.deepEqual(closes, []);
  assert.ok(browser.server.all("down").length < 10);
  assert.equal(ups().length, 0);
});

test("a poll that is never answered is abandoned after 35 s", async () => {
  const { messages } = await open("poll");
  browser.server.send("A"); // in the poll that waits
  await browser.advance();
  browser.server.fate = ({ exchange }) => (exchange === "down" ? "unanswered" : undefined);
  browser.server.send("B");
  await browser.advance();
  browser.server.fate = () => undefined;
  await browser.advance(35_000);
  await browser.advance();
  assert.deepEqual(messages, ["A", "B"]);
});

for (const [what, fate, code, retryAfterMs] of [
  ["404", stranger(404), 1006, undefined],
  ["no answer", "failed", 1006, undefined],
  ["400", answer(400), 1006, undefined],
  ["503 with Retry-After", answer(503, { "Retry-After": "7" }), 1013, 7000],
  ["429 without", answer(429), 1013, 0],
] as const)
  test(`${what} to the request that opens: ${code}`, async () => {
    browser.server.fate = () => fate;
    const { opened, closes } = observe(browser.fallback({ mode: "poll" }));
    await browser.advance();
    assert.equal(opened, 0);
    assert.equal(closes[0]!.code, code);
    if (code === 1013) assert.deepEqual(JSON.parse(closes[0]!.reason), { code: "UNAVAILABLE", retryable: true, retryAfterMs });
    assert.equal(browser.clock.timers, 0);
  });

test("close with a code sends what waits before it", async () => {
  const { socket, closes } = await open();
  browser.server.fate = ({ exchange }) => (exchange === "up" ? "lost" : undefined);
  socket.send("A");
  await browser.advance();
  socket.send("B");
  socket.close(1000, "bye");
  socket.close(1000);
  await browser.advance();
  browser.server.fate = () => undefined;
  await browser.advance(11_000);
  assert.deepEqual(browser.server.received, ["A", "B"]);
  assert.deepEqual(browser.server.closes, [{ code: 1000, reason: "bye" }]);
  assert.equal(ups().at(-1)!.keepalive, true);
  assert.equal(ups()[0]!.keepalive, false);
  assert.equal(closes.length, 1);
  assert.equal(browser.clock.timers, 0);
});

test("close without a code says so at once, beside what is on its way, and outlives the page", async () => {
  const { socket } = await open();
  browser.server.fate = ({ messages }) => (messages.length ? "lost" : undefined);
  socket.send("A");
  await browser.advance();
  socket.send("B");
  socket.close();
  assert.deepEqual(browser.server.closes, [{}]); // before the page is gone
  assert.deepEqual(heads().at(-1), { ack: 0, close: {} });
  assert.equal(ups().at(-1)!.keepalive, true);
  assert.equal(ups()[0]!.signal.aborted, true);
  assert.equal(browser.server.stream!.open, false);
  await browser.advance(60_000);
  assert.deepEqual(browser.server.received, []);
  assert.equal(browser.clock.timers, 0);
});

test("a large goodbye does not ask to outlive the page, which browsers would refuse", async () => {
  const { socket } = await open();
  socket.send("x".repeat(64_000));
  socket.close(1000);
  await browser.advance();
  assert.deepEqual(ups().map(({ keepalive }) => keepalive), [false]);
  assert.deepEqual(browser.server.closes, [{ code: 1000 }]);
});

test("close while the connection opens ends the request", async () => {
  browser.server.fate = () => "lost";
  const { socket } = observe(browser.fallback({ mode: "stream" }));
  await browser.advance();
  socket.onclose = null;
  socket.close(1000);
  await browser.advance(10_000);
  assert.equal(browser.server.requests.length, 1);
  assert.equal(browser.server.requests[0]!.signal.aborted, true);
});

test("close before the code is loaded opens nothing", async () => {
  observe(browser.fallback({ mode: "stream" })).socket.close(1000);
  await browser.advance(10_000);
  assert.equal(browser.server.requests.length, 0);
});

test("a hidden page over HTTP/1.1 polls and leaves its connection to others; shown again, it streams", async () => {
  const { socket, messages, closes } = await open();
  socket.send("so that the protocol is known");
  await browser.advance();
  browser.nextHopProtocol = "http/1.1";
  const stream = browser.server.stream!;
  browser.show("hidden");
  await browser.advance();
  assert.equal(stream.open, false);
  const { head } = browser.server.all("down").at(-1)!;
  assert.deepEqual([head.mode, head.waitMs], ["poll", 0]);
  assert.equal(browser.server.stream!.open, false);
  browser.server.send("A");
  await browser.advance(60_000);
  assert.deepEqual([messages, closes], [["A"], []]);
  const polls = browser.server.all("down").length;
  assert.ok(polls >= 12 && polls <= 16, `${polls} polls`); // the server waits 10 s for the next one
  browser.show("visible");
  await browser.advance();
  assert.equal(browser.server.all("down").at(-1)!.head.mode, "stream");
  browser.server.send("B");
  await browser.advance();
  assert.deepEqual(messages, ["A", "B"]);
  assert.deepEqual(browser.reports, ["stream: option"]);
});

test("a hidden page over HTTP/2 keeps its stream", async () => {
  await open();
  const { stream } = browser.server;
  browser.show("hidden");
  await browser.advance();
  assert.equal(browser.server.stream, stream);
  assert.equal(stream!.open, true);
});

/** Numbers from 0 to 1 without 1, the same for each seed. */
function random(seed: number): () => number {
  return () => {
    seed = (seed * 1_664_525 + 1_013_904_223) >>> 0;
    return seed / 2 ** 32;
  };
}

test("events are the same whatever the borders of the parts are", async () => {
  const message = JSON.stringify({ text: "é𝄞\u2028event: close\u2029id: 9", empty: "" });
  const text = `:\n\n: comment\r\n\r\nevent: open\ndata: {}\n\nid: 1\r\ndata: ${message}\r\n\r\nid: 2\ndata:x\n\nevent: ping\nid: 3\ndata:\n\nid: 4\ndata: cut off`;
  const expected = [{}, {}, { event: "open", data: "{}" }, { id: "1", data: message }, { id: "2", data: "x" }, { event: "ping", id: "3", data: "" }];
  const bytes = new TextEncoder().encode(text);
  for (let seed = 0; seed < 200; seed++) {
    const next = random(seed);
    const longest = 1 + Math.floor(next() * 20);
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        for (let at = 0; at < bytes.length; ) controller.enqueue(bytes.slice(at, (at += 1 + Math.floor(next() * longest))));
        controller.close();
      },
    });
    const events: object[] = [];
    await readEvents(new Response(body), (event) => events.push(event));
    assert.deepEqual(events, expected, `seed ${seed}`);
  }
});

for (const mode of ["stream", "poll"] as const)
  test(`${mode}: every message arrives once and in order, whatever is lost`, async () => {
    for (let seed = 1; seed <= 12; seed++) {
      await browser.restore();
      browser = new Browser();
      const next = random(seed);
      const { socket, messages, closes } = await open(mode);
      const fates = ["lost", "unanswered", "failed", stranger(502), answer(503)] as const;
      browser.server.fate = ({ messages: batch }) => (next() < 0.15 && (batch.length || next() < 0.5) ? fates[Math.floor(next() * fates.length)] : undefined);
      let sent = 0;
      let pushed = 0;
      for (let step = 0; step < 100; step++) {
        const what = next();
        if (what < 0.4) socket.send(`${sent++}`);
        else if (what < 0.8) browser.server.send(`${pushed++}`);
        else if (what < 0.9) browser.server.stream?.cut();
        else await browser.clock.advance(Math.floor(next() * 2000));
        if (next() < 0.3) await browser.advance();
      }
      browser.server.fate = () => undefined;
      browser.server.stream?.cut();
      await browser.advance(12_000);
      await browser.advance(40_000);
      if (closes.length) continue; // lost for 30 s: rare, and never silent
      const numbers = (count: number) => Array.from({ length: count }, (_, i) => `${i}`);
      assert.deepEqual(browser.server.received, numbers(sent), `seed ${seed}`);
      assert.deepEqual(messages, numbers(pushed), `seed ${seed}`);
      socket.close();
    }
  });

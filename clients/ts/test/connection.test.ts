import assert from "node:assert/strict";
import { test } from "node:test";

import { connected, createFixture, outcome, settled, welcome, type Fixture } from "./fixture.ts";

test("rule 6: creating a client opens nothing", async () => {
  const f = createFixture();
  await f.clock.advance(60_000);
  assert.equal(f.sockets.length, 0);
  assert.equal(f.clock.timers, 0);
  assert.equal(f.page.listeners, 0);
  assert.equal(f.client.state, "idle");
});

test("rule 7: connect twice opens one socket; connect, close, connect works", async () => {
  const f = createFixture();
  const both = [f.client.connect(), f.client.connect()];
  const socket = await f.greet();
  await Promise.all(both);
  assert.equal(f.sockets.length, 1);
  assert.equal(socket.url, "ws://test/ws");
  f.client.close();
  assert.equal(f.client.state, "closed");
  void f.client.connect();
  await f.greet();
  assert.equal(f.client.state, "open");
  assert.equal(f.sockets.length, 2);
});

test("the client is open after the answer to its greeting, not after the handshake", async () => {
  const f = createFixture();
  const call = f.client.call("ASK", {});
  await settled();
  f.socket.open();
  assert.equal(f.client.state, "connecting");
  assert.deepEqual(f.socket.sent.map((s) => s.type), ["$ws:hello"]);
  f.socket.answer(f.socket.last("$ws:hello"), "$ws:welcome", welcome);
  assert.equal(f.client.state, "open");
  assert.deepEqual(f.socket.sent.map((s) => s.type), ["$ws:hello", "ASK"]);
  f.socket.answer(f.socket.last("ASK"), "ANSWER", { n: 1 });
  assert.deepEqual(await call, { n: 1 });
});

test("a server that does not know the greeting is greeted as well", async () => {
  const f = createFixture();
  const connecting = f.client.connect();
  await settled();
  f.socket.open();
  f.socket.reject(f.socket.last("$ws:hello"), "UNIMPLEMENTED");
  await connecting;
  assert.equal(f.client.state, "open");
  await f.clock.advance(24_000);
  assert.deepEqual(f.socket.sent.map((s) => s.type), ["$ws:hello"]); // no heartbeat before 25 s of silence
  await f.clock.advance(2000);
  assert.deepEqual(f.socket.sent.map((s) => s.type), ["$ws:hello", "__heartbeat"]);
});

test("rule 1: a late event of an old socket has no effect", async () => {
  const f = await connected();
  const { onclose, onmessage } = f.first;
  f.first.end(1006);
  await f.clock.advance(1000);
  await f.greet();
  onclose?.({ code: 1006, reason: "" });
  onmessage?.({ data: "{}" });
  assert.equal(f.first.onclose, null);
  assert.equal(f.sockets.length, 2);
  assert.equal(f.client.state, "open");
});

test("rule 2: a token that arrives after close opens nothing", async () => {
  let resolve!: (token: string) => void;
  const f = createFixture({ token: () => new Promise((r) => (resolve = r)) });
  void f.client.connect();
  await settled();
  f.client.close();
  resolve("late");
  await f.clock.advance(60_000);
  assert.equal(f.sockets.length, 0);
});

test("rule 3: an attempt ends after 10 s, the token included", async () => {
  const signals: (AbortSignal | undefined)[] = [];
  const f = createFixture({
    token: ({ signal }) => {
      signals.push(signal);
      return new Promise(() => {});
    },
  });
  void f.client.connect();
  await f.clock.advance(10_000);
  assert.equal(f.client.state, "waiting");
  assert.equal(signals[0]!.aborted, true);
  await f.clock.advance(1_000);
  assert.equal(signals.length, 2);
});

test("rule 3: a socket that does not open is given up after 10 s", async () => {
  const f = createFixture();
  void f.client.connect();
  await f.clock.advance(10_000);
  assert.ok(f.sockets[0]!.closedWith);
  assert.equal(f.client.state, "waiting");
});

test("rule 4: a socket that is closed while it connects has an error handler", async () => {
  const f = createFixture();
  void f.client.connect();
  await settled();
  f.client.close();
  assert.equal(typeof f.socket.onerror, "function");
  assert.equal(f.socket.onclose, null);
});

test("rule 5: the reason of a close frame is the error of the state", async () => {
  const f = createFixture();
  let info: any;
  f.client.onState((_, i) => (info = i));
  void f.client.connect();
  await settled();
  f.socket.open();
  f.socket.end(4429, { code: "RESOURCE_EXHAUSTED", retryAfterMs: 5000, message: "too many connections" });
  assert.equal(info.error.code, "RESOURCE_EXHAUSTED");
  assert.equal(info.error.retryAfterMs, 5000);
  assert.equal(info.closeCode, 4429);
  assert.ok(info.retryAt >= f.clock.now() + 5000);
});

test("rule 8: delays are random up to 0.5, 1, 2, ... 20 s, and at least 0.1 s", async () => {
  const f = createFixture({ random: () => 0.999 });
  const delays: number[] = [];
  f.client.onState((state, { retryAt }) => state === "waiting" && delays.push(Math.round(retryAt! - f.clock.now())));
  void f.client.connect();
  for (let i = 0; i < 8; i++) {
    await settled();
    f.socket.end(1006);
    await f.clock.advance(delays.at(-1)! + 1);
  }
  assert.deepEqual(delays, [600, 1099, 2098, 4096, 8092, 16084, 20080, 20080]);
});

test("rule 9: a server that accepts and closes at once does not end the backoff", async () => {
  const f = createFixture({ random: () => 0.999 });
  const delays: number[] = [];
  f.client.onState((state, { retryAt }) => state === "waiting" && delays.push(Math.round(retryAt! - f.clock.now())));
  void f.client.connect();
  for (let i = 0; i < 3; i++) {
    await f.greet();
    f.socket.end(1006);
    await f.clock.advance(3_000);
  }
  assert.deepEqual(delays, [600, 1099, 2098]);
});

test("rule 9: a connection of 5 s ends the backoff", async () => {
  const f = createFixture({ random: () => 0.999 });
  const delays: number[] = [];
  f.client.onState((state, { retryAt }) => state === "waiting" && delays.push(Math.round(retryAt! - f.clock.now())));
  void f.client.connect();
  for (let i = 0; i < 3; i++) {
    await f.greet();
    await f.clock.advance(5_000);
    f.socket.end(1006);
    await f.clock.advance(1_000);
  }
  assert.deepEqual(delays, [600, 600, 600]);
});

for (const [code, reason, from, to] of [
  [1000, "", 100, 600],
  [1001, "", 100, 600],
  [1005, "", 100, 600],
  [1006, "", 100, 600],
  [1008, "", 100, 600],
  [1009, { code: "RESOURCE_EXHAUSTED", retryAfterMs: null, message: "message is too big" }, 100, 600],
  [1011, "", 100, 600],
  [1012, "", 100, 10_600],
  [1012, { code: "UNAVAILABLE", retryAfterMs: 812 }, 912, 1412],
  [1013, "", 100, 5_100],
  [1013, { code: "RESOURCE_EXHAUSTED", retryAfterMs: 1250 }, 1350, 1850],
  [4429, { code: "RESOURCE_EXHAUSTED", retryAfterMs: 5000 }, 5100, 5600],
  [4503, { code: "UNAVAILABLE", retryAfterMs: 100 }, 200, 700],
  [4503, "text", 100, 10_600],
  [4400, "", 100, 600],
  [4999, "", 100, 600],
] as const) {
  test(`rules 10 and 50: after ${code} ${JSON.stringify(reason)} the client returns after ${from} to ${to} ms`, async () => {
    for (const [random, want] of [
      [0, from],
      [0.99999999, to],
    ] as const) {
      const f = await connected({ random: () => random });
      let retryAt = 0;
      f.client.onState((_, i) => (retryAt = i.retryAt ?? 0));
      f.first.end(code, reason);
      assert.equal(Math.round(retryAt - f.clock.now()), want);
    }
  });
}

test("rule 10: the random time after a restart is not repeated", async () => {
  const f = await connected({ random: () => 0.999 });
  const delays: number[] = [];
  f.client.onState((state, { retryAt }) => state === "waiting" && delays.push(Math.round(retryAt! - f.clock.now())));
  f.first.end(1012);
  await f.clock.advance(11_000);
  f.socket.end(1012);
  assert.deepEqual(delays, [10_590, 1099]);
});

for (const [code, stops] of [
  [4429, true],
  [4503, true],
  [4711, true],
  [1013, false],
  [1009, false],
] as const) {
  test(`retryAfterMs null with ${code} ${stops ? "stops the client" : "says nothing about connections"}`, async () => {
    const f = await connected();
    f.first.end(code, { code: "FAILED_PRECONDITION", retryAfterMs: null });
    assert.equal(f.client.state, stops ? "closed" : "waiting");
  });
}

test("a negative retryAfterMs does not shorten the backoff", async () => {
  const f = createFixture();
  void f.client.connect();
  for (let attempts = 1; attempts <= 5; attempts++) {
    await settled();
    assert.equal(f.sockets.length, attempts);
    f.socket.end(1013, { code: "UNAVAILABLE", retryable: true, retryAfterMs: -3_600_000 });
    await f.clock.advance(100);
    assert.equal(f.sockets.length, attempts);
    while (f.sockets.length === attempts) await f.clock.advance(1_000);
  }
});

test("a page that wakes up obeys the delay that the server demands", async () => {
  const f = await connected();
  f.first.end(4503, { code: "UNAVAILABLE", retryAfterMs: 5_000 });
  await f.clock.advance(2_000);
  f.page.fire("online");
  await f.clock.advance(2_999);
  assert.equal(f.sockets.length, 1);
  await f.clock.advance(1);
  assert.equal(f.sockets.length, 2, "without the backoff");
});

test("offline ends an attempt, and a connection that does not answer", async () => {
  const f = createFixture();
  void f.client.connect();
  await settled();
  f.page.fire("offline");
  assert.equal(f.client.state, "waiting");
  f.page.fire("online");
  await f.clock.advance(1_000);
  await f.greet();
  f.page.fire("offline");
  assert.equal(f.socket.sent.at(-1)!.type, "__heartbeat");
  await f.clock.advance(3_000);
  assert.equal(f.client.state, "waiting");
});

test("a wrong URL, and no WebSocket, stop the client at once", async () => {
  for (const [options, text] of [
    [{ url: "no url", webSocket: URL as any }, /Invalid URL/],
    [{ webSocket: undefined as any }, /WebSocket is not defined/],
  ] as const) {
    const { WebSocket: saved } = globalThis;
    if (!options.webSocket) delete (globalThis as any).WebSocket;
    const f = createFixture(options);
    const { error } = (await outcome(f.client.connect()))!;
    (globalThis as any).WebSocket = saved;
    assert.equal(error.code, "FAILED_PRECONDITION");
    assert.match(error.message, text);
    assert.equal(f.client.state, "closed");
    assert.equal(f.clock.timers, 0);
  }
});

test("a refresh whose token request hangs ends after its time, and the next one asks again", async () => {
  const signals: AbortSignal[] = [];
  const f = await connected({
    token: ({ signal }) => {
      signals.push(signal);
      return signals.length === 2 ? new Promise(() => {}) : "t";
    },
  });
  const refresh = outcome(f.client.authenticate());
  await f.clock.advance(24_000);
  f.first.receive("NOTE");
  await f.clock.advance(6_000);
  assert.equal((await refresh) ?? (await outcome(f.client.authenticate())), undefined);
  assert.equal(signals[1]!.aborted, true);
  await settled();
  f.first.answer(f.first.last("$ws:auth"), "$ws:authenticated", {});
  assert.equal(signals.length, 3);
});

test("after close no timer stays, and everything that waits has ended", async () => {
  let hangs = false;
  const f = await connected({ token: () => (hangs ? new Promise(() => {}) : "t") });
  hangs = true;
  f.first.receive("$ws:identity-expiring", { expiresInMs: 600_000 });
  f.client.subscribe("busy");
  f.first.reject(f.first.last("$ws:subscribe"), "RESOURCE_EXHAUSTED", { retryable: true, retryAfterMs: 60_000 });
  const waits = [f.client.authenticate(), f.client.call("ASK"), f.client.sendWithAck("SAY")].map(outcome);
  f.client.close();
  assert.equal(f.clock.timers, 0);
  assert.deepEqual((await Promise.all(waits)).map((o) => o?.error?.code), ["UNAVAILABLE", "ABORTED", "ABORTED"]);
  const ends: string[] = [];
  f.client.subscribe("room/go", { onEnd: (error) => ends.push(error.code) });
  f.client.subscribe("room/go");
  assert.deepEqual(ends, [], "not before subscribe has returned");
  await settled();
  assert.deepEqual(ends, ["UNAVAILABLE"]);
  assert.deepEqual(f.client.inspect().topics.map(({ topic }) => topic), ["busy"], "what is subscribed again on the next connection");
  assert.deepEqual(f.errors.map((error: any) => error.code), ["UNAVAILABLE"], "without onEnd");
});

test("log receives what the client passes on and sends", async () => {
  const events: string[] = [];
  const f = await connected({ log: (event, ...details) => events.push([event, ...details].filter((d) => typeof d === "string").join(" ")) });
  void f.client.sendWithAck("SAY");
  f.first.receive("SAID", {});
  assert.deepEqual(events.map((e) => e.replace(/ \S+-\d+e?$/, "")), ["$state connecting", "$sent $ws:hello", "$state open", "$sent SAY", "SAID"]);
});

for (const code of [1002, 1003, 1007]) {
  test(`rule 50: ${code} twice in a row stops the client`, async () => {
    const f = await connected();
    f.first.end(code);
    assert.equal(f.client.state, "waiting");
    await f.clock.advance(2_000);
    (await f.greet()).end(code);
    assert.equal(f.client.state, "closed");
  });
}

test("rule 50: 4403 stops the client and rejects what waits", async () => {
  const f = createFixture();
  const call = f.client.call("ASK", {});
  await settled();
  f.socket.open();
  f.socket.end(4403, { code: "PERMISSION_DENIED", message: "no" });
  assert.equal(f.client.state, "closed");
  assert.equal((await outcome(call))?.error.code, "PERMISSION_DENIED");
  assert.equal(f.clock.timers, 0);
});

test("rule 50: the application stops the client after codes of its own", async () => {
  const f = await connected({ stopOn: (code) => code === 4800 });
  f.first.end(4800, "kicked");
  assert.equal(f.client.state, "closed");
});

test("rule 46: 4401 asks for a fresh token once, and then stops the client", async () => {
  const asked: boolean[] = [];
  const f = createFixture({
    token: ({ expired }) => {
      asked.push(expired);
      return "t" + asked.length;
    },
  });
  const connecting = f.client.connect();
  await settled();
  assert.deepEqual(f.socket.protocols, ["bearer.t1"]);
  f.socket.open();
  f.socket.end(4401, { code: "UNAUTHENTICATED", message: "log in first" });
  await f.clock.advance(1_000);
  assert.deepEqual(f.socket.protocols, ["bearer.t2"]);
  f.socket.open();
  f.socket.end(4401, { code: "UNAUTHENTICATED", message: "log in first" });
  assert.deepEqual(asked, [false, true]);
  assert.equal(f.client.state, "closed");
  assert.equal((await outcome(connecting))?.error.code, "UNAUTHENTICATED");
});

test("rule 45: a token request that fails is a failed attempt", async () => {
  let fails = 2;
  const f = createFixture({
    token: () => {
      if (fails-- > 0) throw new Error("the token server is away");
      return "t";
    },
  });
  void f.client.connect();
  await f.clock.advance(3_000);
  await f.greet();
  assert.equal(f.client.state, "open");
  assert.equal(f.errors.length, 2);
});

test("the token is sent as a subprotocol, and not in the URL", async () => {
  const f = createFixture({ token: () => "a/b+c=", protocols: ["app.v1"], url: () => "ws://test/ws?x=1" });
  void f.client.connect();
  await settled();
  assert.deepEqual([f.socket.url, f.socket.protocols], ["ws://test/ws?x=1", ["app.v1", "bearer.a%2Fb%2Bc%3D"]]);
});

test("rule 47: the identity is refreshed after the warning, in the connection", async () => {
  let n = 0;
  const f = await connected({ token: () => "t" + ++n });
  f.first.receive("$ws:identity-expiring", { expiresInMs: 60_000 });
  await f.clock.advance(14_000);
  assert.equal(n, 1);
  await f.clock.advance(2_000);
  assert.deepEqual(f.first.last("$ws:auth").payload, { token: "t2" });
  f.first.answer(f.first.last("$ws:auth"), "$ws:authenticated", {});
  await settled();
  const [one, two] = [f.client.authenticate(), f.client.authenticate()];
  await settled();
  f.first.answer(f.first.last("$ws:auth"), "$ws:authenticated", {});
  await Promise.all([one, two]);
  assert.equal(n, 3, "one token request at a time");
});

test("goaway: the new connection is open before the old one closes", async () => {
  const f = await connected();
  const call = f.client.call("SLOW", {});
  f.first.receive("$ws:goaway", { reconnectAfterMs: 800 });
  await f.clock.advance(799);
  assert.equal(f.sockets.length, 1);
  const during = f.client.call("ASK", {});
  await f.clock.advance(1);
  assert.equal(f.client.state, "open");
  const second = await f.greet();
  assert.equal(f.sockets.length, 2);
  assert.equal(f.first.closedWith, undefined, "its calls have no answers");
  f.first.answer(f.first.last("SLOW"), "DONE", 1);
  f.first.answer(f.first.last("ASK"), "DONE", 2);
  assert.deepEqual([await call, await during], [1, 2]);
  assert.deepEqual(f.first.closedWith, { code: 1000 });
  void f.client.call("NEXT", {});
  assert.ok(second.last("NEXT"));
  assert.deepEqual(f.states, ["connecting", "open", "open"]);
});

test("goaway on every connection is followed with backoff", async () => {
  const f = await connected();
  const delays: number[] = [];
  for (let n = 1; n <= 5; n++) {
    const start = f.clock.now();
    f.socket.receive("$ws:goaway", { reconnectAfterMs: n === 3 ? -60_000 : 0 });
    while (f.sockets.length === n) await f.clock.advance(50);
    delays.push(f.clock.now() - start);
    await f.greet();
    if (n === 4) await f.clock.advance(5_000);
  }
  assert.deepEqual(delays, [50, 1_100, 2_100, 4_100, 50]);
});

test("goaway: messages of the old connection end when the new one is open", async () => {
  const f = await connected();
  const notes: unknown[] = [];
  f.client.on("NOTE", (p) => notes.push(p));
  void f.client.call("SLOW", {});
  f.first.receive("$ws:goaway", { reconnectAfterMs: 10 });
  await f.clock.advance(10);
  f.first.receive("NOTE", 1);
  await f.greet();
  f.first.receive("NOTE", 2);
  f.socket.receive("NOTE", 2);
  assert.deepEqual(notes, [1, 2]);
});

test("goaway: the old connection is used while the new one cannot be opened", async () => {
  const f = await connected();
  f.first.receive("$ws:goaway", { reconnectAfterMs: 10 });
  await f.clock.advance(10);
  f.socket.end(1006);
  const call = f.client.call("ASK", {});
  f.first.answer(f.first.last("ASK"), "ANSWER", 1);
  assert.equal(await call, 1);
  assert.equal(f.client.state, "open");
  await f.clock.advance(1_000);
  await f.greet();
  assert.deepEqual(f.first.closedWith, { code: 1000 });
});

test("rule 49: close ends a connection that was replaced, too", async () => {
  const f = await connected();
  const call = f.client.call("SLOW", {});
  f.first.receive("$ws:goaway", { reconnectAfterMs: 10 });
  await f.clock.advance(10);
  await f.greet();
  f.client.close();
  assert.ok(f.first.closedWith);
  assert.equal((await outcome(call))?.error.code, "ABORTED");
  assert.equal(f.clock.timers, 0);
});

test("rule 12: a heartbeat is sent after silence only", async () => {
  const f = await connected();
  await f.clock.advance(20_000);
  f.first.receive("NOTE", {});
  await f.clock.advance(24_999);
  assert.equal(f.first.all("__heartbeat").length, 0);
  await f.clock.advance(1);
  assert.equal(f.first.all("__heartbeat").length, 1);
  f.first.receive("__heartbeat_ack");
  await f.clock.advance(12_000);
  assert.equal(f.client.state, "open");
});

test("rule 15: a missed probe ends the connection without its close event", async () => {
  const f = await connected();
  const call = f.client.call("ASK", {}, { timeoutMs: 100_000 });
  await f.clock.advance(25_000 + 10_000);
  assert.equal(f.client.state, "waiting");
  assert.ok(f.first.closedWith);
  assert.equal(f.first.onclose, null);
  assert.equal((await outcome(call))?.error.code, "ABORTED");
});

test("rule 13: after a suspension the client probes again before it gives up", async () => {
  const f = await connected();
  await f.clock.advance(25_000);
  assert.equal(f.first.all("__heartbeat").length, 1);
  f.clock.sleep(600_000);
  await f.clock.advance(0);
  assert.equal(f.client.state, "open");
  assert.equal(f.first.all("__heartbeat").length, 2);
  f.first.receive("__heartbeat_ack");
  await f.clock.advance(11_000);
  assert.equal(f.client.state, "open");
});

test("rule 14: waking probes with a deadline of 3 s", async () => {
  const f = await connected();
  f.page.fire("resume");
  assert.equal(f.first.all("__heartbeat").length, 1);
  await f.clock.advance(3_000);
  assert.equal(f.client.state, "waiting");
});

test("rule 14: waking does not delay the end of an unanswered heartbeat", async () => {
  for (const event of ["visibilitychange", "offline"]) {
    const f = await connected();
    f.page.fire(event);
    for (let i = 0; i < 3; i++) {
      await f.clock.advance(999);
      f.page.fire(event);
    }
    assert.equal(f.client.state, "open", event);
    await f.clock.advance(3);
    assert.equal(f.client.state, "waiting", event);
    assert.equal(f.first.all("__heartbeat").length, 1);
  }
  const late = await connected();
  await late.clock.advance(25_000);
  late.page.fire("resume");
  assert.equal(late.first.all("__heartbeat").length, 2);
  await late.clock.advance(3_000);
  assert.equal(late.client.state, "waiting", "waking shortens it");
});

test("rule 11: online starts an attempt at once, at most one per second", async () => {
  const f = await connected({ random: () => 0.999 });
  f.first.end(1012);
  await f.clock.advance(2_000);
  f.page.fire("online");
  f.page.fire("pageshow");
  await f.clock.advance(0);
  assert.equal(f.sockets.length, 2);
  f.socket.end(1006);
  f.page.fire("online");
  await f.clock.advance(500);
  assert.equal(f.sockets.length, 2);
  await f.clock.advance(500);
  assert.equal(f.sockets.length, 3);
});

test("rules 52 and 53: pagehide closes the socket, pageshow and visibilitychange bring it back", async () => {
  const f = await connected();
  f.page.fire("pagehide");
  assert.deepEqual(f.first.closedWith, { code: undefined });
  assert.equal(f.client.state, "paused");
  await f.clock.advance(100_000);
  assert.equal(f.sockets.length, 1);
  f.page.document.visibilityState = "hidden";
  f.page.fire("visibilitychange");
  await f.clock.advance(0);
  assert.equal(f.sockets.length, 1);
  f.page.document.visibilityState = "visible";
  f.page.fire("visibilitychange");
  await f.clock.advance(0);
  await f.greet();
  assert.equal(f.client.state, "open");
});

test("rule 49: close in onError, after a token request that failed, is for good", async () => {
  let asked = 0;
  const token = () => {
    asked++;
    throw new Error("signed out");
  };
  const f = createFixture({ token });
  f.client.onError(() => f.client.close());
  void f.client.connect();
  await f.clock.advance(60_000);
  assert.equal(asked, 1);
  assert.equal(f.client.state, "closed");
});

test("rule 49: close in onState is for good", async () => {
  for (const at of ["connecting", "open", "waiting", "paused"]) {
    const f = createFixture();
    f.client.onState((state) => state === at && f.client.close());
    void f.client.connect();
    await settled();
    if (at !== "connecting") await f.greet();
    if (at === "waiting") f.socket.end(1006);
    if (at === "paused") f.page.fire("pagehide");
    await f.clock.advance(60_000);
    assert.deepEqual(f.states.slice(-2), [at, "closed"], at);
    assert.equal(f.clock.timers, 0);
  }
});

test("rule 49: close when the signal of a served call is aborted is for good", async () => {
  for (const lose of [(f: Fixture) => f.socket.end(1006), (f: Fixture) => f.page.fire("pagehide")]) {
    const f = await connected();
    f.client.handle("QUESTION", "ANSWER", (_, { signal }) => new Promise(() => (signal.onabort = () => f.client.close())));
    f.first.receive("QUESTION", {}, { correlationId: "$ws:1" });
    lose(f);
    await f.clock.advance(60_000);
    assert.equal(f.client.state, "closed");
    assert.equal(f.sockets.length, 1);
  }
});

test("rule 49: close leaves no timer and no listener, and works twice", async () => {
  const f = await connected();
  const sent = outcome(f.client.call("ASK", {}));
  f.client.close();
  f.client.close();
  assert.deepEqual(f.first.closedWith, { code: 1000 });
  assert.equal(f.clock.timers, 0);
  assert.equal(f.page.listeners, 0);
  assert.equal((await sent)?.error.code, "ABORTED");
  assert.equal((await outcome(f.client.call("ASK", {})))?.error.code, "UNAVAILABLE");
  assert.equal(f.client.state, "closed");
});

test("rule 58: messages are read as strings, and a malformed one is reported", async () => {
  const f = await connected();
  assert.equal(f.first.binaryType, "arraybuffer");
  f.first.onmessage!({ data: "{" });
  assert.equal(f.errors.length, 1);
  assert.equal(f.client.state, "open");
});

test("rule 60: timers and listeners are equal before and after 1,000 reconnections", async () => {
  const f = await connected();
  f.client.subscribe("room/go");
  f.first.answer(f.first.last("$ws:subscribe"), "$ws:subscribed", { topic: "room/go" });
  const before = [f.clock.timers, f.page.listeners];
  for (let i = 0; i < 1_000; i++) {
    void f.client.call("ASK", {});
    f.socket.end(1006);
    await f.clock.advance(20_100);
    const socket = await f.greet();
    socket.answer(socket.last("$ws:subscribe"), "$ws:subscribed", { topic: "room/go" });
    await f.clock.advance(5_000);
  }
  assert.deepEqual([f.clock.timers, f.page.listeners], before);
});

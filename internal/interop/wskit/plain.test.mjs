// A client of ws-kit, which knows no extension of the protocol, meets everything that a server
// can send to it. Every frame must match the strict schemas of @ws-kit/zod.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ConnectionClosedError, StateError, TimeoutError, ValidationError } from "./client.mjs";
import { connect, rejection } from "./plain.mjs";
import { Ask, Closing, Costly, Do, Empty, Large, Unknown } from "./schemas.mjs";

test("events and direct sends", async () => {
  const c = connect("ann");
  assert.ok(c.send(Do, { what: "send" }));
  assert.ok(c.send(Do, { what: "send" }, { meta: { clientId: "x" }, correlationId: "e1" }));
  await c.settled();
  assert.deepEqual(c.seen.notes, ["welcome", "1", "2", "é < \"", "1", "2", "é < \""]);
  await c.finish({ ANSWER: 1 });
});

test("calls", async () => {
  const c = connect("ann");
  const answer = await c.request(Ask, { do: "", n: 5 });
  assert.equal(answer.type, "ANSWER");
  assert.deepEqual(answer.payload, { n: 5 });
  assert.deepEqual(Object.keys(answer.meta), ["timestamp", "correlationId"]);
  const done = await c.request(Empty, undefined);
  assert.ok(!("payload" in done));
  await c.request(Ask, { do: "", n: 6 }, { correlationId: 'é "<', meta: { timestamp: 1 } });
  await c.finish({ ANSWER: 2, EMPTY_DONE: 1 });
});

test("binary messages are read as text", async () => {
  const c = connect("ann");
  await c.opened;
  c.sendText(Buffer.from(JSON.stringify({ type: "DO", payload: { what: "fail" } })));
  await c.settled();
  assert.deepEqual(c.seen.errors.map(({ code }) => code), ["UNAVAILABLE"]);
  await c.finish({ ANSWER: 1 });
});

test("a reply of another type", async () => {
  const c = connect("ann");
  await assert.rejects(c.request(Ask, { do: "replace" }), new ValidationError("Expected type ANSWER, got NOTE"));
  await c.finish({});
});

test("progress", async () => {
  const c = connect("ann");
  const updates = [];
  await c.request(Ask, { do: "progress" }, { onProgress: (update) => updates.push(update) });
  assert.deepEqual(updates, [{ percent: 50 }, "half", 1.5, null, []]);
  await c.finish({ "$ws:rpc-progress": 5, ANSWER: 1 });
});

test("many requests before the connection is open", async () => {
  const c = connect("ann");
  const answers = await Promise.all(Array.from({ length: 300 }, (_, n) => c.request(Ask, { do: "", n })));
  assert.deepEqual(answers.map(({ payload }) => payload.n), [...Array(300).keys()]);
  await c.finish({ ANSWER: 300 });
});

test("errors of handlers", async () => {
  const c = connect("ann");
  assert.deepEqual(await rejection(c.request(Ask, { do: "fail" })),
    { code: "UNAVAILABLE", details: { room: "go" }, retryable: true, retryAfterMs: 90 });
  assert.deepEqual(await rejection(c.request(Ask, { do: "panic" })), { code: "INTERNAL", retryable: false });
  const codes = ["UNAUTHENTICATED", "PERMISSION_DENIED", "FAILED_PRECONDITION", "NOT_FOUND", "ALREADY_EXISTS",
    "CANCELLED", "ABORTED", "UNAVAILABLE", "ROOM_FULL"];
  for (const [n, code] of codes.entries()) {
    assert.equal((await rejection(c.request(Ask, { do: "code", n }))).code, code);
  }
  c.send(Do, { what: "fail" });
  await c.settled();
  assert.deepEqual(c.seen.errors.map(({ code }) => code), ["UNAVAILABLE"]);
  await c.finish({ RPC_ERROR: codes.length + 2, ANSWER: 1 });
});

test("rejections by every stage", async () => {
  const c = connect("ann");
  await c.opened;
  const stages = [
    [c.request(Ask, { do: "x".repeat(2000) }),
      { code: "RESOURCE_EXHAUSTED", retryable: false, details: { kind: "payload", observed: 2093, limit: 1000 } }],
    [c.request(Costly, {}),
      { code: "FAILED_PRECONDITION", retryable: false, details: { kind: "rate", observed: 50, limit: 20 } }],
    [c.request(Unknown, {}), { code: "UNIMPLEMENTED", retryable: false }],
    [c.request(Ask, { do: "invalid" }),
      { code: "INVALID_ARGUMENT", retryable: false, details: { field: "do", reason: "must not be invalid" } }],
    [c.request(Ask, { do: "", n: 1.5 }),
      { code: "INVALID_ARGUMENT", retryable: false, details: { field: "n", reason: "must be an integer in range, not 1.5" } }],
  ];
  const rejections = await Promise.all(stages.map(([request]) => rejection(request)));
  assert.deepEqual(rejections, stages.map(([, want]) => want));
  for (const text of ["hello", "{}", '{"type":"NOTE","meta":null}', '{"type":"$ws:unknown"}', '{"type":"ERROR"}']) c.sendText(text);
  c.send(Large, { text: "x".repeat(2000) });
  c.send(Large, { text: "x".repeat(1200) });
  await c.settled();
  assert.deepEqual(c.seen.errors.map(({ code }) => code),
    ["INVALID_ARGUMENT", "INVALID_ARGUMENT", "INVALID_ARGUMENT", "UNIMPLEMENTED", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED"]);
  await c.finish({ RPC_ERROR: stages.length, ANSWER: 1 });
});

test("rate limit", async () => {
  const c = connect("limited");
  const want = { code: "RESOURCE_EXHAUSTED", details: { kind: "rate", observed: 1, limit: 20, reason: "cooldown" }, retryable: true, retryAfterMs: 1250 };
  assert.deepEqual(await rejection(c.request(Ask, { do: "" })), want);
  c.send(Do, { what: "send" });
  c.sendText('{"type":"__heartbeat"}');
  await rejection(c.request(Unknown, {}));
  assert.deepEqual(c.seen.errors.map(({ retryAfterMs }) => retryAfterMs), [1250, 1250]);
  await c.finish({ RPC_ERROR: 2 });
});

test("calls in flight", async () => {
  const c = connect("ann");
  const calls = Array.from({ length: 305 }, () => c.request(Ask, { do: "wait" }));
  c.send(Do, { what: "release", n: 300 });
  const settled = await Promise.allSettled(calls);
  const rejected = settled.filter(({ status }) => status === "rejected").map(({ reason }) => reason);
  assert.equal(rejected.length, 5);
  assert.deepEqual(rejected[0].details, { kind: "in_flight", observed: 301, limit: 300 });
  await c.finish({ ANSWER: 300, RPC_ERROR: 5 });
});

test("the deadline of the server", async () => {
  const c = connect("ann");
  assert.deepEqual(await rejection(c.request(Ask, { do: "wait" })), { code: "DEADLINE_EXCEEDED", retryable: true });
  await c.finish({ RPC_ERROR: 1 });
});

test("requests that the client ends itself", async () => {
  const c = connect("ann");
  await c.opened;
  await assert.rejects(c.request(Ask, { do: "wait" }, { timeoutMs: 10 }), TimeoutError);
  const controller = new AbortController();
  const call = c.request(Ask, { do: "wait" }, { signal: controller.signal });
  controller.abort();
  await assert.rejects(call, StateError);
  c.send(Do, { what: "release", n: 2 });
  while ((c.seen.unhandled.ANSWER ?? 0) < 2) await c.arrival(); // no request waits for them
  await c.finish({ ANSWER: 2 });
});

test("publications", async () => {
  const [ann, bob] = [connect("ann"), connect("bob")];
  await Promise.all([ann.settled(), bob.settled()]);
  for (const what of ["join", "publish", "publish to others", "leave", "publish"]) ann.send(Do, { what });
  await ann.settled();
  await bob.settled();
  assert.deepEqual(ann.seen.notes, ["welcome", "to all"]);
  assert.deepEqual(bob.seen.notes, ["welcome", "to all", "to others", "to all"]);
  bob.send(Do, { what: "send to ann" });
  await bob.settled();
  await ann.settled();
  assert.deepEqual(ann.seen.notes, ["welcome", "to all", "to ann"]);
  await ann.finish({ ANSWER: 3 });
  await bob.finish({ ANSWER: 3 });
});

test("heartbeat", async () => {
  const c = connect("ann");
  c.sendText('{"type":"__heartbeat","meta":{"correlationId":"h1"}}');
  await c.settled();
  await c.finish({ "__heartbeat_ack": 1, ANSWER: 1 });
});

test("a token as a subprotocol", async () => {
  const bearer = connect("ann", { auth: { token: "ann", attach: "protocol" } });
  await bearer.settled();
  assert.equal(bearer.client.protocol, "bearer.ann");
  await bearer.finish({ ANSWER: 1 });
  const app = connect("ann", { protocols: ["app.v1"], auth: { token: "ann", attach: "protocol" } });
  await app.settled();
  assert.equal(app.client.protocol, "app.v1");
  await app.finish({ ANSWER: 1 });
});

test("a limit that closes the connection", async () => {
  const c = connect("ann");
  await c.settled();
  const call = c.request(Ask, { do: "wait" });
  c.send(Closing, {});
  await assert.rejects(call, ConnectionClosedError);
  assert.equal((await c.closed).code, 1013);
  await c.finish({ ANSWER: 1 }, 1);
});

// The last test: the server accepts no connection afterwards.
test("shutdown", async () => {
  const [ann, idle] = [connect("ann"), connect("idle")];
  await Promise.all([ann.settled(), idle.settled()]);
  const call = ann.request(Ask, { do: "wait" });
  ann.send(Do, { what: "shut down" });
  await call;
  const { code, reason } = await ann.closed;
  assert.equal(code, 1012);
  assert.equal(JSON.parse(reason).code, "UNAVAILABLE");
  assert.equal((await idle.closed).code, 1012);
  await ann.finish({ ANSWER: 2 });
  await idle.finish({ ANSWER: 1 });
});

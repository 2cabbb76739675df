// Spans of the client, with a scripted socket.

import assert from "node:assert/strict";
import { afterEach, test } from "node:test";

import { context, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { BasicTracerProvider, InMemorySpanExporter, SamplingDecision, SimpleSpanProcessor, type SpanProcessor } from "@opentelemetry/sdk-trace-base";

import { PenstockError } from "../src/index.ts";
import { traced } from "../src/otel.ts";
import { connected, outcome, settled } from "./fixture.ts";
import { stream } from "../src/streams.ts";

const spans = new InMemorySpanExporter();
const tracer = () => trace.getTracer("test");

/** Installs an SDK whose spans are exported when they end. */
function install(sampled = true): void {
  const sampler = { shouldSample: () => ({ decision: sampled ? SamplingDecision.RECORD_AND_SAMPLED : SamplingDecision.NOT_RECORD }), toString: () => "all or nothing" };
  trace.setGlobalTracerProvider(new BasicTracerProvider({ sampler, spanProcessors: [new SimpleSpanProcessor(spans) as SpanProcessor] }));
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
}

afterEach(() => {
  spans.reset();
  trace.disable();
  context.disable();
});

const TRACE = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT = "00f067aa0ba902b7";

test("without an SDK, nothing is sent", async () => {
  const f = await connected();
  void traced(f.client).call("ASK");
  assert.deepEqual(Object.keys(f.first.last("ASK").meta), ["correlationId", "timeoutMs"]);
});

test("a call that fails has a span with the code, and a rejection that is not awaited ends no process", async () => {
  install();
  const f = await connected();
  const client = traced(f.client);
  for (const [code, expected] of [
    ["NOT_FOUND", "NOT_FOUND"],
    ["UNAVAILABLE", "UNAVAILABLE"],
  ] as const) {
    const answer = client.call("ASK");
    f.first.reject(f.first.last("ASK"), code);
    assert.equal((await outcome(answer))?.error.code, expected);
    const span = spans.getFinishedSpans()[0]!;
    assert.deepEqual(span.attributes, { "rpc.system.name": "penstock", "rpc.method": "ASK", "rpc.response.status_code": expected, "error.type": expected });
    assert.equal(span.status.code, SpanStatusCode.ERROR);
    spans.reset();
  }
  void client.call("ASK", 1n as any);
  await settled();
  assert.equal(spans.getFinishedSpans()[0]!.attributes["error.type"], "INVALID_ARGUMENT");
});

test("the span of a call or event is below the active one, and its context is sent", async () => {
  install();
  const f = await connected();
  const client = traced(f.client);
  await tracer().startActiveSpan("click", async (click) => {
    const called = client.call("ASK", { n: 1 }, { timeoutMs: 1000 });
    const said = client.sendWithAck("SAY");
    const [ask, say] = [f.first.last("ASK"), f.first.last("SAY")];
    assert.equal(ask.meta.timeoutMs, 1000);
    f.first.answer(ask, "ANSWER", { n: 2 });
    f.first.answer(say, "$ws:ack");
    assert.deepEqual(await called, { n: 2 });
    await said;
    await settled();
    for (const [i, sent] of [ask, say].entries()) {
      const span = spans.getFinishedSpans()[i]!;
      assert.equal(span.name, sent.type);
      assert.equal(span.kind, SpanKind.CLIENT);
      assert.equal(span.parentSpanContext?.spanId, click.spanContext().spanId);
      assert.deepEqual(sent.meta, { ...sent.meta, traceparent: `00-${click.spanContext().traceId}-${span.spanContext().spanId}-01` });
      assert.deepEqual(span.attributes, { "rpc.system.name": "penstock", "rpc.method": sent.type, "rpc.response.status_code": "OK" });
    }
  });
});

test("what is not sampled says so, and a long tracestate is left out", async () => {
  install(false);
  const f = await connected();
  const client = traced(f.client);
  void client.call("ASK");
  assert.match((f.first.last("ASK").meta as any).traceparent, /^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/);
  for (const [length, sent] of [[100, true], [600, false]] as const) {
    const traceState: any = { serialize: () => "a=" + "b".repeat(length) };
    const remote = { traceId: TRACE, spanId: PARENT, traceFlags: 0, traceState };
    trace.disable(); // without an SDK, the active span is passed on
    context.with(trace.setSpanContext(context.active(), remote), () => void client.call("ASK"));
    assert.equal("tracestate" in f.first.last("ASK").meta, sent);
  }
});

test("a stream has one span, from when it is sent to its end", async () => {
  install();
  const f = await connected();
  const client = traced(f.client);
  const end = (i: number) => f.first.answer(f.first.all("EXPORT")[i]!, "EXPORTED", {});
  const read = (async () => {
    for await (const _ of stream(client, "EXPORT", {}, { credit: 4 }));
  })();
  await settled();
  const { meta } = f.first.last("EXPORT");
  f.first.answer(f.first.last("EXPORT"), "$ws:rpc-progress", { n: 1 });
  await settled();
  assert.equal(spans.getFinishedSpans().length, 0);
  end(0);
  await read;
  const span = spans.getFinishedSpans()[0]!;
  assert.deepEqual(meta, { ...meta, credit: 4, traceparent: `00-${span.spanContext().traceId}-${span.spanContext().spanId}-01` });

  stream(client, "EXPORT"); // is not read, so it is not sent
  const items = stream(client, "EXPORT");
  items.next().catch(() => {});
  await settled();
  void items.return(undefined);
  const failed = stream(client, "EXPORT").next();
  await settled();
  f.first.reject(f.first.last("EXPORT"), "ABORTED");
  assert.equal((await outcome(failed))?.error.code, "ABORTED");
  await settled();
  const codes = spans.getFinishedSpans().map((s) => s.attributes["rpc.response.status_code"]);
  assert.deepEqual(codes, ["OK", "OK", "ABORTED"]);
});

test("calls of the server have spans below its own, unless its context is invalid", async () => {
  install();
  const f = await connected({ trace: true });
  assert.deepEqual(f.first.last("$ws:hello").payload, { trace: true });
  const client = traced(f.client);
  const off = client.handle("ASK_USER", "ANSWER", async ({ fail }, { timeoutMs, signal }) => {
    await settled();
    tracer().startSpan("query").end();
    if (fail) throw fail === "INTERNAL" ? new Error("secret") : new PenstockError(fail);
    return { timeoutMs, aborted: signal.aborted };
  });
  const ask = async (fail?: string, meta = {}) => {
    spans.reset();
    f.first.receive("ASK_USER", { fail }, { correlationId: "$ws:1", timeoutMs: 9, ...meta });
    await settled();
    await settled();
    return spans.getFinishedSpans();
  };
  const valid = `00-${TRACE}-${PARENT}-01`;
  const [query, span] = await ask(undefined, { traceparent: valid, tracestate: "a=b" });
  assert.deepEqual(f.first.last("ANSWER").payload, { timeoutMs: 9, aborted: false });
  assert.equal(query!.parentSpanContext?.spanId, span!.spanContext().spanId);
  assert.deepEqual([span!.name, span!.kind, span!.spanContext().traceId, span!.parentSpanContext?.spanId], ["ASK_USER", SpanKind.SERVER, TRACE, PARENT]);
  assert.equal(span!.spanContext().traceState?.serialize(), "a=b");
  for (const traceparent of [undefined, 7, "", valid.slice(1), valid + "0", valid.toUpperCase(), `00-${"0".repeat(32)}-${PARENT}-01`, `00-${TRACE}-${"0".repeat(16)}-01`, "x".repeat(1e6)])
    assert.equal((await ask(undefined, { traceparent, tracestate: "x" }))[1]!.parentSpanContext, undefined, `${traceparent}`.slice(0, 60));
  for (const [code, status] of [["INTERNAL", SpanStatusCode.ERROR], ["PERMISSION_DENIED", SpanStatusCode.UNSET]] as const) {
    const failed = (await ask(code))[1]!;
    assert.equal(failed.attributes["error.type"], code);
    assert.equal(failed.status.code, status, code);
  }
  off();
  await ask();
  assert.equal(f.first.last("RPC_ERROR").payload.code, "UNIMPLEMENTED");
});

test("everything else is that of the client", async () => {
  install();
  const f = await connected();
  const client = traced(f.client);
  assert.equal(client.state, "open");
  assert.equal(client.connection?.id, "c1");
  assert.equal(client.subscribe("room/go").topic, "room/go");
  client.close();
  assert.equal(f.client.state, "closed");
  assert.equal((await outcome(client.sendWithAck("SAY")))?.error.code, "UNAVAILABLE");
});

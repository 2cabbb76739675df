// Traces of the client and a Penstock server, whose URL is in PENSTOCK_URL; see internal/interop/tsclient.

import assert from "node:assert/strict";
import { after, test } from "node:test";

import { context, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { WebSocket as NodeWebSocket } from "ws";

import { createClient } from "../src/index.ts";
import { traced } from "../src/otel.ts";
import { serving } from "../src/serving.ts";
import { stream } from "../src/streams.ts";

const spans = new InMemorySpanExporter();
trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] }));
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());

const url = process.env.PENSTOCK_URL!;
const client = traced(createClient({ url, webSocket: NodeWebSocket as any, trace: true, serving }));
after(() => client.close());

interface ServerSpan {
  name: string;
  kind: string;
  traceId: string;
  spanId: string;
  parentId: string;
  links: string[];
}

/** The first span of the server with a name and kind, as soon as it has ended. */
async function serverSpan(name: string, kind: string): Promise<ServerSpan> {
  for (;;) {
    const all: ServerSpan[] = await (await fetch(url.replace(/^ws/, "http") + "/spans")).json();
    const span = all.find((s) => s.name === name && s.kind === kind);
    if (span) return span;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

test("spans of the server have links to those of the client, and no sampling from it", async () => {
  await client.call("ASK", { n: 1 });
  await client.sendWithAck("HIDDEN", { N: 1 });
  let rows = 0;
  for await (const _ of stream(client, "EXPORT", { n: 3 })) rows++;
  assert.equal(rows, 3);
  for (const span of spans.getFinishedSpans()) {
    const { traceId, spanId } = span.spanContext();
    const server = await serverSpan(span.name, "server");
    assert.deepEqual(server.links, [spanId], span.name);
    assert.notEqual(server.traceId, traceId);
    assert.equal(server.parentId, "0000000000000000");
  }
  assert.deepEqual(spans.getFinishedSpans().map((s) => s.name), ["ASK", "HIDDEN", "EXPORT"]);
});

test("a call of the server continues its trace", async () => {
  spans.reset();
  client.handle("CONFIRM", "CONFIRMED", () => ({ yes: true }));
  assert.deepEqual(await client.call("ASK", { do: "confirm", n: 5 }), { n: 5 });
  const confirm = await serverSpan("CONFIRM", "client");
  const served = spans.getFinishedSpans().find((s) => s.name === "CONFIRM")!;
  assert.equal(served.parentSpanContext?.spanId, confirm.spanId);
  assert.equal(served.spanContext().traceId, confirm.traceId);
});

import { context, createTraceState, isSpanContextValid, type Context, type Span, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { PenstockError } from "./index.js";
import { LEFT } from "./streams.js";
import type { CallOptions, Client, ServedContext, TraceContext } from "./index.js";

// The names are those of the semantic conventions, as module otel of the server has them.
const SYSTEM = "rpc.system.name";
const METHOD = "rpc.method";
const STATUS = "rpc.response.status_code";
const ERROR = "error.type";

const MAX_STATE_CHARACTERS = 512; // the server ignores a longer tracestate

const start = (type: string, kind: SpanKind, parent?: Context): Span =>
  trace.getTracer("penstock-client").startSpan(type, { kind, attributes: { [SYSTEM]: "penstock", [METHOD]: type } }, parent);

/** The headers of a span; none if there is no SDK. */
function inject(span: Span): TraceContext {
  const of = span.spanContext();
  if (!isSpanContextValid(of)) return {};
  const traceparent = `00-${of.traceId}-${of.spanId}-${of.traceFlags.toString(16).padStart(2, "0")}`;
  const tracestate = of.traceState?.serialize();
  return tracestate && tracestate.length <= MAX_STATE_CHARACTERS ? { traceparent, tracestate } : { traceparent };
}

/** The active context, below the span of the server if that has sent it. */
function extract({ traceparent, tracestate }: TraceContext): Context {
  const active = context.active();
  const [, traceId, spanId, flags] = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/.exec(traceparent ?? "") ?? [];
  const remote = { traceId: traceId!, spanId: spanId!, traceFlags: parseInt(flags!, 16), isRemote: true };
  if (!traceId || !isSpanContextValid(remote)) return active;
  return trace.setSpanContext(active, tracestate ? { ...remote, traceState: createTraceState(tracestate) } : remote);
}

/** The code of an error, as the server has it. */
const codeOf = (error: unknown) => (error instanceof PenstockError ? error.code : "INTERNAL");

function end(span: Span, code?: string, isError = code !== undefined): void {
  span.setAttributes(code === undefined ? { [STATUS]: "OK" } : { [STATUS]: code, [ERROR]: code });
  if (isError) span.setStatus({ code: SpanStatusCode.ERROR });
  span.end();
}

/** Ends a span with a promise. */
function follow(promise: Promise<unknown>, span: Span): void {
  promise.then(
    () => end(span),
    (error) => (error?.cause === LEFT ? end(span) : end(span, codeOf(error))),
  );
}

/** Calls a handler in a span. What the client does wrong is no error of this program. */
async function serve(type: string, handler: (request: any, served: ServedContext) => unknown, request: unknown, served: ServedContext): Promise<any> {
  const parent = extract(served);
  const span = start(type, SpanKind.SERVER, parent);
  try {
    const reply = await context.with(trace.setSpan(parent, span), handler, undefined, request, served);
    end(span);
    return reply;
  } catch (error) {
    const code = codeOf(error);
    end(span, code, /^(INTERNAL|UNAVAILABLE|DEADLINE_EXCEEDED)$/.test(code));
    throw error;
  }
}

/**
 * Returns the client with spans of OpenTelemetry: one for each call, event and stream, below the active span, whose trace context
 * is sent with the message; and one for each call of the server. With ClientOptions.trace, the latter continue the trace of the server,
 * and their handlers run in their context. Without an SDK, nothing is sent.
 *
 *     const client = traced(createClient<Contract>({ url, trace: true }));
 */
export function traced<C>(client: Client<C>): Client<C> {
  const of = client as Client<any>;
  const request = (send: (type: string, payload: any, options: any) => Promise<any>) => (type: string, payload?: unknown, options?: CallOptions) => {
    const span = start(type, SpanKind.CLIENT);
    const answer = send(type, payload, { ...options, meta: { ...options?.meta, ...inject(span) } });
    follow(answer, span);
    return answer;
  };
  return Object.assign(Object.create(client), {
    call: request(of.call),
    sendWithAck: request(of.sendWithAck),
    handle: (type: string, replyType: string, handler: (request: any, served: ServedContext) => unknown) =>
      of.handle(type, replyType, (payload: unknown, served: ServedContext) => serve(type, handler, payload, served)),
  });
}

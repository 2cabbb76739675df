// The schemas of what the test's server receives and sends, made by the published @ws-kit/zod.
// They are strict: an unknown member of a message, of meta or of payload is an error.

import { ERROR_CODE_META, isStandardErrorCode } from "@ws-kit/core";
import { message, rpc, z } from "@ws-kit/zod";

export const Note = message("NOTE", { text: z.string() });
export const Do = message("DO", { what: z.string(), n: z.number().optional() });
export const Ask = rpc("ASK", { do: z.string(), n: z.number().optional() }, "ANSWER", { n: z.number() });
export const Empty = rpc("EMPTY", undefined, "EMPTY_DONE", undefined);
export const Unknown = rpc("UNKNOWN", {}, "UNKNOWN_REPLY", {});
export const Costly = rpc("COSTLY", {}, "ANSWER", { n: z.number() });
export const Large = message("LARGE", { text: z.string() });
export const Closing = message("CLOSING", {});

const errorPayload = {
  code: z.string(),
  message: z.string().optional(),
  details: z.record(z.string(), z.unknown()).optional(),
  retryable: z.boolean(),
  retryAfterMs: z.number().int().nullable().optional(),
};
export const Err = message("ERROR", errorPayload);
export const RpcErr = message("RPC_ERROR", errorPayload);
export const HeartbeatAck = message("__heartbeat_ack", undefined, { ts: z.number() });

// message() rejects types that begin with $ws:, so this schema is written out.
const Progress = z.strictObject({
  type: z.literal("$ws:rpc-progress"),
  meta: z.strictObject({ timestamp: z.number(), correlationId: z.string() }),
  data: z.unknown(),
  payload: z.unknown(),
});

const byType = new Map([["$ws:rpc-progress", Progress]]);
[Note, Ask.response, Empty.response, Err, RpcErr, HeartbeatAck].forEach(accept);

// accept adds a schema to those of the messages that the client asks for.
export function accept(schema) {
  byType.set(schema.messageType, schema);
}

// problemOf returns what is wrong with a frame of the server, or "".
export function problemOf(frame) {
  if (typeof frame !== "string") return "a binary frame";
  const text = JSON.parse(frame);
  const schema = byType.get(text.type);
  if (!schema) return `the client did not ask for ${text.type}: ${frame}`;
  const parsed = schema.safeParse(text);
  if (!parsed.success) return `${parsed.error.message}: ${frame}`;
  if (text.meta?.timestamp === undefined && text.type !== "__heartbeat_ack") return `no timestamp: ${frame}`;
  if (text.type.endsWith("ERROR")) return problemOfError(text, frame);
  return "";
}

// problemOfError checks an error against the table of codes of @ws-kit/core.
function problemOfError({ payload: { code, retryable, retryAfterMs } }, frame) {
  if (!retryable && typeof retryAfterMs === "number") return `a delay without a retry: ${frame}`;
  if (!isStandardErrorCode(code)) return "";
  const known = ERROR_CODE_META[code];
  const never = retryAfterMs === null;
  if (typeof known.retryable === "boolean" && retryable !== (known.retryable && !never)) {
    return `retryable is wrong: ${frame}`;
  }
  return "";
}

import type { Call } from "./call";
import { parsePart } from "./part";
import { RequestError, bad, integer, text } from "./value";

/** Version of the protocol between the Go client and this Worker. */
export const VERSION = 2;

const MAX_BODY_BYTES = 256 * 1024;
const MAX_CALLS = 64;
/** Bound of the parts of all calls together. */
const MAX_PARTS = 64;
const MAX_NAME_BYTES = 1024;
const MAX_HOLDER_BYTES = 128;
const MAX_LEASE_MILLIS = 3600 * 1000;

export const ACQUIRE = 0;
export const RENEW = 1;
export const RELEASE = 2;

export interface SemaphoreCall {
  /** Name of the semaphore, and the key. */
  k: string;
  holder: string;
  permits: number;
  leaseMillis: number;
  /** ACQUIRE, RENEW or RELEASE. */
  purpose: number;
}

/** readCalls reads and parses the body of a request, whose calls are arrays. It throws a RequestError. */
export async function readCalls(request: Request): Promise<unknown[][]> {
  const text = await readText(request);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw bad("the body must be JSON");
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw bad("the body must be an object");
  }
  const fields = value as Record<string, unknown>;
  if (fields["v"] !== VERSION) {
    throw bad(`v must be ${VERSION}`);
  }
  const calls = fields["calls"];
  if (!Array.isArray(calls) || calls.length < 1 || calls.length > MAX_CALLS || !calls.every(Array.isArray)) {
    throw bad(`calls must be an array of 1 to ${MAX_CALLS} arrays`);
  }
  return calls;
}

async function readText(request: Request): Promise<string> {
  if (!request.body) {
    throw bad("the body is empty");
  }
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of request.body as ReadableStream<Uint8Array>) {
    size += chunk.byteLength;
    if (size > MAX_BODY_BYTES) {
      throw new RequestError(413, `the body must have at most ${MAX_BODY_BYTES} bytes`);
    }
    chunks.push(chunk);
  }
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(await new Blob(chunks).arrayBuffer());
  } catch {
    throw bad("the body must be UTF-8");
  }
}

/** parseLimitCalls checks calls, each of which is an array of parts. */
export function parseLimitCalls(calls: unknown[][]): Call[] {
  const parts = calls.reduce((sum, call) => sum + call.length, 0);
  if (parts > MAX_PARTS) {
    throw bad(`calls must have at most ${MAX_PARTS} parts together`);
  }
  return calls.map((parts, i) => {
    const call = parts.map((part, n) => parsePart(part, `calls[${i}][${n}]`));
    if (call.length < 1) {
      throw bad(`calls[${i}] must have a part`);
    }
    if (call.length > 1 && !call.every((part) => part.isJoint)) {
      throw bad(`calls[${i}] must have one part, or parts that take or look`);
    }
    // Each part of a call decides without what the others take.
    if (new Set(call.map((part) => part.k)).size < call.length) {
      throw bad(`calls[${i}] must have parts with different names or keys`);
    }
    return call;
  });
}

export function parseSemaphoreCall(call: unknown[], i: number): SemaphoreCall {
  const at = `calls[${i}]`;
  if (call.length !== 5) {
    throw bad(`${at} must have 5 elements`);
  }
  return {
    k: text(call[0], at, 0, 1, MAX_NAME_BYTES),
    holder: text(call[1], at, 1, 1, MAX_HOLDER_BYTES),
    permits: integer(call[2], at, 2, 1, Number.MAX_SAFE_INTEGER),
    leaseMillis: integer(call[3], at, 3, 1, MAX_LEASE_MILLIS),
    purpose: integer(call[4], at, 4, ACQUIRE, RELEASE),
  };
}

import type { Call, Policy } from "./bucket";

/** Version of the protocol between the Go client and this Worker. */
export const VERSION = 1;

const MAX_BODY_BYTES = 256 * 1024;
const MAX_CALLS = 64;
const MAX_KEY_BYTES = 1024;
const MAX_HOLDER_BYTES = 128;
/** Bound of a full bucket plus a microsecond's refill, as in limit.Units in Go. */
const MAX_FULL = 2 ** 51;
const MAX_MISSING = 2 ** 52;
const MAX_PER_MICRO = 9000;
const MAX_UNITS = 2 ** 52;
const MAX_BLOCK_MICROS = 365 * 24 * 3600 * 1e6;
const MAX_LEASE_MILLIS = 3600 * 1000;

export interface BlockCall {
  key: string;
  /** 0 fills the bucket and ends a block. */
  micros: number;
}

export const ACQUIRE = 0;
export const RENEW = 1;
export const RELEASE = 2;

export interface SemaphoreCall {
  key: string;
  holder: string;
  permits: number;
  leaseMillis: number;
  /** ACQUIRE, RENEW or RELEASE. */
  purpose: number;
}

/** A RequestError is a mistake of the caller. Its message is part of the response. */
export class RequestError extends Error {
  constructor(
    readonly status: 400 | 413,
    message: string,
  ) {
    super(message);
  }
}

/** A body whose version has been checked and whose calls are arrays. */
export interface Body {
  fields: Record<string, unknown>;
  calls: unknown[][];
}

/** readBody reads and parses the body of a request. It throws a RequestError. */
export async function readBody(request: Request): Promise<Body> {
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
  return { fields, calls };
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

/** parsePolicy checks the bounds within which bucket.ts is exact. */
export function parsePolicy(value: unknown): Policy {
  if (!Array.isArray(value) || value.length !== 3) {
    throw bad("policy must be an array of 3 numbers");
  }
  const policy: Policy = {
    perMicro: integer(value[0], "policy[0]", 1, MAX_PER_MICRO),
    perToken: integer(value[1], "policy[1]", 1, MAX_FULL),
    capacity: integer(value[2], "policy[2]", 1, MAX_FULL),
  };
  // An inexact product is above the bound, too.
  if (policy.perToken * policy.capacity + policy.perMicro > MAX_FULL) {
    throw bad(`policy has more than 2^51 units in a full bucket`);
  }
  return policy;
}

export function parseLimitCall(call: unknown[], i: number): Call {
  checkLength(call, i, call.length === 5 ? 5 : 4);
  return {
    key: text(call[0], `calls[${i}][0]`, MAX_KEY_BYTES),
    units: integer(call[1], `calls[${i}][1]`, -MAX_UNITS, MAX_UNITS),
    lowest: integer(call[2], `calls[${i}][2]`, -MAX_MISSING, MAX_FULL),
    divisor: integer(call[3], `calls[${i}][3]`, 1, MAX_UNITS),
    since: integer(call[4] ?? 0, `calls[${i}][4]`, 0, Number.MAX_SAFE_INTEGER),
  };
}

export function parseBlockCall(call: unknown[], i: number): BlockCall {
  checkLength(call, i, 2);
  return {
    key: text(call[0], `calls[${i}][0]`, MAX_KEY_BYTES),
    micros: integer(call[1], `calls[${i}][1]`, 0, MAX_BLOCK_MICROS),
  };
}

export function parseSemaphoreCall(call: unknown[], i: number): SemaphoreCall {
  checkLength(call, i, 5);
  return {
    key: text(call[0], `calls[${i}][0]`, MAX_KEY_BYTES),
    holder: text(call[1], `calls[${i}][1]`, MAX_HOLDER_BYTES),
    permits: integer(call[2], `calls[${i}][2]`, 1, Number.MAX_SAFE_INTEGER),
    leaseMillis: integer(call[3], `calls[${i}][3]`, 1, MAX_LEASE_MILLIS),
    purpose: integer(call[4], `calls[${i}][4]`, ACQUIRE, RELEASE),
  };
}

function checkLength(call: unknown[], i: number, length: number): void {
  if (call.length !== length) {
    throw bad(`calls[${i}] must have ${length} elements`);
  }
}

function integer(value: unknown, name: string, min: number, max: number): number {
  if (!Number.isSafeInteger(value) || (value as number) < min || (value as number) > max) {
    throw bad(`${name} must be an integer from ${min} to ${max}`);
  }
  return value as number;
}

function text(value: unknown, name: string, max: number): string {
  if (typeof value !== "string" || value.length > max || !/^[\x20-\x7e]+$/.test(value)) {
    throw bad(`${name} must be 1 to ${max} characters of printable ASCII`);
  }
  return value;
}

function bad(message: string): RequestError {
  return new RequestError(400, message);
}

import { isAuthorized } from "./auth";
import type { Env } from "./env";
import type { Batch, LimiterObject } from "./object";
import { VERSION, parseLimitCalls, parseSemaphoreCall, readCalls } from "./request";
import { places, shardStub } from "./shard";
import type { Place } from "./shard";
import { RequestError } from "./value";

export { LimiterObject } from "./object";

/** Resolution of the clock in microseconds: Date.now() returns whole milliseconds. */
const TICK = 1000;

export default {
  fetch: (request, env) => handle(request, env, TICK),
} satisfies ExportedHandler<Env>;

/** handle answers a request. Tick is the resolution of the clock in microseconds. */
export async function handle(request: Request, env: Env, tick: number): Promise<Response> {
  if (!(await isAuthorized(request, env))) {
    return failure(401, "unauthorized");
  }
  const path = new URL(request.url).pathname;
  const execute = operations[path];
  if (!execute) {
    return failure(404, "not found");
  }
  if (request.method !== "POST") {
    return failure(405, "method not allowed", { Allow: "POST" });
  }
  try {
    return reply(200, { v: VERSION, tick, ...(await execute(request, env)) });
  } catch (error) {
    if (error instanceof RequestError) {
      return failure(error.status, error.message);
    }
    console.error(`${path}:`, error);
    return failure(503, (error as { overloaded?: boolean } | null)?.overloaded ? "overloaded" : "unavailable");
  }
}

/** Each operation validates the whole request before it executes a call. */
const operations: Record<string, (request: Request, env: Env) => Promise<object>> = {
  "/v2/limit": async (request, env) => {
    const calls = parseLimitCalls(await readCalls(request));
    // The reply to a call whose keys are in several objects is empty.
    return { replies: await distribute(env, calls, (call) => call, [], (object, batch) => object.limit(batch)) };
  },
  "/v2/semaphore": async (request, env) => {
    const calls = (await readCalls(request)).map(parseSemaphoreCall);
    return { permits: await distribute(env, calls, (call) => [{ k: call.k, place: call.k }], null, (object, batch) => object.semaphore(batch)) };
  },
};

/**
 * distribute sends each call to the object that has its keys, and returns the replies in the order of
 * the calls. A reply is null if its object failed, and split if the keys of the call are in several objects. If
 * all objects failed, it throws the first error.
 */
async function distribute<C, R>(
  env: Env,
  calls: C[],
  keysOf: (call: C) => { k: string; place: string }[],
  split: R | null,
  send: (object: DurableObjectStub<LimiterObject>, batch: Batch<C>) => Promise<(R | null)[]>,
): Promise<(R | null)[]> {
  const keys = calls.map(keysOf);
  const placeOf = await places(env, keys.flat().map((key) => key.place));
  const replies: (R | null)[] = calls.map(() => split);
  const shards = keys.map((each) => shardOf(each, placeOf));
  const groups = Map.groupBy([...calls.keys()].filter((i) => shards[i] !== undefined), (i) => shards[i] as number);
  const failures: unknown[] = [];
  await Promise.all(
    [...groups].map(async ([shard, indexes]) => {
      const moving = new Map(indexes.flatMap((i) => keys[i] ?? []).map((key) => [key.k, placeOf.get(key.place)?.before]));
      const before = [...moving].filter((entry): entry is [string, number] => entry[1] !== undefined);
      try {
        const results = await send(shardStub(env, shard), { calls: indexes.map((i) => calls[i] as C), before });
        indexes.forEach((i, n) => (replies[i] = results[n] ?? null));
      } catch (error) {
        console.error(`shard ${shard}:`, error);
        failures.push(error);
        indexes.forEach((i) => (replies[i] = null));
      }
    }),
  );
  if (failures.length > 0 && failures.length === groups.size) {
    throw failures[0];
  }
  return replies;
}

/** shardOf returns the shard that has all keys, or undefined if there is none. */
function shardOf(keys: { place: string }[], placeOf: Map<string, Place>): number | undefined {
  const shards = new Set(keys.map((key) => placeOf.get(key.place)?.shard));
  return shards.size === 1 ? [...shards][0] : undefined;
}

function reply(status: number, body: object, headers: Record<string, string> = {}): Response {
  return Response.json(body, { status, headers: { "Cache-Control": "no-store", ...headers } });
}

function failure(status: number, error: string, headers?: Record<string, string>): Response {
  return reply(status, { v: VERSION, error }, headers);
}

import { isAuthorized } from "./auth";
import type { Env } from "./env";
import type { Batch, LimiterObject } from "./object";
import { RequestError, VERSION, parseBlockCall, parseLimitCall, parsePolicy, parseSemaphoreCall, readBody } from "./request";
import { places, shardStub } from "./shard";

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
  "/v1/limit": async (request, env) => {
    const { fields, calls } = await readBody(request);
    const policy = parsePolicy(fields["policy"]);
    const held = await distribute(env, calls.map(parseLimitCall), (object, batch) => object.limit({ policy, ...batch }));
    return { held: held.map((each) => each?.units ?? null), at: held.map((each) => each?.at ?? 0) };
  },
  "/v1/block": async (request, env) => {
    const { calls } = await readBody(request);
    const done = await distribute(env, calls.map(parseBlockCall), (object, batch) => object.block(batch));
    return { done: done.map((each) => each === true) };
  },
  "/v1/semaphore": async (request, env) => {
    const { calls } = await readBody(request);
    return { permits: await distribute(env, calls.map(parseSemaphoreCall), (object, batch) => object.semaphore(batch)) };
  },
};

/**
 * distribute sends each call to the object that has its key, and returns the replies in the order of
 * the calls. A reply is null if its object failed. If all objects failed, it throws the first error.
 */
async function distribute<C extends { key: string }, R>(
  env: Env,
  calls: C[],
  send: (object: DurableObjectStub<LimiterObject>, batch: Batch<C>) => Promise<(R | null)[]>,
): Promise<(R | null)[]> {
  const placeOf = await places(env, calls.map((call) => call.key));
  const replies: (R | null)[] = calls.map(() => null);
  const failures: unknown[] = [];
  const groups = Map.groupBy(calls.keys(), (i) => placeOf[i]!.shard);
  await Promise.all(
    [...groups].map(async ([shard, indexes]) => {
      const batch = { calls: indexes.map((i) => calls[i]!), before: indexes.map((i) => placeOf[i]!.before ?? null) };
      try {
        const results = await send(shardStub(env, shard), batch);
        indexes.forEach((i, n) => (replies[i] = results[n] ?? null));
      } catch (error) {
        console.error(`shard ${shard}:`, error);
        failures.push(error);
      }
    }),
  );
  if (failures.length === groups.size) {
    throw failures[0];
  }
  return replies;
}

function reply(status: number, body: object, headers: Record<string, string> = {}): Response {
  return Response.json(body, { status, headers: { "Cache-Control": "no-store", ...headers } });
}

function failure(status: number, error: string, headers?: Record<string, string>): Response {
  return reply(status, { v: VERSION, error }, headers);
}

import type { Env } from "./env";

const MAX_SHARDS = 1024;

/** Where the state of a key is. */
export interface Place {
  shard: number;
  /** The shard before the last change of the number of shards; undefined if it is the same one. */
  before: number | undefined;
}

/**
 * places returns where the state of keys is. The hash depends on a secret, so that a client
 * cannot choose keys that all belong to one object. It throws if the configuration is invalid.
 */
export async function places(env: Env, keys: string[]): Promise<Map<string, Place>> {
  const shards = parseShards("SHARDS", env.SHARDS) ?? 1;
  const shardsBefore = parseShards("SHARDS_BEFORE", env.SHARDS_BEFORE) ?? shards;
  if (shards === 1 && shardsBefore === 1) {
    return new Map(keys.map((key) => [key, { shard: 0, before: undefined }]));
  }
  if (!env.HASH_SEED) {
    throw new Error("the secret HASH_SEED must be set if SHARDS or SHARDS_BEFORE is above 1");
  }
  const seed = await hmacKey(env.HASH_SEED);
  const each = [...new Set(keys)].map(async (key): Promise<[string, Place]> => {
    const hash = await hash64(seed, key);
    const shard = jump(hash, shards);
    const before = jump(hash, shardsBefore);
    return [key, { shard, before: before === shard ? undefined : before }];
  });
  return new Map(await Promise.all(each));
}

/** shardStub returns the object of a shard. Its name does not depend on the number of shards. */
export function shardStub(env: Env, shard: number) {
  const id = env.LIMITER.idFromName(`shard-${shard}`);
  const hint = env.LOCATION_HINT as DurableObjectLocationHint | undefined;
  return hint ? env.LIMITER.get(id, { locationHint: hint }) : env.LIMITER.get(id);
}

function parseShards(name: string, value: string | number | undefined): number | undefined {
  if (value === undefined || value === "") {
    return undefined;
  }
  const n = Number(value);
  if (!Number.isInteger(n) || n < 1 || n > MAX_SHARDS) {
    throw new Error(`${name} must be an integer from 1 to ${MAX_SHARDS}`);
  }
  return n;
}

function hmacKey(seed: string): Promise<CryptoKey> {
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  return crypto.subtle.importKey("raw", new TextEncoder().encode(seed), algorithm, false, ["sign"]);
}

async function hash64(seed: CryptoKey, key: string): Promise<bigint> {
  const digest = await crypto.subtle.sign("HMAC", seed, new TextEncoder().encode(key));
  return new DataView(digest).getBigUint64(0);
}

/**
 * jump returns a number below n, which changes for as few hashes as possible when n changes
 * (Lamping and Veach: A Fast, Minimal Memory, Consistent Hash Algorithm, 2014).
 */
function jump(hash: bigint, n: number): number {
  let shard = 0;
  let next = 0;
  while (next < n) {
    shard = next;
    hash = BigInt.asUintN(64, hash * 2862933555777941757n + 1n);
    next = Math.floor((shard + 1) * (2 ** 31 / (Number(hash >> 33n) + 1)));
  }
  return shard;
}

import type { LimiterObject } from "./object";

/** Bindings and variables of the Worker, see wrangler.toml. */
export interface Env {
  LIMITER: DurableObjectNamespace<LimiterObject>;
  SECRET?: string;
  /** A second secret that is accepted during rotation. */
  SECRET_NEXT?: string;
  /** Number of objects. Default 1. */
  SHARDS?: string | number;
  /** Number of objects before the last change. Empty: no keys are moving. */
  SHARDS_BEFORE?: string | number;
  /** Secret that decides which object has which key. Required if a key can be in more than one. */
  HASH_SEED?: string;
  LOCATION_HINT?: string;
}

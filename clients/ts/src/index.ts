export { createClient } from "./client.js";
export { PenstockError } from "./errors.js";
export type { ErrorDetails } from "./errors.js";
export type * from "./types.js";

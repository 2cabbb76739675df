import { PenstockError } from "./index.js";
import type { CallArguments, CallName, Client, ErrorOf, ReplyOf } from "./index.js";

/** The outcome of a call: one of the two members. */
export type Result<R, E> = { reply: R; error?: undefined } | { reply?: undefined; error: E };

/**
 * Calls as client.call does, and returns the error of the call as a value, by which the compiler distinguishes the errors of the contract
 * apart. What is no PenstockError is thrown.
 */
export async function tryCall<C, K extends CallName<C>>(client: Client<C>, type: K, ...args: CallArguments<C, K>): Promise<Result<ReplyOf<C, K>, ErrorOf<C, K>>> {
  try {
    return { reply: await client.call(type, ...args) };
  } catch (error) {
    if (error instanceof PenstockError) return { error: error as ErrorOf<C, K> };
    throw error;
  }
}

// Reads the items of a run, whatever happens to the connection.

import { PenstockError } from "./penstock-client.js";
import { stream } from "./penstock-streams.js";

const RETRY_DELAY_MS = 500;
const FINAL = ["NOT_FOUND", "CANCELLED", "INVALID_ARGUMENT", "UNIMPLEMENTED"]; // another attempt makes no difference

/**
 * Calls onItem with each item of a run, once and in order, and returns how the run has ended. Several neighbors may
 * be merged into one item. After a lost connection it continues with the item that it has not seen, on whatever node.
 */
export async function readRun(client, { topic, run }, signal, onItem) {
  let from = 0;
  for (;;) {
    try {
      const parts = stream(client, "aisdk.chunk.attach", { topic, run, from }, { signal });
      for (;;) {
        const { value, done } = await parts.next();
        if (done) return value;
        if (!value.item) continue; // the first part names the run
        from = value.n + (value.count ?? 1);
        onItem(value.item);
      }
    } catch (error) {
      if (!(error instanceof PenstockError) || FINAL.includes(error.code) || client.state === "closed") throw error;
      await new Promise((resolve) => setTimeout(resolve, error.retryAfterMs ?? RETRY_DELAY_MS));
    }
  }
}

import type { Client } from "./index.js";

/**
 * Measures the round trip to the server now, in milliseconds: from a heartbeat to its acknowledgment. The result is undefined
 * without a connection, or if it is lost or replaced meanwhile.
 */
export async function latency<C>(client: Client<C>): Promise<number | undefined> {
  const { connection } = client;
  const sentAt = performance.now();
  try {
    if (client.state === "open") await (client as unknown as Client).sendWithAck("__heartbeat");
  } catch {
    return undefined;
  }
  return connection && client.connection === connection ? performance.now() - sentAt : undefined;
}

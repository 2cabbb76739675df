// What the compiler must accept and reject. The functions are not called.

import { test } from "node:test";

import { createClient, PenstockError, type Client } from "../src/index.ts";

interface Contract {
  events: { SAY: { room: string; text: string }; PING: {} };
  calls: {
    JOIN_ROOM: { request: { room: string }; reply: { members: string[] }; progress: never };
    IMPORT: { request: { rows: number[] }; reply: { done: true }; progress: { percent: number } };
  };
  streams: { EXPORT: { request: { table: string }; item: { id: number }; reply: { rows: number } } };
  received: { SAID: { text: string }; LEFT: { user: string } };
  served: { CONFIRM: { request: { question: string }; reply: { yes: boolean }; replyType: "CONFIRMED" } };
  topics: { [T in `room/${string}`]: { messages: "SAID" } };
}

export async function typed(client: Client<Contract>): Promise<void> {
  const { members } = await client.call("JOIN_ROOM", { room: "go" });
  members satisfies string[];
  // @ts-expect-error: the reply has no such member
  (await client.call("JOIN_ROOM", { room: "go" })).users;
  // @ts-expect-error: the type is not in the contract
  await client.call("JOIN", { room: "go" });
  // @ts-expect-error: an event is not a call
  await client.call("SAY", { room: "go", text: "hi" });
  // @ts-expect-error: the payload is required
  await client.call("JOIN_ROOM");
  // @ts-expect-error: the payload has another type
  await client.call("JOIN_ROOM", { room: 1 });
  await client.call("IMPORT", { rows: [1] }, { onProgress: ({ percent }) => percent satisfies number });
  // @ts-expect-error: the progress has no such member
  await client.call("IMPORT", { rows: [1] }, { onProgress: ({ done }) => done });

  await client.send("PING");
  await client.send("SAY", { room: "go", text: "hi" }, { maxWaitMs: 100 });
  // @ts-expect-error: a member is missing
  await client.send("SAY", { room: "go" });

  for await (const item of client.stream("EXPORT", { table: "users" }, { onReply: ({ rows }) => rows satisfies number })) {
    item.id satisfies number;
    // @ts-expect-error: the item has no such member
    item.rows;
  }

  client.on("SAID", ({ text }, { timestamp }) => [text satisfies string, timestamp satisfies number]);
  // @ts-expect-error: the type is not received
  client.on("SAY", () => {});

  client.handle("CONFIRM", "CONFIRMED", ({ question }, { signal }) => ({ yes: !signal.aborted && question === "" }));
  client.handle("CONFIRM", "CONFIRMED", async () => ({ yes: true }));
  // @ts-expect-error: the reply has another name
  client.handle("CONFIRM", "YES", () => ({ yes: true }));
  // @ts-expect-error: the reply has another type
  client.handle("CONFIRM", "CONFIRMED", () => ({ yes: 1 }));

  client.subscribe("room/go", { on: { SAID: ({ text }, { offset }) => [text, offset] }, onLoss: ({ lost }) => lost?.from });
  client.subscribe(`room/${members[0]}`);
  // @ts-expect-error: no pattern matches the name
  client.subscribe("rooms/go");
  // @ts-expect-error: the topic does not have this message
  client.subscribe("room/go", { on: { LEFT: () => {} } });

  const error = new PenstockError("CONFLICT", "taken", { details: { name: "go" } });
  error.retryAfterMs satisfies number | null | undefined;
  // @ts-expect-error: it is constant
  error.code = "OTHER";
}

export async function untyped(): Promise<void> {
  const client = createClient({ url: "ws://localhost/ws" });
  (await client.call("ANY", { thing: 1 })).whatever;
  client.on("ANY", (payload) => payload.whatever);
  client.subscribe("any/topic", { on: { ANY: (payload) => payload.whatever } });
  // @ts-expect-error: the policy is unknown
  createClient({ url: "ws://localhost/ws", queue: { overflow: "drop" } });
  // @ts-expect-error: the URL is required
  createClient({});
}

test("types are checked by the compiler", () => {});

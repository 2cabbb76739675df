// What the compiler must accept and reject. The functions are not called.

import { test } from "node:test";

import type { CBOR } from "../src/cbor.ts";
import { createClient, PenstockError, type Client, type ErrorOf, type StandardCode } from "../src/index.ts";
import { tryCall } from "../src/try-call.ts";
import { useWaitSeconds } from "../src/react.ts";
import { stream } from "../src/streams.ts";

interface RoomFull {
  capacity: number;
}

interface Contract {
  events: { SAY: { room: string; text: string }; PING: {} };
  calls: {
    JOIN_ROOM: { request: { room: string }; reply: { members: string[] }; progress: never; errors: { code: "NOT_FOUND" } | { code: "ROOM_FULL"; details: RoomFull } };
    IMPORT: { request: { rows: number[] }; reply: { done: true }; progress: { percent: number } };
  };
  streams: { EXPORT: { request: { table: string }; item: { id: number }; reply: { rows: number }; errors: { code: "NO_TABLE" } } };
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

  await client.sendWithAck("PING");
  await client.sendWithAck("SAY", { room: "go", text: "hi" }, { maxWaitMs: 100 });
  // @ts-expect-error: a member is missing
  await client.sendWithAck("SAY", { room: "go" });

  for await (const item of stream(client, "EXPORT", { table: "users" }, { onReply: ({ rows }) => rows satisfies number })) {
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

  // @ts-expect-error: the reply has another type
  client.handle("CONFIRM", "CONFIRMED", async () => ({ yes: "yes" }));
  // @ts-expect-error: the request has no such member
  client.handle("CONFIRM", "CONFIRMED", ({ answer }) => ({ yes: answer }));

  client.subscribe("room/go", { on: { SAID: ({ text }, { offset }) => [text, offset] }, onLoss: ({ lost }) => lost?.from });
  client.subscribe(`room/${members[0]}`);
  // @ts-expect-error: no pattern matches the name
  client.subscribe("rooms/go");
  // @ts-expect-error: the topic does not have this message
  client.subscribe("room/go", { on: { LEFT: () => {} } });

  client.nextAllowedAt("SAY");
  client.nextAllowedAt("JOIN_ROOM");
  client.nextAllowedAt("EXPORT");
  // @ts-expect-error: clients do not send it
  client.nextAllowedAt("SAID");
  useWaitSeconds(client, "PING");
  // @ts-expect-error: the type is not in the contract
  useWaitSeconds(client, "PNIG");

  const error = new PenstockError("CONFLICT", "taken", { details: { name: "go" } });
  error.retryAfterMs satisfies number | null | undefined;
  // @ts-expect-error: it is constant
  error.code = "OTHER";
}

export async function typedErrors(client: Client<Contract>): Promise<string> {
  const { reply, error } = await tryCall(client, "JOIN_ROOM", { room: "go" }, { timeoutMs: 100 });
  // @ts-expect-error: there may be an error
  reply.members;
  if (!error) return reply.members.join();
  switch (error.code) {
    case "ROOM_FULL":
      error.details.capacity satisfies number;
      // @ts-expect-error: the details have no such member
      error.details.members satisfies number;
      return error.message;
    case "NOT_FOUND":
    case "UNAVAILABLE":
      return String(error.retryAfterMs);
    // @ts-expect-error: the call does not declare it
    case "NO_TABLE":
      return "";
    default:
      error.code satisfies Exclude<StandardCode, "NOT_FOUND" | "UNAVAILABLE">;
      error satisfies PenstockError;
  }
  const { error: open } = await tryCall(client, "IMPORT", { rows: [] }); // declares no errors
  open?.code satisfies string | undefined;
  if (open?.code === "ANY") return "";
  // @ts-expect-error: the payload is required
  await tryCall(client, "JOIN_ROOM");
  // @ts-expect-error: it is not a call
  await tryCall(client, "SAY", { room: "go", text: "hi" });
  return client.call("JOIN_ROOM", { room: "go" }).then(
    ({ members }) => members.join(),
    (error: ErrorOf<Contract, "JOIN_ROOM">) => (error.code === "ROOM_FULL" ? `${error.details.capacity satisfies number}` : error.code),
  );
}

// @ts-expect-error: it is not in the contract
export type Misspelled = ErrorOf<Contract, "JOIN_ROM">;

export function typedErrorsOfStreams(error: ErrorOf<Contract, "EXPORT">): void {
  error.code satisfies StandardCode | "NO_TABLE";
  // @ts-expect-error: there are others
  error.code satisfies "NO_TABLE";
}

export async function untyped(): Promise<void> {
  const client = createClient({ url: "ws://localhost/ws" });
  (await client.call("ANY", { thing: 1 })).whatever;
  const { reply, error } = await tryCall(client, "ANY", { thing: 1 });
  if (error?.code === "ANY") error.details.whatever;
  else reply.whatever;
  client.on("ANY", (payload) => payload.whatever);
  client.nextAllowedAt("ANY");
  client.subscribe("any/topic", { on: { ANY: (payload) => payload.whatever } });
  // @ts-expect-error: the policy is unknown
  createClient({ url: "ws://localhost/ws", queue: { overflow: "drop" } });
  // @ts-expect-error: the URL is required
  createClient({});
}

type Timestamp = string & { readonly __format: "date-time" };
type Base64 = string & { readonly __format: "base64" };

export async function binary(client: Client<CBOR<{ calls: { PUT: { request: { at?: Timestamp; parts: [Base64, number][] }; reply: { kind: "a" | "b"; any: any }; progress: never } } }>>): Promise<void> {
  const { kind, any } = await client.call("PUT", { at: new Date(), parts: [[new Uint8Array(), 1]] });
  kind satisfies "a" | "b";
  any.whatever;
  // @ts-expect-error: bytes are no string
  await client.call("PUT", { parts: [["AAA=", 1]] });
}

test("types are checked by the compiler", () => {});

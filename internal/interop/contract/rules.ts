// Checked by tsc --strict --exactOptionalPropertyTypes, never run. Each rule of the generated types has a
// line that compiles and one that must not.
import { limits } from "./kitchen";
import type { Base64, Contract, ErrorCode, Everything, Received, State, Timestamp, Tree, Shape } from "./kitchen";

declare const e: Everything;
declare function set(fields: Partial<Everything>): void;

// A field is required, unless omitzero or omitempty may leave it out.
const required: { by: string; note?: string } = { by: "ann" };
// @ts-expect-error by is required
const missing: Pick<Everything, "by"> = {};
const omitted: Pick<Everything, "intZero" | "textEmpty" | "timeZero" | "country"> = {};
// @ts-expect-error omitempty does nothing for numbers
const omitempty: Pick<Everything, "intEmpty"> = {};

// Optional is not undefined.
// @ts-expect-error exactOptionalPropertyTypes
set({ intZero: undefined });

// A pointer can be null; with omitzero it is left out instead.
set({ pointer: null, pointerItem: null, pricePointer: null });
// @ts-expect-error it is left out
set({ pointerZero: null });
// @ts-expect-error it is no pointer
set({ text: null });

// Slices and maps are not null.
set({ strings: [], map: {}, matrix: [[1]] });
// @ts-expect-error a nil slice is []
set({ strings: null });
// @ts-expect-error a nil map is {}
set({ map: null });

// The keys of maps are strings.
set({ byInt: { "1": "one" } });
// @ts-expect-error the values are strings
set({ byInt: { "1": 1 } });

// 64-bit integers are decimal strings, or numbers that are declared as safe.
set({ int64: "12345678901234567890", safe: 1, safeList: [1] });
// @ts-expect-error not a number
set({ int64: 1 });
// @ts-expect-error not any string
set({ uint64: "one" });
// @ts-expect-error not any string
set({ floatText: "one" });

// Bytes and times are strings of their own.
set({ bytes: "YQ==" as Base64, time: new Date().toISOString() as Timestamp });
// @ts-expect-error not any string
set({ bytes: "a" });
// @ts-expect-error not any string
set({ time: "tomorrow" });
const text: string = e.time + e.bytes;

// Enumerations are closed if clients send them, and open otherwise.
set({ color: "red" });
// @ts-expect-error no value
set({ color: "blue" });
const open: State = "reopened";
const level: 1 | 2 | 3 = ({} as Received).level;

// Types that contain themselves.
const tree: Tree = { name: "a", children: [{ name: "b", children: [] }] };
// @ts-expect-error children have children
const leaf: Tree = { name: "a", children: [{ name: "b" }] };
set({ nested: [[], [[]]], dict: { a: { b: {} } } });
// @ts-expect-error not text
set({ nested: ["a"] });

// Variants of an interface.
function area(s: Shape): number {
  if (s === null) return 0;
  if ("radius" in s) return s.radius;
  // @ts-expect-error s is a square
  s.radius;
  return s.side;
}

// What is not described is unknown.
// @ts-expect-error unknown
e.any.length;
// @ts-expect-error unknown
e.raw.length;
const rest: unknown = ({} as Received).extended["other"];

// Names that are no identifiers.
const quoted: string = e["a-b c"];

// The messages and their answers.
type Reply<K extends keyof Contract["calls"]> = Contract["calls"][K]["reply"];
const reply: Reply<"ASK"> = { Text: "yes" };
// @ts-expect-error another reply
const otherReply: Reply<"ASK"> = { Yes: true };
// @ts-expect-error no call
type NoCall = Reply<"PING">;
const progress: Contract["calls"]["ASK"]["progress"] = { Percent: 1 };
const noProgress: never = {} as Contract["calls"]["QUIET"]["progress"];
const item: Contract["streams"]["TAIL"]["item"] = "line";
const end: Contract["streams"]["EXPORT"]["reply"] = { Rows: 1 };
const noEnd: Contract["streams"]["TAIL"]["reply"] = undefined;
const served: Contract["served"]["CONFIRM"] = { request: { Text: "?" }, reply: { Yes: true }, replyType: "CONFIRMED" };
const empty: Contract["events"]["PING"] = {};
// @ts-expect-error no fields
const notEmpty: Contract["events"]["PING"] = { a: 1 };

// Topics by name.
type Topic = keyof Contract["topics"];
type Messages<T extends Topic> = Contract["topics"][T]["messages"];
const topic: Topic = "room/go";
// @ts-expect-error no topic
const noTopic: Topic = "news";
const published: Messages<"room/go"> = "RECEIVED";
// @ts-expect-error the more specific pattern applies
const specific: Messages<"room/lobby"> = "RECEIVED";
const lobby: Messages<"room/lobby"> = "PONG";
const undeclared: Messages<"files/a/b"> = "EVERYTHING";
// @ts-expect-error no such message
const noMessage: Messages<"room/go"> = "ASK";
declare function subscribe<T extends Topic & string>(topic: T, on: (type: Messages<T>) => void): void;
subscribe("room/go", (type) => type === "RECEIVED");
// @ts-expect-error never published there
subscribe("room/lobby", (type) => type === "RECEIVED");

// Codes, including those that only one route declares.
const code: ErrorCode = "TOO_HARD";
// @ts-expect-error no code
const noCode: ErrorCode = "NO_CODE";

// Limits are literals.
const capacity: 20 = limits.messages.capacity;
const cost: 1 = limits.messages.buckets[0].costs.ASK;
// @ts-expect-error they cannot be changed
limits.messages.capacity = 1;

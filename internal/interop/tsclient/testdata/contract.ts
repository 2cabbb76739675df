// What a contract that package contract generates may have, for the samples in documents.

export type Timestamp = string & { readonly __format: "date-time" };
export type Base64 = string & { readonly __format: "base64" };

export interface Note {
  id: string;
  text: string;
}

export interface Contract {
  events: { SAY: { room: string; text: string } };
  calls: {
    JOIN_ROOM: { request: { room: string }; reply: { members: string[] }; progress: never; errors: { code: "ROOM_FULL"; details: { capacity: number } } };
    IMPORT: { request: { rows: number[] }; reply: { done: boolean }; progress: { percent: number } };
    ASK_MODEL: { request: { id: string; chat: string; question: string }; reply: { run: string }; progress: never };
    "token.stop": { request: { topic: string; run: string }; reply: {}; progress: never };
    REMOVE_NOTE: { request: { id: string }; reply: {}; progress: never };
    MEASURE: { request: { at: Timestamp; bytes: Base64 }; reply: {}; progress: never };
  };
  streams: {
    "token.attach": { request: { topic: string; run?: string; from?: number }; item: { n: number; count?: number; item?: { text: string } }; reply: {} };
    EXPORT: { request: { table: string }; item: { id: number }; reply: { rows: number } };
  };
  received: { SAID: { text: string }; PRICE: { share: string; value: number }; NOTE: Note; NOTE_REMOVED: { id: string } };
  served: { CONFIRM: { request: { question: string }; reply: { yes: boolean }; replyType: "CONFIRMED" } };
  topics: {
    [topic: `room/${string}`]: { messages: "SAID" };
    [topic: `answer/${string}`]: { messages: "run.changed" };
    prices: { messages: "PRICE" };
    board: { messages: "NOTE" | "NOTE_REMOVED" };
  };
}

export const contractHash = "0";

import type { PenstockError } from "./errors.js";

/**
 * The shape of a contract, which the server generates. All members are optional; without a contract,
 * every type and payload is permitted.
 *
 *     interface Contract {
 *       events: { SAY: Say };
 *       calls: { JOIN_ROOM: { request: JoinRoom; reply: RoomJoined; progress: never; errors: { code: "ROOM_FULL"; details: RoomFull } } };
 *       streams: { EXPORT: { request: Export; item: Row; reply: Exported } };
 *       received: { SAID: Said };
 *       served: { CONFIRM: { request: Confirm; reply: Confirmed; replyType: "CONFIRMED" } };
 *       topics: { [T in `room/${string}`]: { messages: "SAID" } };
 *     }
 */
export interface AnyContract {
  events: { [type: string]: any };
  calls: { [type: string]: { request: any; reply: any; progress: any } };
  streams: { [type: string]: { request: any; item: any; reply: any } };
  received: { [type: string]: any };
  served: { [type: string]: { request: any; reply: any } };
  topics: { [name: string]: { messages: string } };
}

type Section<C, K extends keyof AnyContract> = K extends keyof C ? C[K] : {};
type Key<T> = Extract<keyof T, string>;
type Part<T, K> = T extends { [P in K & string]: infer V } ? V : never;
/** The payload is optional if the message has no required fields. */
type Payload<P, O> = {} extends P ? [payload?: P, options?: O] : [payload: P, options?: O];
/** The entry of the pattern that a topic name matches. */
type TopicOf<C, T extends string> = Section<C, "topics">[T & keyof Section<C, "topics">];

/** The names of the topics of a contract. */
export type TopicName<C> = Key<Section<C, "topics">>;
/** The types of the messages that are published to a topic. */
export type MessageOf<C, T extends string> = Part<TopicOf<C, T>, "messages"> & string;
/** The payload of a message that clients receive. */
export type PayloadOf<C, K> = Part<Section<C, "received">, K>;

/** The types of the calls of a contract. */
export type CallName<C> = Key<Section<C, "calls">>;
/** The payload and the options of a call. */
export type CallArguments<C, K extends CallName<C>> = Payload<Part<Section<C, "calls">[K], "request">, CallOptions<Part<Section<C, "calls">[K], "progress">>>;
/** The reply to a call. */
export type ReplyOf<C, K extends CallName<C>> = Part<Section<C, "calls">[K], "reply">;

/** The types of the streams of a contract. */
export type StreamName<C> = Key<Section<C, "streams">>;
/** The payload and the options of a stream. */
export type StreamArguments<C, K extends StreamName<C>> = Payload<Part<Section<C, "streams">[K], "request">, StreamOptions<Part<Section<C, "streams">[K], "reply">>>;
/** The stream of a type. */
export type StreamOf<C, K extends StreamName<C>> = Stream<Part<Section<C, "streams">[K], "item">, Part<Section<C, "streams">[K], "reply">>;

/** The types of the messages that clients send. */
export type SentName<C> = Key<Section<C, "events">> | CallName<C> | StreamName<C>;

/** The codes with which any message may fail, as section 4 of the protocol has them. */
export type StandardCode =
  | "ABORTED"
  | "ALREADY_EXISTS"
  | "CANCELLED"
  | "DEADLINE_EXCEEDED"
  | "FAILED_PRECONDITION"
  | "INTERNAL"
  | "INVALID_ARGUMENT"
  | "NOT_FOUND"
  | "OUTCOME_UNKNOWN"
  | "PERMISSION_DENIED"
  | "RESOURCE_EXHAUSTED"
  | "UNAUTHENTICATED"
  | "UNAVAILABLE"
  | "UNIMPLEMENTED";

type Failure<E> = (PenstockError & Readonly<E>) | (PenstockError & { readonly code: Exclude<StandardCode, Part<E, "code">> });
type Answered<C, K> = K extends CallName<C> ? Section<C, "calls">[K] : K extends Key<Section<C, "streams">> ? Section<C, "streams">[K] : never;

/**
 * The errors of a call or stream: those that the server declares for it, with their details, and those of any message.
 * Without a declaration, any code. The server may send others, so leave a default in each switch.
 */
export type ErrorOf<C, K extends CallName<C> | StreamName<C>> = Answered<C, K> extends { errors: infer E } ? Failure<E> : PenstockError;

/** What a message of the server carries besides its payload. */
export interface Meta {
  /** The clock of the server in milliseconds since 1970. */
  timestamp: number;
  /** The topic of a publication. */
  topic?: string;
  /** The position of a publication in its topic, if that has a history. */
  offset?: number;
  /** The publication is part of the state that the subscription asked for. */
  state?: boolean;
}

/** Removes what the function that returned it has added. */
export type Off = () => void;

export type State = "idle" | "connecting" | "open" | "waiting" | "paused" | "closed";

export interface StateInfo {
  /** Why there is no connection. */
  error?: PenstockError;
  /** The code of the close frame, if there was one. */
  closeCode?: number;
  /** When the next attempt begins, by the monotonic clock (performance.now()). */
  retryAt?: number;
  /** Whether the session of the previous connection continues. */
  resumed?: boolean;
}

/** The headers of W3C Trace Context. */
export interface TraceContext {
  traceparent?: string;
  tracestate?: string;
}

export interface CallOptions<P = unknown> {
  /** The trace context that is sent with the message. "penstock-client/otel" sets it. */
  meta?: TraceContext;
  signal?: AbortSignal;
  /** From the call to its answer, waiting in the queue included. ClientOptions.timeoutMs by default. */
  timeoutMs?: number;
  /** more grants the call further credits, if it has any: "penstock-client/streams" uses it. */
  onProgress?: (progress: P, more: (credit: number) => void) => void;
  /** The call is sent again if the connection is lost before its answer. */
  idempotent?: boolean;
}

export interface SendOptions {
  meta?: TraceContext;
  signal?: AbortSignal;
  /** How long the message may wait in the queue. QueueOptions.maxWaitMs by default. */
  maxWaitMs?: number;
}

export interface StreamOptions<R = unknown> {
  meta?: TraceContext;
  signal?: AbortSignal;
  timeoutMs?: number;
  /** The most items that wait to be consumed, from 1. 16 by default. */
  credit?: number;
  /** Called with the reply at the end of the stream, if it was consumed to the end. */
  onReply?: (reply: R) => void;
}

/** The items of a stream. It is sent when the first item is asked for. */
export type Stream<I, R> = AsyncGenerator<I, R, undefined>;

export interface ServedContext extends TraceContext {
  /** Aborted when the server stops waiting, or the connection is lost. */
  signal: AbortSignal;
  /** How long the server waits. */
  timeoutMs?: number;
}

export interface Position {
  epoch: string;
  offset: number;
}

/** Publications that this client will not receive. Unless it is exact, load the state again. */
export interface Loss {
  topic: string;
  /** The first and last offset that are lost. Absent: it is unknown what is lost. */
  lost?: { from: number; to: number } | undefined;
  /** Where the previous epoch ended: its publications with higher offsets are void. */
  ended?: Position | undefined;
}

export interface Member {
  connId: string;
  tenantId?: string;
  userId?: string;
  info?: string;
}

export interface TopicOptions<C, M extends string> {
  /** Handlers by type, for publications of this topic. */
  on?: { [K in M]?: (payload: PayloadOf<C, K>, meta: Meta) => void };
  /** Begins behind this position instead of now. One without an epoch is none. */
  since?: Position;
  /** Without since, and after onLoss, begins with that many of the latest publications: fewer if the history has no more, and more
   * if another subscription of the topic asks for more, or begins earlier. Client.onError learns if the topic has none. */
  last?: number;
  /** Called before the state arrives, with the number of its messages that come before any other. Those of a large state
   * also come between publications, which are newer: Meta.state marks them. Setting it asks for the state of a topic. */
  onReset?: (messages: number) => void;
  onLoss?: (loss: Loss) => void;
  /** Called with all members at each change. Setting it asks for the presence of a topic. Never called if the topic has none:
   * a listener of $error then gets FAILED_PRECONDITION. */
  onPresence?: (members: Member[]) => void;
  /** Subscribes without being present, which the server must permit. The client is present nevertheless while another subscription of the topic
   * is not hidden. */
  hidden?: boolean;
  /** The server has accepted the subscription, also after each reconnection. */
  onReady?: () => void;
  /** The server has rejected the subscription for good. */
  onEnd?: (error: PenstockError) => void;
}

export interface Subscription {
  readonly topic: string;
  /** Up to where publications were handled; undefined if the topic has no history, or while its state is not complete. */
  readonly position: Position | undefined;
  unsubscribe(): void;
}

export interface Client<C = AnyContract> {
  readonly state: State;
  /** undefined unless the state is open. */
  readonly connection: Connection | undefined;
  onState(listener: (state: State, info: StateInfo) => void): Off;
  /** Listens for errors that no promise reports: of events whose handler failed after they were admitted, handlers of the client and token requests. */
  onError(listener: (error: unknown, type?: string) => void): Off;
  /** Resolved when the connection is open, rejected when the client has stopped. */
  connect(): Promise<void>;
  /** Rejects everything that waits, and closes the connection. */
  close(): void;
  call<K extends CallName<C>>(type: K, ...args: CallArguments<C, K>): Promise<ReplyOf<C, K>>;
  /** Sends an event. The promise is resolved when the server has acknowledged that it has admitted the event, before its handler runs. */
  sendWithAck<K extends Key<Section<C, "events">>>(type: K, ...args: Payload<Section<C, "events">[K], SendOptions>): Promise<void>;
  on<K extends Key<Section<C, "received">>>(type: K, handler: (payload: Section<C, "received">[K], meta: Meta) => void): Off;
  /** Answers calls of the server with messages of the type replyType. It needs ClientOptions.serving. */
  handle<K extends Key<Section<C, "served">>>(
    type: K,
    replyType: Section<C, "served">[K] extends { replyType: infer N } ? N : string,
    handler: (
      request: Part<Section<C, "served">[K], "request">,
      context: ServedContext,
    ) => Part<Section<C, "served">[K], "reply"> | Promise<Part<Section<C, "served">[K], "reply">>,
  ): Off;
  subscribe<T extends TopicName<C>>(topic: T, options?: TopicOptions<C, MessageOf<C, T>>): Subscription;
  /** Publications of all topics that are lost, including those to which the server has subscribed the client. */
  onLoss(listener: (loss: Loss) => void): Off;
  /** When the limits permit a message of the type, by the monotonic clock in milliseconds; undefined: now, as far as known, or without ClientOptions.pacing. */
  nextAllowedAt(type: SentName<C>): number | undefined;
  /** Refreshes the identity of the connection with a new token. */
  authenticate(): Promise<void>;
  /** What the client is doing, for people who look for a fault. */
  inspect(): Inspection;
}

/** What the server has said about the connection. */
export interface Connection {
  /** Identifies the connection in the logs of the server; undefined if the server does not know the greeting. */
  id: string | undefined;
  /** Member.connId of this client: the id of the first connection of the session. Where members are users (PresenceGrace), compare userId. */
  memberId: string | undefined;
  /** Whether the session of the connection before continues. */
  resumed: boolean;
  /** The hash of the messages of the server: compare it with contractHash of the generated contract. */
  contractHash: string | undefined;
}

export interface Inspection {
  /** Messages that wait to be sent. */
  waiting: number;
  /** Messages without an answer or a confirmation. */
  unanswered: number;
  /** What the client would ask for on another connection: the topics with subscriptions of this client, or of the server, and their positions. */
  topics: { topic: string; epoch?: string; offset?: number; state: boolean; presence: boolean; hidden?: boolean }[];
}

export interface QueueOptions {
  /** The most messages that wait, 1,000 by default. */
  maxMessages?: number;
  /** The most characters of their payloads, 1,000,000 by default. */
  maxBytes?: number;
  /**
   * What happens when the queue is full. drop-newest (default): the new message is rejected. drop-oldest: the message
   * that has waited longest is rejected.
   */
  overflow?: "drop-oldest" | "drop-newest";
  /** How long an event waits, 30,000 by default. Calls wait until their deadline. */
  maxWaitMs?: number;
}

/** The type of the function pacing, which only the client calls. */
export type Pacing = (env: any) => object;

/** The type of the function serving, which only the client calls. */
export type Serving = (env: any, outbox: any) => object;

/** How messages are written and read, in place of JSON. */
export interface Format {
  /** The payload of a message: the text of JSON, or what has a length and the method join. */
  stringify(payload: unknown, type: string): any;
  /** The message that was received. */
  parse(data: any): any;
}

export interface ClientOptions {
  /** The URL of the server, ws: or wss:. A function is called before each attempt. */
  url: string | (() => string | Promise<string>);
  /**
   * Returns the token that the handshake sends as a subprotocol, because pages cannot set headers, and URLs are written to
   * logs. Called before each attempt, and when the identity is about to expire. expired: the server has rejected the last
   * token. signal: aborted when the token is not needed any more, because it has taken too long or the client is closed.
   */
  token?: (why: { expired: boolean; signal: AbortSignal }) => string | Promise<string>;
  protocols?: string[];
  /** Asks the server for a session, so that the next connection resumes it: it restores subscriptions that handlers of the server have made. */
  resume?: boolean;
  /** Asks the server for the trace context of its calls, which ServedContext then has if the server traces them. */
  trace?: boolean;
  /** The time of a call without timeoutMs, 30,000 by default. */
  timeoutMs?: number;
  queue?: QueueOptions;
  /** The function pacing of "penstock-client/pacing": sends only what the limits of the server permit, and repeats rejected messages in order. */
  pacing?: Pacing;
  /** The function serving of "penstock-client/serving": answers calls of the server by the functions of Client.handle. */
  serving?: Serving;
  /** Set by the function cbor of "penstock-client/cbor": payloads are CBOR instead of JSON. */
  format?: Format;
  /** Returns true if the client must not connect again after a close code of the application. */
  stopOn?: (code: number) => boolean;
  /**
   * Called with what the client passes on and sends, by the name of the event and its arguments: the type of a message with its
   * payload and Meta, or $state, $error, $loss and $sent.
   */
  log?: (event: string, ...details: unknown[]) => void;
  /** The constructor of the connection; needed where there is no global WebSocket. */
  webSocket?: new (url: string, protocols: string[]) => WebSocketLike;
  /** For tests: the time. */
  clock?: Clock;
  /** For tests: returns numbers from 0 to 1, without 1. */
  random?: () => number;
  /** For tests: receives the events of the page; null: none. */
  page?: PageLike | null;
}

/** The part of WebSocket that the client uses. */
export interface WebSocketLike {
  binaryType: string;
  readonly bufferedAmount: number;
  onopen: ((event: any) => void) | null;
  onmessage: ((event: any) => void) | null;
  onclose: ((event: any) => void) | null;
  onerror: ((event: any) => void) | null;
  send(data: string | Uint8Array<ArrayBuffer>): void;
  close(code?: number, reason?: string): void;
}

export interface Clock {
  /** Milliseconds of a monotonic clock. */
  now(): number;
  /** timers that only watch the connection must not keep a process running. */
  setTimeout(callback: () => void, ms: number, watch?: boolean): unknown;
  clearTimeout(timer: any): void;
}

export interface PageLike {
  addEventListener(type: string, listener: (event: any) => void, options: { signal: AbortSignal }): void;
  readonly document?: { readonly visibilityState: string };
}

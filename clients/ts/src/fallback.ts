import type { FallbackSocket, Mode } from "./fallback-http.js";
import type { ClientOptions, WebSocketLike } from "./types.js";

// When WebSocket is blocked: who uses HTTP instead, and who returns.

const PROOF_MS = 5_000; // to the first message, and from there
const CHECK_MS = 2_000; // where HTTP takes longer, WebSocket may be slow and not blocked
const HINT_MS = 600_000;
const MIN_PROBE_MS = 60_000;
const MAX_PROBE_MS = 1_800_000;
const WAKE_PROBE_MS = 5_000;
const PROBE_MS = 10_000; // from a probe to its end
const APART_MS = 1_000; // of the messages of a probe, which the server sends 3 s apart

const LOST = 1006;
const GOAWAY = '{"type":"$ws:goaway","meta":{},"payload":{"reconnectAfterMs":0}}';

const noop = () => {};

/** wifi or cellular, for example; undefined where browsers do not tell. */
const currentNetwork = (): unknown => (globalThis.navigator as any)?.connection?.type;

/**
 * How messages travel: by WebSocket; over HTTP, by a response that lasts or by one for each batch; blocked: WebSocket is, and
 * HTTP is not used.
 */
export type Transport = "websocket" | "stream" | "poll" | "blocked";

/**
 * Why. connected, returned: a WebSocket has received a message, for the first time or after another transport. refused, ended,
 * silent: the last attempt by WebSocket was not opened, was cut off soon after, or received nothing for 5 s. remembered: by the
 * page before. option: by FallbackOptions.mode.
 */
export type Reason = "connected" | "returned" | "refused" | "ended" | "silent" | "remembered" | "option";

export interface FallbackOptions {
  /** Where the server has mounted Router.HTTPFallback, without a query. */
  url: string;
  /** Called when the transport is known, and when it changes. */
  onTransport?: (transport: Transport, reason: Reason) => void;
  /**
   * measure: uses WebSocket only, and reports blocked where it would use HTTP. It needs no Router.HTTPFallback: any URL of the
   * server will do that has an answer with a status below 500. stream, poll: uses HTTP only, for tests.
   */
  mode?: "measure" | "stream" | "poll";
  /** The constructor of a WebSocket; needed where there is no global one. */
  webSocket?: new (url: string, protocols?: string[]) => WebSocket;
}

/**
 * Returns a constructor for ClientOptions.webSocket: its connections are WebSockets, or use HTTP where WebSocket is blocked. A
 * client needs one of its own.
 */
export function fallback({ url, onTransport, mode, webSocket }: FallbackOptions): NonNullable<ClientOptions["webSocket"]> {
  const key = "penstock-fallback " + url;
  const measures = mode === "measure";
  const attempts = new Set<WebSocket>(); // that have received nothing
  const connections = new Set<FallbackSocket>();
  let hint: { mode: Mode; until: number } | undefined; // use HTTP until a time of Date.now
  let reason: Reason = mode ? "option" : "remembered"; // why HTTP is used
  let network = currentNetwork();
  let worked = false; // a message has arrived by WebSocket, on this network
  let failures = 0; // in a row
  let reported: Transport | undefined;
  let probeMs = MIN_PROBE_MS;
  let probedAt = 0;
  let probeAt = 0; // when probeTimer is due
  let probeTimer: any;

  // Not before the first connection: where pages are rendered there may be no WebSocket.
  const open = (address: string, protocols?: string[]) => new (webSocket ?? WebSocket)(address, protocols);

  function remember(next?: typeof hint): void {
    hint = next;
    try {
      sessionStorage[key] = JSON.stringify(next);
    } catch {} // there is none, or cookies are forbidden
  }

  function report(transport: Transport, why: Reason): void {
    if (transport !== reported) queueMicrotask(() => onTransport?.(transport, why));
    reported = transport;
  }

  /** What is known of WebSocket begins anew. */
  function restart(works: boolean): void {
    worked = works;
    failures = 0;
    remember();
  }

  /** Whether HTTP works, and the permission of the server. */
  async function askByHTTP() {
    const request: RequestInit = { mode: measures ? "no-cors" : "cors", credentials: "include", cache: "no-store", signal: AbortSignal.timeout(CHECK_MS) };
    const { status = 500, headers } = (await fetch(url, request).catch(noop)) ?? {};
    const permission = headers?.get("Penstock-Fallback");
    return { works: measures ? status < 500 && status !== 429 : status === 204 && !!permission, permitted: !measures && permission !== "0" };
  }

  function byWebSocket(address: string, protocols: string[], binary: boolean): WebSocketLike {
    const socket = open(address, protocols);
    let opened = false;
    let heard = false;
    let undecided = true;
    const decide = () => {
      clearTimeout(timer);
      return undecided && !(undecided = false);
    };
    const prove = () => {
      decide();
      probeMs = MIN_PROBE_MS;
      restart(true);
    };
    const fail = async (why: Reason) => {
      // The client removes its listener from a socket that it closes: such an attempt decides nothing.
      if (!decide() || !socket.onclose || globalThis.navigator?.onLine === false) return;
      const { works, permitted } = await askByHTTP();
      if (heard && why === "silent") return; // late
      failures = works ? failures + 1 : 0;
      if (failures < (worked ? 3 : why === "silent" ? 1 : 2)) return; // at the end of an outage, an attempt may fail just before HTTP works
      if (binary || !permitted) return report("blocked", why);
      reason = why;
      remember({ mode: "stream", until: Date.now() + HINT_MS });
      for (const attempt of attempts) attempt.onclose?.({ code: LOST, reason: "" } as CloseEvent); // their own event may take minutes
    };
    let timer = setTimeout(fail, PROOF_MS, "silent");
    attempts.add(socket);
    socket.addEventListener("open", () => (opened = true));
    socket.addEventListener("message", () => {
      if (heard) return;
      heard = worked = undecided = true;
      attempts.delete(socket);
      report("websocket", reported ? "returned" : "connected");
      clearTimeout(timer);
      timer = setTimeout(prove, PROOF_MS); // some proxies let the first messages pass
    });
    socket.addEventListener("close", ({ code }) => {
      attempts.delete(socket);
      if (!undecided) return;
      // Only the server closes with these codes.
      if (code === 1012 || code === 1013 || code >= 4000 || (heard && code !== LOST)) prove();
      else void fail(opened ? "ended" : "refused");
    });
    return socket;
  }

  function byHTTP(address: string, protocols: string[], first: Mode): WebSocketLike {
    let closed = false;
    const handlers = { onopen: null, onmessage: null, onclose: null, onerror: null };
    const socket: FallbackSocket = {
      ...handlers,
      binaryType: "",
      bufferedAmount: 0,
      send: noop,
      turn: noop,
      close() {
        closed = true;
        ended();
      },
    };
    const used = (by: Mode) => {
      if (hint && hint.mode !== by) remember({ ...hint, mode: by });
      report(by, reason);
    };
    const ended = (refused?: boolean) => {
      connections.delete(socket);
      if (refused) remember(); // perhaps for the reason for which the attempts by WebSocket have failed
    };
    const failed = () => {
      ended(true);
      socket.onclose?.({ code: LOST, reason: "" });
    };
    // Only those who are blocked load it.
    import("./fallback-http.js").then(({ connect }) => closed || connect(socket, url, { protocols, query: address.split("?")[1] }, first, used, ended), failed);
    connections.add(socket);
    if (!mode) probeTimer ??= probeAfter(probeMs);
    return socket;
  }

  function probeAfter(ms: number): unknown {
    const wait = ms * (0.75 + Math.random() / 2);
    probeAt = Date.now() + wait;
    const timer: any = setTimeout(probe, wait);
    timer.unref?.(); // Node.js only
    return timer;
  }

  /** Tries whether a WebSocket lasts. If so, clients on HTTP move as if the server had asked them to. */
  function probe(): void {
    probeTimer = undefined;
    if (!connections.size) return;
    probedAt = Date.now();
    probeMs = Math.min(2 * probeMs, MAX_PROBE_MS);
    probeTimer = probeAfter(probeMs);
    const socket = open(new URL(url, globalThis.location?.href).href.replace("http", "ws"));
    let firstAt = 0;
    socket.onerror = noop;
    socket.onmessage = () => {
      firstAt ||= Date.now();
      if (Date.now() - firstAt < APART_MS) return;
      restart(true);
      for (const { onmessage } of connections) onmessage?.({ data: GOAWAY });
    };
    setTimeout(() => socket.close(), PROBE_MS);
  }

  /** The network may have changed. */
  function probeSoon(): void {
    // What is due soon stays: pages that wake up again and again would delay it without end.
    if (!probeTimer || Date.now() - probedAt < MIN_PROBE_MS || probeAt - Date.now() <= 1.25 * WAKE_PROBE_MS) return;
    clearTimeout(probeTimer);
    probeTimer = probeAfter(WAKE_PROBE_MS);
  }

  try {
    hint = JSON.parse(sessionStorage[key]);
  } catch {}
  globalThis.addEventListener?.("online", () => {
    restart(false);
    probeSoon();
  });
  globalThis.document?.addEventListener("visibilitychange", () => {
    for (const connection of connections) connection.turn();
    if (document.visibilityState === "visible") probeSoon();
  });

  return class {
    constructor(address: string, protocols: string[]) {
      if (network !== (network = currentNetwork())) restart(false);
      const binary = /^penstock\.v1\./m.test(protocols.join("\n")); // HTTP carries text
      const remembered = hint && hint.until > Date.now() ? hint.mode : undefined;
      const first = measures || binary ? undefined : (mode ?? remembered);
      return first ? byHTTP(address, protocols, first) : byWebSocket(address, protocols, binary);
    }
  } as any;
}

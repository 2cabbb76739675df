import { backoff, closeError, delayAfter, isViolation } from "./close.js";
import { type Env, noop } from "./env.js";
import { PenstockError } from "./errors.js";
import { type Frame, type Link, write } from "./link.js";
import type { Outbox } from "./outbox.js";
import type { Pacer } from "./pacing.js";
import type { ClientOptions, State, StateInfo } from "./types.js";

// One connection at a time, reconnection, and the greeting.

const CONNECT_TIMEOUT_MS = 10_000;
const CLOSE_TIMEOUT_MS = 2_000;
const HEALTHY_AFTER_MS = 5_000; // a connection that lasts this long ends the backoff
const RETIRED_MS = 10_000; // for the answers to calls of a connection that was replaced
const RECHECK_MS = 100;
const WAKE_INTERVAL_MS = 1_000;
const WAKE_PROBE_MS = 3_000;

/** What the parts of the client do with a connection. */
export interface Uses {
  /** Topics and positions that the new connection continues. */
  resumable(): object[];
  /** A connection is open; results is the answer to the topics above if the session continues. */
  opened(link: Link, results: any[] | undefined): void;
  lost(link: Link, unhandled: boolean): void;
  received(link: Link, frame: Frame): void;
  stopped(error: PenstockError): void;
  changed(state: State, info: StateInfo): void;
}

export function createConnection(options: ClientOptions, env: Env, pacer: Pacer, outbox: Outbox, uses: Uses) {
  const { now, after, random } = env;
  let state: State = "idle";
  let current: Link | undefined; // carries messages
  let opening: Link | undefined; // until it is open
  let generation = 0; // of attempts: each callback and promise may outlive its attempt
  let attempt = 0;
  let openedAt = Infinity;
  let dialedAt = -Infinity;
  let expired = false; // the last token was rejected
  let violated = false;
  let session: { token: string; resumeWithinMs: number } | undefined;
  let lostAt = 0;
  let heardAt = 0;
  let silenceMs = 25_000; // before a heartbeat
  let pongMs = 10_000;
  let stopAttempt = noop;
  let stopRetry = noop;
  let stopWatch = noop;
  let stopLeave = noop;
  let onClosed: (() => void) | undefined;
  let closing: Promise<void> | undefined;

  const setState = (next: State, info: StateInfo = {}) => {
    state = next;
    uses.changed(next, info);
  };

  /** Detaches a link and closes its socket, without waiting for the close event. */
  const release = (link: Link | undefined, code?: number) => {
    if (!link) return;
    const { socket } = link;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.onerror = noop;
    socket.close(code);
  };

  /** Releases a link, whose calls are lost. */
  const drop = (link: Link | undefined, code?: number) => {
    release(link, code);
    if (link) uses.lost(link, false);
  };

  const fetchToken = async (signal: AbortSignal) => options.token?.({ expired, signal });

  async function dial(): Promise<void> {
    stopRetry();
    const mine = ++generation;
    const controller = new AbortController();
    stopAttempt();
    const stopTimer = after(CONNECT_TIMEOUT_MS, () => fail("no connection within 10 s"));
    stopAttempt = () => {
      stopTimer();
      controller.abort();
      stopAttempt = noop;
      const link = opening;
      opening = undefined;
      if (link) drop(link);
    };
    const fail = (error: unknown) => {
      if (mine !== generation) return;
      stopAttempt();
      ended(1006, error instanceof PenstockError ? error : new PenstockError("UNAVAILABLE", String(error), { retryable: true, cause: error }));
    };
    dialedAt = now();
    if (!current) setState("connecting");
    try {
      const { url, tokenIn, protocols = [], webSocket = globalThis.WebSocket } = options;
      const [base, token] = await Promise.all([typeof url === "function" ? url() : url, fetchToken(controller.signal)]);
      if (mine !== generation) return;
      const inQuery = token !== undefined && tokenIn !== "protocol";
      const target = inQuery ? `${base}${base.includes("?") ? "&" : "?"}access_token=${encodeURIComponent(token)}` : base;
      open(new webSocket(target, token === undefined || inQuery ? protocols : [...protocols, "bearer." + token]), mine);
    } catch (error) {
      if (mine === generation) env.report(error);
      fail(error);
    }
  }

  function open(socket: Link["socket"], mine: number): void {
    const link: Link = (opening = { socket });
    socket.binaryType = "arraybuffer"; // a Blob is read asynchronously, which reorders messages
    socket.onerror = noop; // the close event follows
    socket.onopen = () => {
      pacer.reset();
      greet(link);
    };
    socket.onmessage = ({ data }) => {
      if (link === current || link === opening) heardAt = now();
      let frame: Frame;
      try {
        frame = JSON.parse(data);
      } catch (error) {
        return env.report(error);
      }
      if (frame.type === "$ws:goaway") return leave(link, frame.payload.reconnectAfterMs);
      uses.received(link, frame);
    };
    socket.onclose = ({ code, reason }) => {
      release(link);
      const error = closeError(code, reason);
      if (link === opening && mine === generation) stopAttempt();
      if (link === current) current = undefined;
      // Before it closes a connection to restart, the server answers everything that it has handled.
      uses.lost(link, code === 1012 && reason.startsWith("{"));
      if (link.retired) return;
      ended(code, error);
    };
  }

  /** Greets, and continues the session if there is one. The connection is open after the answer. */
  function greet(link: Link): void {
    const resume = link === opening && session && (current || now() - lostAt < session.resumeWithinMs) ? session.token : undefined;
    const hello = (wantsSession: boolean | undefined, done: () => void) =>
      outbox.ask(link, "$ws:hello", wantsSession ? { session: true } : undefined, (error, welcome) => {
        if (error && link !== opening && link !== current) return;
        if (welcome) {
          pacer.announce(welcome.limits);
          silenceMs = welcome.pingIntervalMs;
          pongMs = welcome.pongTimeoutMs;
          if (wantsSession) session = welcome.session;
        }
        done();
      });
    hello(options.session && !resume && link === opening, () => resume || opened(link));
    if (!resume) return;
    outbox.ask(link, "$ws:resume", { token: resume, topics: uses.resumable() }, (error, answer, id) => {
      if (link !== opening) return;
      if (!error) {
        session = answer.session;
        outbox.control(link, "$ws:ack", { correlationId: id });
        return opened(link, answer.topics);
      }
      if (error.retryable) {
        stopAttempt();
        return ended(1013, error);
      }
      session = undefined;
      hello(true, () => opened(link));
    });
  }

  function opened(link: Link, results?: any[]): void {
    if (link !== opening) return; // greeted again
    const old = current;
    opening = undefined;
    stopAttempt();
    current = link;
    openedAt = now();
    if (old) retire(old);
    watch(silenceMs);
    uses.opened(link, results);
    setState("open", { resumed: !!results });
  }

  /** Keeps a link that was replaced until its calls are answered. */
  function retire(old: Link): void {
    old.retired = true;
    const until = now() + RETIRED_MS;
    const check = (): void => {
      if (!outbox.isIdle(old) && now() < until) return void after(RECHECK_MS, check);
      return drop(old, 1000);
    };
    check();
  }

  /** The server asks for another connection. A session ends its old connection, so it moves between calls. */
  function leave(link: Link, ms: number): void {
    if (link !== current) return;
    stopLeave();
    stopLeave = after(ms, () => {
      if (link !== current || opening) return;
      if (session && !outbox.isIdle(link)) return leave(link, RECHECK_MS);
      attempt = 0;
      void dial();
    });
  }

  /** The connection or an attempt has ended. */
  function ended(code: number, error: PenstockError): void {
    if (onClosed) return onClosed();
    if (!current) {
      if (now() - openedAt >= HEALTHY_AFTER_MS) {
        attempt = 0;
        expired = violated = false;
      }
      if (openedAt < Infinity) lostAt = now();
      openedAt = Infinity;
      outbox.use(undefined);
      stopWatch();
    }
    const again = violated;
    violated = isViolation(code);
    if (code === 4403 || (code === 4401 && expired) || (violated && again) || (code >= 4000 && options.stopOn?.(code, error.message))) {
      return stop(error, code);
    }
    if (code === 4401) expired = true;
    if (stopAttempt !== noop) return current ? undefined : setState("connecting");
    const delay = delayAfter(code, error, attempt++, random);
    retry(delay);
    if (!current) setState("waiting", { error, closeCode: code, retryAt: now() + delay });
  }

  function retry(ms: number): void {
    stopRetry();
    stopRetry = after(ms, dial);
  }

  function stop(error: PenstockError, closeCode?: number): void {
    disconnect();
    session = undefined;
    attempt = 0;
    expired = violated = false;
    uses.stopped(error);
    setState("closed", closeCode === undefined ? { error } : { error, closeCode });
  }

  /** Ends the connection and all attempts. Without a code, the session stays. */
  function disconnect(): void {
    generation++;
    for (const f of [stopAttempt, stopRetry, stopWatch, stopLeave]) f();
    const link = current;
    current = undefined;
    if (openedAt < Infinity) lostAt = now();
    openedAt = Infinity;
    outbox.use(undefined);
    drop(link);
  }

  /**
   * Checks after ms whether something was received, and sends a heartbeat after silence. Timers may be late: only
   * silence by the clock counts, and after a suspension messages may wait unread.
   */
  function watch(ms: number, probedAt?: number): void {
    stopWatch();
    const due = now() + ms;
    stopWatch = after(
      ms,
      () => {
        const late = now() - due > ms;
        const silent = now() - heardAt;
        if (probedAt !== undefined && heardAt < probedAt && !late) return abandon();
        if (silent < silenceMs) return watch(silenceMs - silent);
        probe(pongMs);
      },
      true,
    );
  }

  function probe(limitMs: number): void {
    outbox.control(current!, "__heartbeat", {});
    watch(limitMs, now());
  }

  /** The connection is lost without a close event, which may take minutes. */
  function abandon(): void {
    const link = current;
    current = undefined;
    drop(link);
    ended(1006, new PenstockError("UNAVAILABLE", "the server is silent", { retryable: true }));
  }

  return {
    get state() {
      return state;
    },
    get link() {
      return current;
    },

    start() {
      if (state === "idle" || state === "closed") void dial();
    },

    /** Greets again, to learn changed limits. */
    greet: () => current && greet(current),

    fetchToken,

    close(): Promise<void> {
      return (closing ??= new Promise((resolve) => {
        const error = new PenstockError("CANCELLED", "the client was closed");
        const finish = (onClosed = () => {
          stopTimer();
          onClosed = closing = undefined;
          if (state !== "closed") stop(error);
          resolve();
        });
        const stopTimer = after(CLOSE_TIMEOUT_MS, finish);
        if (!current) return finish();
        uses.stopped(error);
        setState("closing");
        current.socket.close(1000);
      }));
    },

    /** The page has become visible, or the network has returned. */
    wake() {
      if (state === "waiting" || state === "paused") retry(Math.max(0, dialedAt + WAKE_INTERVAL_MS - now()));
      else if (current && state === "open") probe(Math.min(pongMs, WAKE_PROBE_MS));
    },

    /** The page is hidden for good, or enters the cache of the browser. The session stays. */
    pause() {
      if (state === "idle" || state === "closed" || state === "closing") return;
      disconnect();
      setState("paused");
    },
  };
}

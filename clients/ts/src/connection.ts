import { backoffAfter, closeError } from "./close.js";
import { HEALTHY_AFTER_MS, STOP, UNAUTHENTICATED, VIOLATION } from "./closecodes.js";
import { type Env, noop } from "./env.js";
import { failure, PenstockError } from "./errors.js";
import type { Frame, Link } from "./link.js";
import type { Done, Outbox } from "./outbox.js";
import type { Pacer } from "./pacer.js";
import { watchPage } from "./pages.js";
import type { Payloads, Replies, ResumedTopic, SessionGrant } from "./protocol.js";
import type { Topics } from "./topics.js";
import type { ClientOptions, Connection, Off, State, StateInfo } from "./types.js";

// One connection at a time, reconnection, and the greeting.

const CONNECT_TIMEOUT_MS = 10_000;
const WAKE_INTERVAL_MS = 1_000;
const WAKE_PROBE_MS = 3_000;
const TOO_BIG = 1009; // a message of the client

export function createConnection(options: ClientOptions, env: Env, pacer: Pacer | undefined, outbox: Outbox, topics: Topics, received: (link: Link, frame: Frame) => void) {
  const { now, after, random, format } = env;
  let state: State = "idle";
  const links = new Set<Link>();
  let current: Link | undefined; // carries messages
  let opening: Link | undefined; // until it is open
  let attempts = 0;
  let openedAt: number;
  let dialedAt: number;
  let lostAt: number;
  let heardAt: number; // 0: nothing since the last heartbeat
  let due: number; // when the watch checks that
  let retryFrom = 0; // no attempt before, as the server demands
  let failedWith = 0; // the close code after which the client stops at the second time
  let session: SessionGrant | undefined;
  let silenceMs = 25_000; // before a heartbeat
  let pongMs = 10_000;
  let stopAttempt: ((cause?: unknown) => void) | undefined; // with a cause, the attempt has failed
  let stopRetry = noop;
  let stopWatch = noop;
  let stopPage: Off | undefined;

  const setState = (next: State, info: StateInfo = {}) => {
    state = next;
    env.deliver("$state", next, info);
  };

  /** Detaches a link, whose calls are lost, and closes its socket without waiting for the close event. */
  const drop = (link: Link, code?: number, tooBig?: boolean) => {
    const { socket } = link;
    socket.onopen = socket.onmessage = socket.onclose = null;
    links.delete(link);
    if (link === opening) {
      opening = undefined;
      if (current) use(current); // which the session has not left
    }
    if (link === current) {
      current = undefined;
      stopWatch();
      lostAt = now();
      endBackoff();
      use();
    }
    outbox.unansweredOn(link).forEach((entry, i) => entry.drop(tooBig && !i)); // the server does not say which one was too big
    link.answering?.forEach((controller) => controller.abort());
    socket.close(code);
  };

  /** A connection that was open for a while ends the backoff. */
  const endBackoff = () => {
    if (now() - openedAt >= HEALTHY_AFTER_MS) attempts = failedWith = 0;
  };

  /** Without a link that carries messages, they wait. */
  const use = (link?: Link) => {
    topics.online(!!link);
    outbox.use(link);
  };

  const ask = <T extends keyof Replies>(link: Link, type: T, payload: Payloads[T] | undefined, done: Done<Payloads[Replies[T]]>) =>
    outbox.submit({ type, payload, first: true, done }, link);

  const fetchToken = (signal: AbortSignal) => options.token?.({ expired: failedWith === UNAUTHENTICATED, signal });

  async function dial(): Promise<void> {
    stopAttempt?.();
    stopRetry();
    const controller = new AbortController();
    const { signal } = controller; // aborted: promises that outlive the attempt have no effect
    const stopTimer = after(CONNECT_TIMEOUT_MS, () => stopAttempt!("timeout"));
    stopAttempt = (cause) => {
      stopAttempt = undefined;
      stopTimer();
      controller.abort();
      if (opening) drop(opening);
      if (cause) {
        env.deliver("$error", cause);
        ended(1006, failure("UNAVAILABLE", cause));
      }
    };
    dialedAt = now();
    if (!current) setState("connecting");
    try {
      const { url, protocols = [] } = options as { url: any; protocols?: string[] };
      const [address, token] = await Promise.all([url.call ? url() : url, fetchToken(signal)]);
      if (signal.aborted) return;
      let socket;
      try {
        socket = new (options.webSocket ?? WebSocket)(address, token ? [...protocols, "bearer." + encodeURIComponent(token)] : protocols);
      } catch (cause) {
        return stop({ error: failure("FAILED_PRECONDITION", cause) }); // the next attempt would end like this
      }
      open(socket);
    } catch (error) {
      if (!signal.aborted) stopAttempt!(error);
    }
  }

  function open(socket: Link["socket"]): void {
    const link: Link = (opening = { socket, openCalls: 0, about: {} as Connection });
    links.add(link);
    socket.binaryType = "arraybuffer"; // a Blob is read asynchronously, which reorders messages
    socket.onerror = noop; // the close event follows
    socket.onopen = () => greet(link);
    socket.onmessage = ({ data }) => {
      heardAt = now();
      env.emit([
        () => {
          const frame: Frame = format.parse(data);
          if (frame.type === "$ws:goaway") {
            if (link === current) move(frame.payload.reconnectAfterMs);
          } else received(link, frame);
        },
      ]);
      dropRetired(link);
    };
    socket.onclose = ({ code, reason }) => {
      if (link === opening) stopAttempt!();
      else drop(link, undefined, code === TOO_BIG);
      if (!link.retired) ended(code, closeError(code, reason));
    };
  }

  /** Greets, and continues the session if there is one. The connection is open after the answer. */
  function greet(link: Link): void {
    const token = session?.token;
    const resumes = token && (current || now() - lostAt < session!.resumeWithinMs);
    pacer?.restart();
    ask(link, "$ws:hello", { trace: options.trace, session: !resumes && options.resume } as Payloads["$ws:hello"], (error, welcome) => {
      if (link !== opening) return;
      if (!error) {
        pacer?.announce(welcome!.limits);
        env.welcome = welcome!;
        silenceMs = welcome!.pingIntervalMs;
        pongMs = welcome!.pongTimeoutMs;
        link.about.id = link.about.memberId = welcome!.connId;
        link.about.contractHash = welcome!.contractHash;
        if (!resumes) session = welcome!.session;
      }
      if (!resumes) opened(link);
    });
    if (!resumes) return;
    if (!current) return resume(link, token);
    // The server rejects what arrives on the old link after the session has left it. This answer shows that all has arrived.
    use();
    ask(current, "$ws:hello", undefined, () => link === opening && resume(link, token));
  }

  function resume(link: Link, token: string): void {
    let room = env.welcome.maxMessageBytes! / 2;
    // The others are subscribed to afterwards.
    ask(link, "$ws:resume", { token, topics: topics.resumable().filter((topic) => (room -= JSON.stringify(topic).length) > 0) }, (error, answer, id) => {
      if (link !== opening) return;
      if (!error) {
        session = answer!.session;
        link.about.memberId = answer!.memberId;
        outbox.tell(link, "$ws:ack", { correlationId: id });
        opened(link, answer!.topics);
      } else if (error.retryable) {
        stopAttempt!();
        ended(1013, error);
      } else {
        session = undefined;
        greet(link);
      }
    });
  }

  function opened(link: Link, results?: ResumedTopic[]): void {
    const old = current;
    use();
    current = link;
    const resumed = (link.about.resumed = !!results);
    opening = undefined;
    stopAttempt!();
    openedAt = now();
    watch(silenceMs);
    topics.opened(results);
    if (link !== current) return; // a function of the application has closed the client
    outbox.use(link);
    if (old) {
      old.retired = true;
      dropRetired(old);
    }
    setState("open", { resumed });
  }

  /** Closes a link that was replaced when its calls are answered. If they take long, the server closes it. */
  function dropRetired(link: Link): void {
    if (link.retired && !outbox.unansweredOn(link).length) drop(link, 1000);
  }

  /** The connection or an attempt has ended. */
  function ended(closeCode: number, error: PenstockError): void {
    if (state === "closed") return; // by a function of the application
    if (stopAttempt) return setState("connecting"); // the attempt to move to another server goes on
    const kind = closeCode === UNAUTHENTICATED ? closeCode : +VIOLATION.includes(closeCode);
    // With null, the server accepts no later connection either.
    if (STOP.includes(closeCode) || (error.retryAfterMs === null && closeCode >= 4000) || (kind && kind === failedWith) || options.stopOn?.(closeCode))
      return stop({ error, closeCode });
    failedWith = kind;
    const demanded = error.retryAfterMs || 0;
    const backoff = backoffAfter(closeCode, demanded, attempts++, random);
    retryFrom = now() + demanded;
    retry(demanded + backoff);
    if (!current) setState("waiting", { error, closeCode, retryAt: retryFrom + backoff });
  }

  /**
   * Connects to another server, as this one asks, and uses the current link until then. A move counts as an attempt: a server that asks
   * for it on every connection would be followed without a pause.
   */
  function move(ms: number): void {
    endBackoff();
    retry(Math.max(0, ms) + (attempts++ && backoffAfter(1006, 0, attempts, random)));
  }

  function retry(ms: number): void {
    stopRetry();
    stopRetry = after(ms, dial);
  }

  /** Ends the connection and all attempts. Without a close code, the session stays. */
  function disconnect(code?: number): void {
    stopAttempt?.();
    stopRetry();
    links.forEach((link) => drop(link, code));
  }

  function stop(info: StateInfo, code?: number): void {
    disconnect(code);
    session = undefined;
    attempts = failedWith = 0;
    stopPage?.();
    topics.online(false, true);
    outbox.endAll((entry) => entry.settle(info.error));
    env.stopAll();
    setState("closed", info);
  }

  /**
   * Checks after ms whether something was received, and sends a heartbeat after silence. Timers may be late: only
   * silence by the clock counts, and after a suspension messages may wait unread.
   */
  function watch(ms: number): void {
    due = now() + ms;
    stopWatch();
    stopWatch = after(
      ms,
      () => {
        const silent = now() - heardAt;
        if (!heardAt && silent <= due + ms) {
          // The close event of a lost connection may take minutes.
          drop(current!);
          ended(1006, failure("UNAVAILABLE", "timeout"));
        } else if (silent < silenceMs) watch(silenceMs - silent);
        else probe(pongMs);
      },
      true,
    );
  }

  function probe(ms: number): void {
    outbox.tell(current!, "__heartbeat");
    heardAt = 0;
    watch(ms);
  }

  /** The page has become visible, or the network has returned, or has gone: its sockets may take minutes to notice. */
  function wake(offline?: boolean): void {
    if (current) {
      // An earlier end of an unanswered heartbeat is not delayed.
      if (heardAt || now() < due - WAKE_PROBE_MS) probe(WAKE_PROBE_MS);
    }
    else if (offline) stopAttempt?.("offline");
    else if (!stopAttempt) retry(Math.max(retryFrom, dialedAt + WAKE_INTERVAL_MS) - now());
  }

  /** The page enters the cache of the browser, or is not kept: then no connection resumes its session, which ends. */
  function pause(kept: boolean): void {
    disconnect(kept ? undefined : 1000);
    if (state !== "closed") setState("paused");
  }

  return {
    get state() {
      return state;
    },
    get about() {
      return current?.about;
    },
    fetchToken,

    /** Connects. again: also after close. */
    start(again?: boolean) {
      if (state !== "idle" && !(again && state === "closed")) return;
      stopPage = watchPage(options, wake, pause);
      void dial();
    },

    close() {
      if (state === "closed") return;
      stop({ error: new PenstockError("CANCELLED", "closed") }, 1000); // the session ends
    },
  };
}

import { backoff } from "./close.js";
import { addTo, type Env, noop } from "./env.js";
import { PenstockError } from "./errors.js";
import type { Frame } from "./link.js";
import type { Outbox } from "./outbox.js";
import type { Loss, Meta, Position, PresenceMember, Subscription, TopicOptions } from "./types.js";

// Subscriptions. What is wanted is the truth: requests follow from it, one at a time for each topic.

const MAX_REQUESTS = 16; // without an answer; 1 after a rejection, and one more with each success
const RETRY_MS = 1_000;

interface Sub extends TopicOptions<any, string> {
  resolve(): void;
  reject(error: PenstockError): void;
}

interface Topic {
  name: string;
  subs: Set<Sub>;
  position?: Position | undefined;
  subscribed?: boolean; // as far as the server has answered
  stale?: boolean; // the subscription must be made again, for its state or its presence
  busy?: boolean; // a request has no answer
  byServer?: boolean; // a handler of the server has subscribed
  stateLeft: number; // publications of the state that follow
  members?: Map<string, PresenceMember> | undefined;
}

export function createTopics(env: Env, outbox: Outbox, deliver: (type: string, payload: any, meta: Meta) => void) {
  const topics = new Map<string, Topic>();
  const onLoss = new Set<(loss: Loss) => void>();
  let connections = 0;
  let open = false;
  let requests = 0;
  let maxRequests = MAX_REQUESTS;
  let waitUntil = 0;

  const wants = (t: Topic, key: "onState" | "onPresence") => [...t.subs].some((s) => s[key]);
  const notify = (t: Topic, key: "onState" | "onPresence" | "onLoss", value: any) => env.emit([...t.subs].map((s) => (s[key] as any) || noop), value);

  const find = (name: string): Topic => {
    if (!topics.has(name)) topics.set(name, { name, subs: new Set(), stateLeft: 0 });
    return topics.get(name)!;
  };
  const removeUnused = (t: Topic) => {
    if (!t.subs.size && !t.subscribed && !t.busy && topics.get(t.name) === t) topics.delete(t.name);
  };

  const syncAll = () => topics.forEach(sync);

  /** Sends the request that makes the server's subscription what is wanted. */
  function sync(t: Topic): void {
    const wanted = t.subs.size > 0;
    const needed = wanted ? !t.subscribed || t.stale : t.subscribed && !t.byServer;
    if (!needed || !open || t.busy || requests >= maxRequests || env.now() < waitUntil) return;
    const mine = connections;
    const request = { topic: t.name };
    if (wanted) Object.assign(request, t.position || { positions: true }, wants(t, "onState") && { state: true }, wants(t, "onPresence") && { presence: true });
    const presented = t.position;
    t.busy = true;
    t.stale = false;
    requests++;
    outbox.enqueue({
      type: wanted ? "$ws:subscribe" : "$ws:unsubscribe",
      body: JSON.stringify(request),
      due: Infinity,
      first: true,
      done(error, answer) {
        if (mine !== connections || !open) return; // asked again on the next connection
        t.busy = false;
        requests--;
        if (error) failed(t, error, wanted);
        else if (wanted) accepted(t, answer, presented);
        else t.subscribed = t.position = t.members = undefined;
        removeUnused(t);
        syncAll();
      },
    });
  }

  function accepted(t: Topic, { epoch, offset, recovered, ended, state, members }: any, presented: Position | undefined): void {
    t.subscribed = true;
    if (maxRequests < MAX_REQUESTS) maxRequests++;
    t.position = epoch && { epoch, offset };
    t.stateLeft = state || 0;
    if (state !== undefined) notify(t, "onState", state);
    else if (presented && epoch && (ended || !recovered)) lose(t, recovered ? { topic: t.name, ended } : { topic: t.name });
    if (members) {
      t.members = undefined;
      changePresence(t, { joined: members });
    }
    for (const s of t.subs) s.resolve();
  }

  function failed(t: Topic, error: PenstockError, wanted: boolean): void {
    if (error.retryable) {
      t.stale = wanted;
      maxRequests = 1;
      const wait = (error.retryAfterMs ?? RETRY_MS) + backoff(0, env.random());
      waitUntil = env.now() + wait;
      env.after(wait, syncAll, true);
    } else if (wanted) {
      const subs = [...t.subs];
      t.subs.clear();
      for (const s of subs) {
        s.reject(error);
        env.emit([s.onEnd || noop], error);
      }
    }
  }

  function lose(t: Topic, loss: Loss): void {
    notify(t, "onLoss", loss);
    env.emit(onLoss, loss);
    if (wants(t, "onState")) refresh(t);
  }

  /** Asks for the state. With a position, the server would send what is missing instead. */
  function refresh(t: Topic): void {
    t.position = undefined;
    t.stale = true;
    sync(t);
  }

  function changePresence(t: Topic, { left = [], joined = [] }: { left?: PresenceMember[]; joined?: PresenceMember[] }): void {
    const members = (t.members ??= new Map());
    for (const member of left) members.delete(member.connId);
    for (const member of joined) members.set(member.connId, member);
    notify(t, "onPresence", [...members.values()]);
  }

  function publication(t: Topic, { type, meta, payload }: Frame): void {
    const offset = meta.offset!;
    const { position } = t;
    if (t.stateLeft) {
      t.stateLeft--;
      meta.state = true;
    } else if (position) {
      if (offset <= position.offset) return; // known
      if (offset > position.offset + 1) {
        // The server sends again what is missing, and this publication.
        t.stale = true;
        return sync(t);
      }
    }
    deliver(type, payload, meta);
    env.emit([...t.subs].map((s) => (s.on as any)?.[type] || noop), payload, meta);
    // Handled, also if a handler failed.
    if (!meta.state && position) position.offset = offset;
  }

  /** A handler of the server has subscribed the connection. */
  function subscribedByServer({ topic, epoch, offset }: any): void {
    const t = find(topic);
    t.byServer = true;
    if (t.subscribed) return;
    t.subscribed = true;
    t.position = epoch && { epoch, offset };
  }

  return {
    onLoss,

    subscribe(name: string, options: TopicOptions<any, any> = {}): Subscription {
      const t = find(name);
      if (options.from && !t.subs.size && !t.subscribed) t.position = { ...options.from };
      let sub!: Sub;
      const ready = new Promise<void>((resolve, reject) => (sub = { ...options, resolve, reject }));
      ready.catch(noop);
      t.subs.add(sub);
      if (t.subscribed && options.onState) refresh(t);
      else if (t.subscribed && options.onPresence) t.stale = true;
      if (t.subscribed && !t.stale && !t.busy) sub.resolve();
      sync(t);
      return {
        topic: name,
        ready,
        get position() {
          return t.position && { ...t.position };
        },
        unsubscribe() {
          t.subs.delete(sub);
          sub.reject(new PenstockError("CANCELLED", "unsubscribed"));
          removeUnused(t);
          sync(t);
        },
      };
    },

    /** Topics and positions for a new connection. */
    resumable: () => [...topics.values()].map((t) => ({ topic: t.name, ...t.position })),

    /** A connection is open. results: the answer to the topics above if the session continues. */
    opened(results: any[] = []) {
      connections++;
      open = true;
      requests = waitUntil = 0;
      maxRequests = MAX_REQUESTS;
      for (const t of topics.values()) {
        const result = results.find((r) => r.topic === t.name);
        t.subscribed = t.busy = false;
        t.stateLeft = 0;
        t.stale = wants(t, "onPresence");
        if (result && !result.error) accepted(t, result, t.position);
        else t.byServer = false; // subscriptions of the client are made again
        removeUnused(t);
      }
      for (const result of results) if (!result.error && !topics.has(result.topic)) subscribedByServer(result);
      syncAll();
    },

    /** There is no connection. Another one continues, or the client is closed and forgets. */
    closed(forget?: boolean) {
      open = false;
      for (const t of topics.values()) {
        t.subscribed = t.busy = false;
        if (forget) t.position = undefined;
      }
    },

    /** Handles a message of the server about a topic. Returns false if it is none. */
    receive(frame: Frame): boolean {
      const { type, meta, payload } = frame;
      const t = topics.get(meta?.topic ?? payload?.topic);
      if (type === "$ws:subscribed") subscribedByServer(payload);
      else if (!t || (!meta.topic && type[0] !== "$")) return false;
      else if (type === "$ws:unsubscribed") {
        t.byServer = t.subscribed = false;
        removeUnused(t);
      } else if (type === "$ws:presence") changePresence(t, payload);
      else if (type === "$ws:position") {
        const { topic, epoch, offset, lost, ended, reset } = payload;
        t.position = { epoch, offset };
        if (lost || ended || reset) lose(t, { topic, lost, ended });
      } else publication(t, frame);
      return true;
    },
  };
}

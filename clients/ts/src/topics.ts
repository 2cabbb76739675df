import { backoff } from "./close.js";
import type { Env } from "./env.js";
import { decodeError, failure, PenstockError } from "./errors.js";
import type { Frame } from "./link.js";
import type { Outbox } from "./outbox.js";
import type { ResumedTopic, Subscribed } from "./protocol.js";
import type { Loss, Position, Member, Subscription, TopicOptions } from "./types.js";

// Subscriptions. What is wanted is the truth: requests follow from it, one at a time for each topic.

const MAX_REQUESTS = 16; // without an answer
const RETRY_MS = 1_000;

/** since: not requested yet, without an epoch if it begins with the latest publications. handled: the offset up to which it skips publications, because another one begins at an older position. */
type Sub = Omit<TopicOptions<any, any>, "since"> & { since?: Position | undefined; handled?: number };

export function createTopics(env: Env, outbox: Outbox) {
  const topics = new Map<string, Topic>();
  let connections = 0;
  let open: boolean;
  let requests: number;
  let waitUntil: number;

  const syncAll = () => topics.forEach((t) => t.sync());

  const find = (name: string): Topic => {
    const t = topics.get(name) || createTopic(name);
    topics.set(name, t);
    return t;
  };

  function createTopic(topic: string) {
    const subs = new Set<Sub>();
    const listeners: Sub = {}; // of the client, for all topics
    let position: Position | undefined; // up to where publications were handled
    let subscribed: boolean; // as far as the server has answered
    let stale: boolean; // the subscription must be made again, for its state or its presence
    let anew: unknown; // without the position, so that the server sends the state
    let busy: boolean; // a request has no answer
    let hidden: any; // true or undefined, as in the last request
    let byServer: boolean; // a handler of the server has subscribed
    let stateLeft: number | undefined; // publications of the state that follow, Infinity until $ws:state
    let members: Map<string, Member>;

    const wants = (key: keyof Sub) => [...subs].some((s) => s[key]);
    const notify = (key: "onReset" | "onReady" | "onLoss" | "onPresence", value?: any) => env.emit([...subs].map((s) => s[key]), value);

    /** A state that is not complete, or is asked for anew, has no position. */
    const known = () => ((anew && wants("onReset")) || stateLeft ? undefined : position);

    const moveTo = (next?: Position, late?: Sub) => {
      for (const s of [listeners, ...subs]) s.handled = next?.epoch === position?.epoch && s !== late ? Math.max(s.handled || 0, position?.offset || 0) : 0;
      position = next;
    };

    /** The subscription that begins at another position than the others, if there is one. */
    const findLate = (at = known()) =>
      [...subs].find((sub) => {
        const { since } = sub;
        if (!at || since?.epoch !== at.epoch || since.offset < at.offset) return since && (at || !since.epoch);
        sub.handled = since.offset;
        sub.since = undefined;
        return undefined;
      });

    /** The request that subscribes. */
    const request = (from = known()) => {
      const last = Math.max(0, ...[...subs].map((s) => s.last ?? 0));
      return { topic, positions: true, ...from, state: wants("onReset"), presence: wants("onPresence"), hidden, ...(last && { last }) };
    };

    /** Sends the request that makes the server's subscription what is wanted. */
    const sync = () => {
      const wanted = subs.size;
      stale ||= hidden !== (hidden = (wanted > 0 && [...subs].every((s) => s.hidden)) || undefined);
      if (!(wanted || subscribed || busy)) topics.delete(topic);
      const late = findLate();
      if (!open || busy || requests >= MAX_REQUESTS || env.now() < waitUntil) return;
      if (wanted ? subscribed && !stale && !late : !subscribed || byServer) return;
      const mine = connections;
      const presented = late?.since ?? known();
      busy = true;
      stale = false;
      requests++;
      outbox.submit({
        type: wanted ? "$ws:subscribe" : "$ws:unsubscribe",
        payload: wanted ? request(presented) : { topic },
        first: true,
        done(error, answer) {
          if (mine !== connections) return; // asked again on the next connection
          busy = false;
          requests--;
          if (!error) {
            if (wanted) accepted(answer, presented, late);
            else subscribed = false;
          } else if (open) failed(error);
          syncAll();
        },
      });
    };

    const accepted = ({ epoch, offset, recovered, ended, state, more, members: joined}: Subscribed, presented?: Position, late?: Sub) => {
      subscribed = true;
      anew &&= stale; // asked for after the request
      const missed = state === undefined && presented && epoch && (ended || !recovered);
      const loss = { topic, ended: recovered ? ended : undefined };
      if (late) {
        late.since = undefined;
        if (!epoch) env.deliver("$error", failure("FAILED_PRECONDITION", "no history"), topic);
        if (missed) env.emit([late.onLoss], loss);
        if (position && state === undefined && (position.epoch !== epoch || position.offset < offset!)) {
          stale = true; // the others go on
          return;
        }
      }
      // Messages that have arrived between the request and the answer come again.
      moveTo(recovered && presented?.epoch === epoch && presented?.offset! > offset! ? presented : ((epoch && { epoch, offset }) as Position | undefined), late);
      stateLeft = more ? Infinity : state;
      if (state !== undefined) notify("onReset", state);
      else if (missed && !late) lose(loss);
      members = new Map();
      if (joined) changePresence({ joined });
      else if (!stale && wants("onPresence")) env.deliver("$error", failure("FAILED_PRECONDITION", "no presence"), topic);
      notify("onReady");
    };

    const failed = (error: PenstockError) => {
      if (error.retryable) {
        const wait = (error.retryAfterMs || RETRY_MS) + backoff(0, env.random());
        stale = true;
        waitUntil = env.now() + wait;
        env.after(wait + 9, syncAll); // a timer may be a little early
      } else end(error);
    };

    /** Ends subscriptions. Those that their handlers make stay. */
    const end = (error: PenstockError, ended = [...subs]) => {
      for (const sub of ended) {
        subs.delete(sub);
        if (sub.onEnd) env.emit([sub.onEnd], error);
        else env.deliver("$error", error, topic);
      }
      sync();
    };

    const lose = (loss: Loss) => {
      notify("onLoss", loss);
      env.deliver("$loss", loss);
      if (wants("onReset")) refresh(true);
    };

    /** Subscribes again. With a position, the server would send what is missing instead of the state. */
    const refresh = (forState?: unknown) => {
      stale = true;
      anew ||= forState;
      sync();
    };

    const changePresence = ({ left = [], joined = [] }: { left?: Member[]; joined?: Member[] }) => {
      for (const member of left) members.delete(member.connId);
      for (const member of joined) members.set(member.connId, member);
      notify("onPresence", [...members.values()]);
    };

    return {
      sync,

      subscribe(options: Sub = {}, error?: PenstockError | false): Subscription {
        const sub = { ...options };
        if (sub.last) sub.since ??= {} as Position;
        const asked = subscribed || busy;
        const ready = subscribed && !busy;
        if (!asked && sub.since?.epoch) position ??= sub.since;
        subs.add(sub);
        queueMicrotask(() => {
          // Not before this function has returned.
          if (subs.has(sub)) error ? end(error, [sub]) : ready && !busy && env.emit([sub.onReady]);
        });
        if (asked && (sub.onReset || sub.onPresence)) refresh(sub.onReset);
        sync();
        return {
          topic,
          get position() {
            const at = known();
            const own = at && (sub.since ?? { ...at, offset: Math.max(at.offset, sub.handled || 0) });
            return own?.epoch ? own : undefined;
          },
          unsubscribe() {
            if (subs.delete(sub)) sync();
          },
        };
      },

      resumable: request,

      /** A connection is open. result: how it continues. */
      opened(result: Subscribed | undefined) {
        subscribed = busy = false;
        if (result) accepted(result, position);
        else byServer = false;
      },

      forget: moveTo,

      receive({ type, meta, payload }: Frame) {
        if (type === "$ws:subscribed") {
          byServer = true;
          if (!(subscribed || busy)) accepted(payload);
        } else if (type === "$ws:unsubscribed") {
          byServer = subscribed = false;
          if (!payload.error) end(new PenstockError("CANCELLED", "unsubscribed"));
          else if (!busy) failed(decodeError(payload.error)); // the state is not complete
          sync();
        } else if (type === "$ws:presence") changePresence(payload);
        else if (type === "$ws:state") stateLeft = 0;
        else if (type === "$ws:position") {
          const { epoch, offset, lost, ended } = payload;
          moveTo({ epoch, offset });
          if (lost || ended || payload.reset) lose({ topic, lost, ended });
        } else {
          const offset = meta.offset!; // undefined if it is not in a history
          const at = position;
          if (offset && busy) return; // it follows the answer
          if (offset <= at?.offset!) {
            if (!stateLeft) return; // known
            stateLeft--;
            meta.state = true;
          } else if (offset > at?.offset! + 1) return refresh(); // the server sends again what is missing, and this publication
          const isNew = ({ since, handled }: Sub) => !offset || meta.state || !(since || offset <= handled!);
          if (isNew(listeners)) env.deliver(type, payload, meta);
          env.emit([...subs].filter(isNew).map((s) => s.on?.[type]), payload, meta);
          // Handled, even if a handler failed.
          if (offset > at?.offset! && at === position) position = { ...at!, offset };
        }
      },
    };
  }

  type Topic = ReturnType<typeof createTopic>;

  return {
    /** error: the client is closed. */
    subscribe: (name: string, options?: Sub, error?: PenstockError | false) => find(name).subscribe(options, error),

    /** Topics and positions for a new connection. */
    resumable: () => [...topics.values()].map((t) => t.resumable()),

    /** A connection is open. results: the answer to the topics above if the session continues. */
    opened(results: ResumedTopic[] = []) {
      connections++;
      open = true;
      requests = waitUntil = 0;
      const resumed = results.filter((r) => !r.error); // others are subscribed again
      topics.forEach((t, name) => t.opened(resumed.find((r) => r.topic === name)));
      for (const result of resumed) if (!topics.has(result.topic)) find(result.topic).receive({ type: "$ws:subscribed", payload: result } as any);
      syncAll();
    },

    /** Whether a connection carries messages. forget: the next one may be of another user. */
    online(next: boolean, forget?: boolean) {
      open = next;
      if (forget) topics.forEach((t) => t.forget());
      syncAll();
    },

    /** Handles a message of the server about a topic. Returns something truthy if it is one. */
    receive(frame: Frame): unknown {
      const { type, meta, payload } = frame;
      const name = meta.topic ?? (/^\$ws:/.test(type) && payload?.topic);
      const t = type === "$ws:subscribed" ? find(name) : topics.get(name);
      t?.receive(frame);
      return t;
    },
  };
}

export type Topics = ReturnType<typeof createTopics>;

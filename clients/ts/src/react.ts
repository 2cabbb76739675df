"use client";

import { useCallback, useEffect, useState, useSyncExternalStore } from "react";

import { createClient, PenstockError } from "./index.js";
import type { AnyContract, Client, ClientOptions, Loss, Member, MessageOf, Meta, Off, PayloadOf, SentName, State, StateInfo, Subscription, TopicName, TopicOptions } from "./index.js";

/**
 * Returns a client that is connected while the component is mounted. The options of the first call apply.
 *
 * Under StrictMode, React creates two clients and mounts one of them twice: a client has no effect before it connects,
 * and one that is closed at once has not opened a socket yet. On a server, it never connects.
 */
export function useClient<C = AnyContract>(options: ClientOptions): Client<C> {
  const [client] = useState(() => createClient<C>(options));
  useEffect(() => {
    void client.connect();
    return () => client.close();
  }, [client]);
  return client;
}

/** The state of a client, and why there is no connection. */
export interface ClientState extends StateInfo {
  state: State;
}

const idle: ClientState = { state: "idle" };
const states = new WeakMap<Client<any>, ClientState>();

/** Returns the state of a client, "idle" on a server. */
export function useClientState<C>(client: Client<C>): ClientState {
  const subscribe = useCallback(
    (changed: () => void) => {
      stateOf(client); // the state is kept before the component reads it
      return client.onState(changed);
    },
    [client],
  );
  return useSyncExternalStore(subscribe, () => stateOf(client), () => idle);
}

/** Keeps what the client reports about its state, from the first time on that a component shows it. */
function stateOf(client: Client<any>): ClientState {
  if (!states.has(client)) {
    states.set(client, { state: client.state });
    client.onState((state, info) => states.set(client, { ...info, state }));
  }
  return states.get(client)!;
}

/** Returns the seconds until the limits of the server permit a message of the type, as far as known; 0 on a server, and without ClientOptions.pacing. */
export function useWaitSeconds<C>(client: Client<C>, type: SentName<C>): number {
  return useSyncExternalStore(everyTick, () => Math.max(0, Math.ceil(((client.nextAllowedAt(type) ?? 0) - performance.now()) / 1000)), () => 0);
}

function everyTick(changed: () => void): Off {
  const timer = setInterval(changed, 100);
  return () => clearInterval(timer);
}

/**
 * How the publications of a topic become data of the type S. The functions are those of TopicOptions: they take the data
 * before and return the data after, and must not change the former. Without one of them, what it would receive has no effect.
 */
export interface TopicReducer<C, T extends TopicName<C>, S> {
  /** The data before the first message, and after the client was closed and has connected again. */
  initial: S;
  on?: { [K in MessageOf<C, T>]?: (data: S, payload: PayloadOf<C, K>, meta: Meta) => S };
  /** Begins with that many of the latest publications, which also follow onLoss. */
  last?: number;
  /** Returns the data to which the messages of the state are added, usually initial. Setting it asks for the state of the topic. */
  onReset?: (data: S, messages: number) => S;
  onLoss?: (data: S, loss: Loss) => S;
  /** Setting it asks for the presence of the topic. */
  onPresence?: (data: S, members: Member[]) => S;
}

/** What a component shows of a topic. It stays the same object until something changes. */
export interface TopicView<S> {
  data: S;
  /** The server has accepted the subscription. */
  ready: boolean;
  /** Why the server has rejected or ended the subscription for good, or why the client is closed. */
  error: PenstockError | undefined;
}

/**
 * Returns the data of a topic, to which the client is subscribed while a component is mounted. All components with the same
 * client, topic and reducer share one subscription and its data, so create the reducer outside of components. The one of the first
 * call applies.
 */
export function useTopic<C, T extends TopicName<C>, S>(client: Client<C>, topic: T, reducer: TopicReducer<C, T, S>): TopicView<S> {
  const [first] = useState(() => ({ reducer, initial: { data: reducer.initial, ready: false, error: undefined } }));
  const shared = sharedTopics(client, first.reducer);
  const subscribe = useCallback(
    (changed: () => void) => {
      const found = shared.get(topic) ?? shareTopic(client, topic, first.reducer as TopicReducer<any, any, S>, () => shared.delete(topic));
      shared.set(topic, found);
      return found.listen(changed);
    },
    [client, topic, shared, first],
  );
  return useSyncExternalStore(subscribe, () => shared.get(topic)?.view() ?? first.initial, () => first.initial);
}

/** A subscription that components share, and its data. */
interface SharedTopic {
  view(): TopicView<any>;
  listen(changed: () => void): Off;
}

const topicsOf = new WeakMap<Client<any>, WeakMap<object, Map<string, SharedTopic>>>();

/** Returns the topics of a client whose data come from a reducer. */
function sharedTopics(client: Client<any>, reducer: object): Map<string, SharedTopic> {
  const byReducer = topicsOf.get(client) ?? new WeakMap<object, Map<string, SharedTopic>>();
  const shared = byReducer.get(reducer) ?? new Map<string, SharedTopic>();
  topicsOf.set(client, byReducer.set(reducer, shared));
  return shared;
}

const pending = { ready: false, error: undefined };

/** Subscribes to a topic until no component listens any more, when it calls ended. */
function shareTopic<S>(client: Client<any>, topic: string, reducer: TopicReducer<any, any, S>, ended: () => void): SharedTopic {
  const listeners = new Set<() => void>();
  let view: TopicView<S> = { ...pending, data: reducer.initial };
  let subscription: Subscription | undefined; // while the client is not closed

  const set = (change: Partial<TopicView<S>>) => {
    view = { ...view, ...change };
    for (const changed of listeners) changed();
  };
  const reduce = (f: any) => f && ((...values: unknown[]) => set({ data: f(view.data, ...values) }));
  const options: TopicOptions<any, string> = {
    ...(reducer.last && { last: reducer.last }),
    on: Object.fromEntries(Object.entries(reducer.on ?? {}).map(([type, f]) => [type, reduce(f)])),
    onReset: reduce(reducer.onReset),
    onLoss: reduce(reducer.onLoss),
    onPresence: reduce(reducer.onPresence),
    onReady: () => set({ ready: true }),
    onEnd: (error) => set({ ready: false, error }),
  };
  /** Subscribes anew when a client that was closed connects again, perhaps as another user. */
  const follow = (state: State, { error }: StateInfo = {}) => {
    if (state === "closed") {
      subscription?.unsubscribe();
      subscription = undefined;
      set({ ready: false, error: view.error ?? error ?? new PenstockError("UNAVAILABLE", "closed") });
    } else if (!subscription) {
      set({ ...pending, data: reducer.initial });
      subscription = client.subscribe(topic, options);
    }
  };
  follow(client.state);
  const off = client.onState(follow);

  const release = () => {
    if (listeners.size || !shared) return;
    shared = undefined;
    off();
    subscription?.unsubscribe();
    ended();
  };
  let shared: SharedTopic | undefined = {
    view: () => view,
    listen(changed) {
      listeners.add(changed);
      return () => {
        listeners.delete(changed);
        queueMicrotask(release); // under StrictMode, and when a page replaces another one, components listen again at once
      };
    },
  };
  return shared;
}

import { useEffect, useLayoutEffect, useState } from "react";

import { createClient, type Client, type ClientOptions, type PenstockError, type State, type Subscription } from "penstock-client";

/**
 * Returns a client that is connected while the component is mounted, its state, and why it is not connected. subscribe
 * is called when the component is mounted. The arguments of the first call apply.
 *
 * Under StrictMode, React calls the initializer twice, and mounts, unmounts and mounts again: a client has no effect
 * before it connects, and a client that is closed at once has not opened a socket yet.
 */
export function useClient<C>(options: ClientOptions, subscribe: (client: Client<C>) => Subscription): [Client<C>, State, PenstockError?] {
  const [first] = useState(() => ({ client: createClient<C>(options), subscribe }));
  const [[state, error], setState] = useState<[State, PenstockError?]>(["idle"]);
  useEffect(() => {
    const { client, subscribe } = first;
    const off = client.onState((state, { error }) => setState(error ? [state, error] : [state]));
    client.connect();
    const subscription = subscribe(client);
    return () => {
      off();
      subscription.unsubscribe();
      client.close();
    };
  }, [first]);
  return error ? [first.client, state, error] : [first.client, state];
}

/** Returns the seconds until the limits of the server permit a message of the type, as far as known. */
export function useWaitSeconds<C>(client: Client<C>, type: string): number {
  const [seconds, setSeconds] = useState(0);
  // Without dependencies: the render after a call shows the wait that follows from it.
  useLayoutEffect(() => {
    const update = () => setSeconds(Math.max(0, Math.ceil(((client.nextAllowedAt(type) ?? 0) - performance.now()) / 1000)));
    update();
    const timer = setInterval(update, 100);
    return () => clearInterval(timer);
  });
  return seconds;
}

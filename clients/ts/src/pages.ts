import { type Env, noop } from "./env.js";
import type { ClientOptions, Off, PageLike } from "./types.js";

// Events of the page. An open WebSocket keeps a page out of the back/forward cache, so it is closed first.

interface Actions {
  wake(): void;
  pause(): void;
}

/** Listens while the client is started, and returns a function that ends it. */
export function watchPage({ page = (globalThis.document && globalThis) as PageLike | undefined }: ClientOptions, { wake, pause }: Actions): Off {
  if (!page) return noop;
  const wakeIfVisible = () => {
    if (page.document?.visibilityState !== "hidden") wake();
  };
  // No event of these reaches every browser.
  const listeners = { online: wake, pageshow: wake, resume: wake, visibilitychange: wakeIfVisible, pagehide: pause };
  for (const [type, listener] of Object.entries(listeners)) page.addEventListener(type, listener);
  return () => {
    for (const [type, listener] of Object.entries(listeners)) page.removeEventListener(type, listener);
  };
}

import { noop } from "./env.js";
import type { ClientOptions, Off, PageLike } from "./types.js";

// Events of the page. An open WebSocket keeps a page out of the back/forward cache, so it is closed first.

/** Listens to the page, and returns a function that ends it. */
export function watchPage({ page = (globalThis.document && globalThis) as PageLike | undefined }: ClientOptions, wake: (offline: boolean) => void, pause: (kept: boolean) => void): Off {
  if (!page) return noop;
  // No event of waking reaches every browser.
  const controller = new AbortController();
  const listener = ({ type, persisted }: { type: string; persisted: boolean }) => {
    const offline = type === "offline";
    if (type === "pagehide") pause(persisted);
    else if (offline || page.document?.visibilityState !== "hidden") wake(offline);
  };
  for (const type of "online pageshow resume visibilitychange pagehide offline".split(" ")) page.addEventListener(type, listener, controller);
  return () => controller.abort();
}

import { noop } from "./env.js";
import type { ClientOptions, Off, PageLike } from "./types.js";

// Events of the page. An open WebSocket keeps a page out of the back/forward cache, so it is closed first.

/** Listens to the page, and returns a function that ends it. */
export function watchPage({ page = (globalThis.document && globalThis) as PageLike | undefined }: ClientOptions, wake: () => void, pause: () => void): Off {
  if (!page) return noop;
  // No event of waking reaches every browser.
  const types = ["online", "pageshow", "resume", "visibilitychange", "pagehide"];
  const listener = ({ type }: { type: string }) => {
    if (type === "pagehide") pause();
    else if (page.document?.visibilityState !== "hidden") wake();
  };
  for (const type of types) page.addEventListener(type, listener);
  return () => types.forEach((type) => page.removeEventListener(type, listener));
}

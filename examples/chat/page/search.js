// The search form of the side panel: matches in the current room, and the wait for its rate limit.
// A user who changes the text no longer needs the search for the previous one.

import { Countdown } from "./countdown.js";
import { byId } from "./dom.js";
import { drawMatch } from "./messages.js";
import { reasonOf } from "./status.js";

export class Search {
  #find;
  #running = null; // the AbortController of a search without a result
  #countdown;

  // find(query, signal) resolves with the matches. An abort of signal cancels it. nextAt() returns
  // when the rate limit allows a search, by performance.now, or undefined if it does now.
  constructor(find, nextAt) {
    this.#find = find;
    this.#countdown = new Countdown(
      { box: byId("search-countdown"), text: byId("search-countdown-text"), bar: byId("search-countdown-bar") },
      () => (this.#running ? nextAt() ?? 0 : undefined),
      (left) => `Searching in ${left} s`,
    );
    byId("search-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit(byId("search-query").value.trim());
    });
    byId("search-query").addEventListener("input", () => this.#end());
  }

  clear() {
    this.#end();
    byId("search-results").replaceChildren();
  }

  async #submit(query) {
    if (!query) return;
    this.#end("Searching…");
    const { signal } = (this.#running = new AbortController());
    const result = this.#find(query, signal);
    this.#countdown.update();
    try {
      const matches = await result;
      if (!signal.aborted) this.#show(matches);
    } catch (error) {
      if (!signal.aborted) this.#end(`Search failed: ${reasonOf(error)}.`);
    }
  }

  // #end aborts a search without a result.
  #end(status = "") {
    this.#running?.abort();
    this.#running = null;
    this.#countdown.update();
    byId("search-status").textContent = status;
  }

  #show(matches) {
    this.#end(matches.length === 1 ? "1 match" : `${matches.length || "No"} matches`);
    byId("search-results").replaceChildren(...matches.map(drawMatch));
  }
}

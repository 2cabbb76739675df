// The search form of the side panel: matches in the current room, and its own rate limit countdown.
// A user who changes the text no longer needs the search for the previous one.

import { Countdown } from "./countdown.js";
import { byId } from "./dom.js";
import { drawMatch } from "./messages.js";

export class Search {
  #find;
  #running = null; // the AbortController of a search without a result
  #countdown = new Countdown(
    { box: byId("search-countdown"), text: byId("search-countdown-text"), bar: byId("search-countdown-bar") },
    (left) => `Retry in ${left} s`,
    (isRunning) => this.#countdownChanged(isRunning),
  );

  // find(query, signal) resolves with the matches. An abort of signal cancels it.
  constructor(find) {
    this.#find = find;
    byId("search-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit(byId("search-query").value.trim());
    });
    byId("search-query").addEventListener("input", () => this.#abort());
  }

  clear() {
    this.#abort();
    byId("search-results").replaceChildren();
    byId("search-status").textContent = "";
  }

  stopCountdown() {
    this.#countdown.stop();
  }

  async #submit(query) {
    if (!query || this.#countdown.isRunning) return;
    this.#abort();
    byId("search-status").textContent = "Searching…";
    this.#running = new AbortController();
    const { signal } = this.#running;
    try {
      const matches = await this.#find(query, signal);
      if (!signal.aborted) this.#show(matches);
    } catch (error) {
      if (!signal.aborted) this.#showError(error);
    }
  }

  #abort() {
    if (!this.#running) return;
    this.#running.abort();
    this.#running = null;
    byId("search-status").textContent = "";
  }

  #show(matches) {
    this.#running = null;
    byId("search-results").replaceChildren(...matches.map(drawMatch));
    byId("search-status").textContent = matches.length === 1 ? "1 match" : `${matches.length || "No"} matches`;
  }

  #showError(error) {
    this.#running = null;
    byId("search-status").textContent = error.isRateLimit ? "Search rejected: rate limit exceeded." : `Search failed: ${error.message}`;
    if (error.isRateLimit) this.#countdown.start(error.retryAfterMs);
  }

  #countdownChanged(isRunning) {
    byId("search-submit").disabled = isRunning;
    if (!isRunning) byId("search-status").textContent = "You can search again.";
  }
}

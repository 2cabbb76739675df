// The search form of the side panel: matches in the current room, and its own rate limit countdown.

import { Countdown } from "./countdown.js";
import { byId } from "./dom.js";
import { drawMatch } from "./messages.js";

export class Search {
  #find;
  #countdown = new Countdown(
    { box: byId("search-countdown"), text: byId("search-countdown-text"), bar: byId("search-countdown-bar") },
    (left) => `Retry in ${left} s`,
    (isRunning) => this.#countdownChanged(isRunning),
  );

  // find(query) resolves with the matches, or with null if they are outdated.
  constructor(find) {
    this.#find = find;
    byId("search-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit(byId("search-query").value.trim());
    });
  }

  clear() {
    byId("search-results").replaceChildren();
    byId("search-status").textContent = "";
  }

  stopCountdown() {
    this.#countdown.stop();
  }

  async #submit(query) {
    if (!query || this.#countdown.isRunning) return;
    byId("search-status").textContent = "Searching…";
    try {
      const matches = await this.#find(query);
      if (matches) this.#show(matches);
    } catch (error) {
      this.#showError(error);
    }
  }

  #show(matches) {
    byId("search-results").replaceChildren(...matches.map(drawMatch));
    byId("search-status").textContent = matches.length === 1 ? "1 match" : `${matches.length || "No"} matches`;
  }

  #showError(error) {
    byId("search-status").textContent = error.isRateLimit ? "Search rejected: rate limit exceeded." : `Search failed: ${error.message}`;
    if (error.isRateLimit) this.#countdown.start(error.retryAfterMs);
  }

  #countdownChanged(isRunning) {
    byId("search-submit").disabled = isRunning;
    if (!isRunning) byId("search-status").textContent = "You can search again.";
  }
}

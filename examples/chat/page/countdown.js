// The wait for a rate limit, shown as a countdown in seconds and a progress bar.

const TICK_MS = 100;

export class Countdown {
  #nodes;
  #nextAt;
  #describe;
  #onStart;
  #timer = 0;
  #leftMs = 0;
  #durationMs = 1;

  // nodes: box, text and bar. nextAt() returns when the next message is sent, by performance.now,
  // or undefined if none waits. describe(seconds) returns the text to show. onStart may be undefined.
  constructor(nodes, nextAt, describe, onStart) {
    this.#nodes = nodes;
    this.#nextAt = nextAt;
    this.#describe = describe;
    this.#onStart = onStart;
  }

  // update starts or stops the countdown. Call it when messages begin or end to wait. While they
  // wait, the countdown follows the client, and shows no zero between two of them.
  update() {
    const at = this.#nextAt();
    if (at === undefined) return this.#stop();
    const leftMs = at - performance.now();
    if (leftMs <= 0) return;
    if (leftMs > this.#leftMs) this.#durationMs = leftMs;
    this.#leftMs = leftMs;
    this.#nodes.text.textContent = this.#describe(seconds(leftMs));
    this.#nodes.bar.value = leftMs / this.#durationMs;
    this.#nodes.box.hidden = false;
    if (this.#timer) return;
    this.#timer = setInterval(() => this.update(), TICK_MS);
    this.#onStart?.();
  }

  #stop() {
    clearInterval(this.#timer);
    this.#timer = this.#leftMs = 0;
    this.#nodes.box.hidden = true;
  }
}

// seconds rounds up, because "0.0 s" would look like the end of the wait.
export function seconds(ms) {
  return (Math.ceil(Math.max(ms, 0) / 100) / 10).toFixed(1);
}

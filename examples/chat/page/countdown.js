// The wait after a rejected message, shown as a countdown in seconds and a progress bar.

const TICK_MS = 100;

export class Countdown {
  #nodes;
  #describe;
  #onChange;
  #timer = 0;
  #endsAt = 0;
  #durationMs = 1;

  // nodes: box, text and bar. describe(seconds) returns the text to show.
  // onChange(isRunning) is called after a start and after the end.
  constructor(nodes, describe, onChange) {
    this.#nodes = nodes;
    this.#describe = describe;
    this.#onChange = onChange;
  }

  get isRunning() {
    return this.#timer !== 0;
  }

  // start replaces a running countdown.
  start(ms) {
    const wasRunning = this.isRunning;
    clearInterval(this.#timer);
    this.#durationMs = Math.max(ms, 1);
    this.#endsAt = performance.now() + ms;
    this.#timer = setInterval(() => this.#tick(), TICK_MS);
    this.#nodes.box.hidden = false;
    this.#tick();
    if (!wasRunning) this.#onChange(true);
  }

  stop() {
    if (!this.isRunning) return;
    clearInterval(this.#timer);
    this.#timer = 0;
    this.#nodes.box.hidden = true;
    this.#onChange(false);
  }

  #tick() {
    const leftMs = this.#endsAt - performance.now();
    if (leftMs <= 0) {
      this.stop();
      return;
    }
    this.#nodes.text.textContent = this.#describe(seconds(leftMs));
    this.#nodes.bar.value = leftMs / this.#durationMs;
  }
}

// seconds rounds up, because "0.0 s" would look like the end of the wait.
export function seconds(ms) {
  return (Math.ceil(Math.max(ms, 0) / 100) / 10).toFixed(1);
}

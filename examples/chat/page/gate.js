// A wait that can be watched: the seconds left, a bar that runs out.

const TICK = 100;

export class Gate {
  #nodes;
  #describe;
  #onChange;
  #timer = 0;
  #until = 0;
  #span = 1;

  // nodes: box, text, bar. describe(seconds) words the wait.
  constructor(nodes, describe, onChange) {
    this.#nodes = nodes;
    this.#describe = describe;
    this.#onChange = onChange;
  }

  get isClosed() {
    return this.#timer !== 0;
  }

  close(ms) {
    const wasClosed = this.isClosed;
    clearInterval(this.#timer);
    this.#span = Math.max(ms, 1);
    this.#until = performance.now() + ms;
    this.#timer = setInterval(() => this.#tick(), TICK);
    this.#nodes.box.hidden = false;
    this.#tick();
    if (!wasClosed) this.#onChange(true);
  }

  open() {
    if (!this.isClosed) return;
    clearInterval(this.#timer);
    this.#timer = 0;
    this.#nodes.box.hidden = true;
    this.#onChange(false);
  }

  #tick() {
    const left = this.#until - performance.now();
    if (left <= 0) {
      this.open();
      return;
    }
    this.#nodes.text.textContent = this.#describe(seconds(left));
    this.#nodes.bar.value = left / this.#span;
  }
}

// Rounded up: a wait that shows 0.0 would seem to be over.
export function seconds(ms) {
  return (Math.ceil(Math.max(ms, 0) / 100) / 10).toFixed(1);
}

// The message list: draws the entries and tracks their delivery state.

import { el } from "./dom.js";

const MAX_ENTRIES = 500;
const GROUP_WINDOW_MS = 5 * 60_000; // consecutive messages of a user within it share one author line
const HUES = 8;
const NEAR_BOTTOM_PX = 48;

const timeFormat = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const dayFormat = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });
const fullFormat = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const momentFormat = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "short" });

export class MessageList {
  #entries = [];
  #unread = 0;
  #followsEnd = true;
  #nodes;
  #handlers;
  #retryAllowed = true;

  // nodes: scroller, list, empty, pill. The handlers onRetry, onEdit and onDiscard receive
  // the text and the ID of a failed message after its removal from the list.
  constructor(nodes, handlers) {
    this.#nodes = nodes;
    this.#handlers = handlers;
    nodes.scroller.addEventListener("scroll", () => this.#scrolled());
    nodes.pill.addEventListener("click", () => this.scrollToEnd());
    new ResizeObserver(() => this.#followsEnd && this.scrollToEnd()).observe(nodes.scroller);
  }

  clear() {
    this.#entries = [];
    this.#redraw();
    this.scrollToEnd();
  }

  addNote(text) {
    return this.#append({ kind: "note", text, at: Date.now() });
  }

  addBurst(size) {
    return this.#append({ kind: "burst", results: Array(size).fill("pending"), at: Date.now() }, true);
  }

  addPending(user, text, id) {
    return this.#append({ kind: "message", state: "pending", own: true, user, text, id, at: Date.now() }, true);
  }

  // addReceived confirms the own message with the same ID if there is one.
  addReceived(message, own) {
    const unconfirmed = this.#entries.find((e) => e.id && e.id === message.id && e.state !== "sent");
    if (unconfirmed) this.#confirm(unconfirmed, message);
    else this.#append(sentEntry(message, own), own);
  }

  // addHistory adds the messages that are not shown yet.
  addHistory(history, isOwn) {
    const shown = new Set(this.#entries.map((e) => e.key));
    this.#nodes.scroller.setAttribute("aria-busy", "true"); // screen readers must not announce old messages
    for (const message of history) {
      if (!shown.has(keyOf(message))) this.addReceived(message, isOwn(message));
    }
    this.#nodes.scroller.removeAttribute("aria-busy");
  }

  // #confirm moves an own message to its place in the server's order: behind every message
  // that was received before.
  #confirm(entry, message) {
    this.#change(entry, sentEntry(message, true));
    const last = this.#entries.findLastIndex((e) => e === entry || e.state !== "pending");
    if (this.#entries[last] === entry || !this.#entries.includes(entry)) return;
    this.#entries.splice(last + 1, 0, entry);
    this.#entries.splice(this.#entries.indexOf(entry), 1);
    this.#redraw();
  }

  // fail sets state to "rejected" or "unconfirmed".
  fail(entry, { state, reason, canRetry }) {
    this.#change(entry, { state, reason, canRetry });
    if (this.#followsEnd) this.scrollToEnd();
  }

  // setBurstResult sets state to "delivered", "rejected" or "unconfirmed".
  setBurstResult(burst, index, state) {
    burst.results[index] = state;
    this.#change(burst, {});
  }

  moveToEnd(entry) {
    if (!this.#entries.includes(entry)) return;
    this.#entries = [...this.#entries.filter((e) => e !== entry), entry];
    this.#nodes.list.append(entry.node);
    if (this.#followsEnd) this.scrollToEnd();
  }

  allowRetry(allowed) {
    this.#retryAllowed = allowed;
    for (const button of this.#nodes.list.querySelectorAll("[data-action=retry]")) button.disabled = !allowed;
  }

  scrollToEnd() {
    const { scroller } = this.#nodes;
    this.#followsEnd = true;
    scroller.scrollTop = scroller.scrollHeight;
    this.#setUnread(0);
  }

  #append(entry, ownMessage = false) {
    const previous = this.#entries.at(-1);
    this.#entries.push(entry);
    this.#nodes.list.append(...this.#draw(entry, previous));
    this.#updateEmptyHint();
    if (this.#entries.length > MAX_ENTRIES) this.#dropOldest();
    if (this.#followsEnd || ownMessage) this.scrollToEnd();
    else if (entry.kind === "message") this.#setUnread(this.#unread + 1);
    return entry;
  }

  #dropOldest() {
    this.#entries = this.#entries.slice(-MAX_ENTRIES / 2);
    this.#redraw();
  }

  #remove(entry) {
    this.#entries = this.#entries.filter((e) => e !== entry);
    this.#redraw();
  }

  #change(entry, changes) {
    Object.assign(entry, changes);
    if (!this.#entries.includes(entry)) return;
    // The item itself stays, so that screen readers do not announce it again.
    const redrawn = drawEntry(entry, this.#actions(entry));
    Object.assign(entry.node.dataset, redrawn.dataset);
    entry.node.replaceChildren(...redrawn.childNodes);
  }

  #redraw() {
    const nodes = this.#entries.flatMap((entry, i) => this.#draw(entry, this.#entries[i - 1]));
    this.#nodes.list.replaceChildren(...nodes);
    this.#updateEmptyHint();
  }

  #updateEmptyHint() {
    this.#nodes.empty.hidden = this.#entries.some((entry) => entry.kind !== "note");
  }

  #draw(entry, previous) {
    const newDay = dayOf(entry.at) !== dayOf(previous?.at ?? Date.now());
    entry.follows = !newDay && continues(entry, previous);
    entry.node = drawEntry(entry, this.#actions(entry));
    return newDay ? [el("li", { className: "day" }, dayOf(entry.at)), entry.node] : [entry.node];
  }

  #actions(entry) {
    const removeThen = (then) => () => {
      this.#remove(entry);
      then(entry.text, entry.id);
    };
    const { onRetry, onEdit, onDiscard } = this.#handlers;
    return { retry: removeThen(onRetry), mayRetry: this.#retryAllowed, edit: removeThen(onEdit), discard: removeThen(onDiscard) };
  }

  #scrolled() {
    const { scroller } = this.#nodes;
    this.#followsEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_BOTTOM_PX;
    if (this.#followsEnd) this.#setUnread(0);
  }

  #setUnread(count) {
    this.#unread = count;
    this.#nodes.pill.hidden = count === 0;
    this.#nodes.pill.textContent = count === 1 ? "1 new message" : `${count} new messages`;
  }
}

export function drawMatch(message) {
  const at = timeOf(message.at);
  return el("li", { data: { kind: "match" } },
    el("p", { className: "match-head" }, el("strong", {}, message.user), " ", drawTime(at, momentFormat)),
    el("p", { className: "text" }, message.text));
}

export function drawAvatar(user) {
  return el("span", { className: "avatar", ariaHidden: "true", data: { hue: hueOf(user) } }, user.slice(0, 1).toUpperCase());
}

function sentEntry(message, own) {
  const { user, text, id } = message;
  return { kind: "message", state: "sent", key: keyOf(message), at: timeOf(message.at), user, text, id, own };
}

function keyOf({ user, id }) {
  return `${user}/${id}`;
}

function continues(entry, previous) {
  return entry.kind === "message" && previous?.kind === "message"
    && previous.user === entry.user && previous.own === entry.own
    && entry.at - previous.at < GROUP_WINDOW_MS;
}

function drawEntry(entry, actions) {
  if (entry.kind === "note") return el("li", { className: "note", data: { kind: "note" } }, entry.text);
  if (entry.kind === "burst") return drawBurst(entry);
  return drawMessage(entry, actions);
}

function drawMessage(entry, actions) {
  const { user, text, state, own, follows } = entry;
  const bubble = el("div", { className: "bubble" },
    el("p", { className: follows || own ? "author sr-only" : "author" }, own ? "You" : user),
    el("div", { className: "line" },
      el("p", { className: "text" }, text),
      el("p", { className: "when" }, state === "pending" ? "sending…" : drawTime(entry.at, timeFormat))));
  const data = { kind: "message", state, user, own };
  const item = el("li", { className: follows ? "message follows" : "message", ariaLive: own ? "off" : null, data }, own ? null : drawAvatar(user), bubble);
  if (state === "rejected" || state === "unconfirmed") item.append(drawFailure(entry, actions));
  return item;
}

function drawFailure({ reason, canRetry }, { retry, mayRetry, edit, discard }) {
  return el("p", { className: "failure" },
    el("span", {}, reason),
    el("span", { className: "choices" },
      canRetry
        ? el("button", { type: "button", disabled: !mayRetry, data: { action: "retry" }, onclick: retry }, "Retry")
        : el("button", { type: "button", data: { action: "edit" }, onclick: edit }, "Edit"),
      el("button", { type: "button", data: { action: "discard" }, onclick: discard }, "Discard")));
}

function drawBurst({ results }) {
  const count = (state) => results.filter((r) => r === state).length;
  const data = { kind: "burst", delivered: count("delivered"), rejected: count("rejected"), pending: count("pending") };
  const parts = [`${data.delivered} delivered`, `${data.rejected} rejected`];
  if (data.pending) parts.push(`${data.pending} pending`);
  if (count("unconfirmed")) parts.push(`${count("unconfirmed")} unconfirmed`);
  return el("li", { className: "burst", ariaLive: "off", data },
    el("p", {}, `${results.length} sent at once: ${parts.join(", ")}`),
    el("div", { className: "burst-results", ariaHidden: "true" }, ...results.map((result) => el("i", { data: { result } }))));
}

function drawTime(at, format) {
  const date = new Date(at);
  return el("time", { dateTime: date.toISOString(), title: fullFormat.format(date) }, format.format(date));
}

function timeOf(at) {
  const time = Date.parse(at);
  return Number.isNaN(time) ? Date.now() : time;
}

function dayOf(at) {
  const day = new Date(at).toDateString();
  if (day === new Date().toDateString()) return "Today";
  if (day === new Date(Date.now() - 86_400_000).toDateString()) return "Yesterday";
  return dayFormat.format(at);
}

function hueOf(user) {
  let sum = 0;
  for (const char of user) sum = (sum * 31 + char.codePointAt(0)) % 9973;
  return sum % HUES;
}

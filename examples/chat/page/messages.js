// The list of what was said: how it looks, and how a history joins what is
// already shown.

import { el } from "./dom.js";

const LONGEST_LIST = 500;
const SAME_BREATH = 5 * 60_000; // messages this close share one author line
const HUES = 8;
const NEAR_BOTTOM = 48;

const timeFormat = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const dayFormat = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });
const fullFormat = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const momentFormat = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "short" });

export class MessageList {
  #entries = [];
  #unread = 0;
  #following = true;
  #nodes;
  #handlers;
  #mayRetry = true;

  // nodes: scroller, list, empty, pill. The handlers onAgain, onEdit and
  // onDiscard get the text of a refused message, which then leaves the list.
  constructor(nodes, handlers) {
    this.#nodes = nodes;
    this.#handlers = handlers;
    nodes.scroller.addEventListener("scroll", () => this.#scrolled());
    nodes.pill.addEventListener("click", () => this.scrollToEnd());
    new ResizeObserver(() => this.#following && this.scrollToEnd()).observe(nodes.scroller);
  }

  clear() {
    this.#entries = [];
    this.#redraw();
    this.scrollToEnd();
  }

  note(text) {
    return this.#append({ kind: "note", text, at: Date.now() });
  }

  burst(size) {
    return this.#append({ kind: "burst", shots: Array(size).fill("pending"), at: Date.now() }, true);
  }

  pending(user, text) {
    return this.#append({ kind: "said", state: "pending", mine: true, user, text, at: Date.now() }, true);
  }

  // said adds a message from the server, unless the history brought it already
  // or it settles what became of an own one.
  said(message, mine) {
    const known = this.#entries.find((e) => e.fromHistory && e.key === keyOf(message));
    const unsure = this.#entries.find((e) => mine && e.state === "unsure" && e.text === message.text);
    if (known) known.fromHistory = false;
    else if (unsure) this.confirm(unsure, message);
    else this.#append(sentEntry(message, mine), mine);
  }

  // confirm puts an own message where the server has put it: behind all that came before.
  confirm(entry, message) {
    this.#change(entry, sentEntry(message, true));
    const last = this.#entries.findLastIndex((e) => e === entry || e.state !== "pending");
    if (this.#entries[last] === entry || !this.#entries.includes(entry)) return;
    this.#entries.splice(last + 1, 0, entry);
    this.#entries.splice(this.#entries.indexOf(entry), 1);
    this.#redraw();
  }

  refuse(entry, state, reason, canRetry) {
    this.#change(entry, { state, reason, canRetry });
    if (this.#following) this.scrollToEnd();
  }

  shot(burst, index, state) {
    burst.shots[index] = state;
    this.#change(burst, {});
  }

  moveToEnd(entry) {
    if (!this.#entries.includes(entry)) return;
    this.#entries = [...this.#entries.filter((e) => e !== entry), entry];
    this.#nodes.list.append(entry.node);
    if (this.#following) this.scrollToEnd();
  }

  allowRetry(allowed) {
    this.#mayRetry = allowed;
    for (const button of this.#nodes.list.querySelectorAll("[data-action=again]")) button.disabled = !allowed;
  }

  // merge takes in a history: what is shown stays, what is missing is put where
  // it belongs, and own messages of unknown fate are found in it.
  merge(history, isMine) {
    const claimed = new Set();
    for (const message of history) {
      const entry = this.#counterpart(message, isMine(message), claimed) ?? this.#insert(sentEntry(message, isMine(message)));
      Object.assign(entry, sentEntry(message, entry.mine), { fromHistory: true });
      claimed.add(entry);
    }
    this.#nodes.scroller.setAttribute("aria-busy", "true"); // old messages are not news to be read out
    this.#redraw();
    this.#nodes.scroller.removeAttribute("aria-busy");
    if (this.#following) this.scrollToEnd();
  }

  scrollToEnd() {
    const { scroller } = this.#nodes;
    this.#following = true;
    scroller.scrollTop = scroller.scrollHeight;
    this.#setUnread(0);
  }

  #counterpart(message, mine, claimed) {
    const free = this.#entries.filter((e) => e.kind === "said" && !claimed.has(e));
    const lost = (e) => mine && e.text === message.text && (e.state === "pending" || e.state === "unsure");
    return free.find((e) => e.key === keyOf(message)) ?? free.find(lost);
  }

  #insert(entry) {
    const before = this.#entries.findLastIndex((e) => e.key && e.at <= entry.at);
    this.#entries.splice(before + 1, 0, entry);
    return entry;
  }

  #append(entry, byReader = false) {
    const previous = this.#entries.at(-1);
    this.#entries.push(entry);
    this.#nodes.list.append(...this.#draw(entry, previous));
    this.#showWhetherEmpty();
    if (this.#entries.length > LONGEST_LIST) this.#dropOldest();
    if (this.#following || byReader) this.scrollToEnd();
    else if (entry.kind === "said") this.#setUnread(this.#unread + 1);
    return entry;
  }

  #dropOldest() {
    this.#entries = this.#entries.slice(-LONGEST_LIST / 2);
    this.#redraw();
  }

  #remove(entry) {
    this.#entries = this.#entries.filter((e) => e !== entry);
    this.#redraw();
  }

  #change(entry, changes) {
    Object.assign(entry, changes);
    if (!this.#entries.includes(entry)) return;
    // The item itself stays, so that screen readers do not take it for news.
    const fresh = drawEntry(entry, this.#actions(entry));
    Object.assign(entry.node.dataset, fresh.dataset);
    entry.node.replaceChildren(...fresh.childNodes);
  }

  #redraw() {
    const nodes = this.#entries.flatMap((entry, i) => this.#draw(entry, this.#entries[i - 1]));
    this.#nodes.list.replaceChildren(...nodes);
    this.#showWhetherEmpty();
  }

  #showWhetherEmpty() {
    this.#nodes.empty.hidden = this.#entries.some((entry) => entry.kind !== "note");
  }

  #draw(entry, previous) {
    const newDay = dayOf(entry.at) !== dayOf(previous?.at ?? Date.now());
    entry.follows = !newDay && continues(entry, previous);
    entry.node = drawEntry(entry, this.#actions(entry));
    return newDay ? [el("li", { className: "day" }, dayOf(entry.at)), entry.node] : [entry.node];
  }

  #actions(entry) {
    const leave = (then) => () => {
      this.#remove(entry);
      then(entry.text);
    };
    const { onAgain, onEdit, onDiscard } = this.#handlers;
    return { again: leave(onAgain), mayRetry: this.#mayRetry, edit: leave(onEdit), discard: leave(onDiscard) };
  }

  #scrolled() {
    const { scroller } = this.#nodes;
    this.#following = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < NEAR_BOTTOM;
    if (this.#following) this.#setUnread(0);
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

function sentEntry(message, mine) {
  const { user, text } = message;
  return { kind: "said", state: "sent", key: keyOf(message), at: timeOf(message.at), user, text, mine };
}

function keyOf({ user, text, at }) {
  return JSON.stringify([user, at, text]);
}

function continues(entry, previous) {
  return entry.kind === "said" && previous?.kind === "said"
    && previous.user === entry.user && previous.mine === entry.mine
    && entry.at - previous.at < SAME_BREATH;
}

function drawEntry(entry, actions) {
  if (entry.kind === "note") return el("li", { className: "note", data: { kind: "note" } }, entry.text);
  if (entry.kind === "burst") return drawBurst(entry);
  return drawSaid(entry, actions);
}

function drawSaid(entry, actions) {
  const { user, text, state, mine, follows } = entry;
  const bubble = el("div", { className: "bubble" },
    el("p", { className: follows || mine ? "author sr" : "author" }, mine ? "You" : user),
    el("div", { className: "line" },
      el("p", { className: "text" }, text),
      el("p", { className: "when" }, state === "pending" ? "sending…" : drawTime(entry.at, timeFormat))));
  const data = { kind: "message", state, user, own: mine };
  const item = el("li", { className: follows ? "said follows" : "said", ariaLive: mine ? "off" : null, data }, mine ? null : drawAvatar(user), bubble);
  if (state === "refused" || state === "unsure") item.append(drawFate(entry, actions));
  return item;
}

function drawFate({ reason, canRetry }, { again, mayRetry, edit, discard }) {
  return el("p", { className: "fate" },
    el("span", {}, reason),
    el("span", { className: "choices" },
      canRetry
        ? el("button", { type: "button", disabled: !mayRetry, data: { action: "again" }, onclick: again }, "Send again")
        : el("button", { type: "button", data: { action: "edit" }, onclick: edit }, "Edit"),
      el("button", { type: "button", data: { action: "discard" }, onclick: discard }, "Discard")));
}

function drawBurst({ shots }) {
  const count = (state) => shots.filter((s) => s === state).length;
  const data = { kind: "burst", delivered: count("delivered"), refused: count("refused"), pending: count("pending") };
  const parts = [`${data.delivered} delivered`, `${data.refused} refused`];
  if (data.pending) parts.push(`${data.pending} on the way`);
  if (count("lost")) parts.push(`${count("lost")} lost`);
  return el("li", { className: "burst", ariaLive: "off", data },
    el("p", {}, `${shots.length} sent at once: ${parts.join(", ")}`),
    el("div", { className: "shots", ariaHidden: "true" }, ...shots.map((state) => el("i", { data: { shot: state } }))));
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

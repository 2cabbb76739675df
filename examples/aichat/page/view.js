// Shows messages, the answer that is being written, the budget and errors.

export function byId(id) {
  return document.getElementById(id);
}

function element(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

export function showState(state) {
  byId("state").textContent = { open: "Connected", connecting: "Connecting…", waiting: "Connection lost, trying again…" }[state] ?? state;
}

// Messages

export function showMessages(messages, user) {
  byId("empty").hidden = messages.length > 0;
  byId("messages").replaceChildren(...messages.map(({ role, text, incomplete }) => {
    const item = row(role, role === "user" ? user : "AI", text);
    if (incomplete) item.append(element("p", { class: "note" }, "The answer is incomplete."));
    return item;
  }));
  scrollDown();
}

function row(role, author, text) {
  return element("li", { "data-role": role }, element("p", { class: "author" }, author), element("p", { class: "text" }, text));
}

/** Shows the text of the answer so far, below the messages. */
export function showAnswer(text) {
  let answer = byId("answer");
  if (!answer) {
    answer = row("assistant", "AI", "");
    answer.id = "answer";
    byId("messages").append(answer);
  }
  answer.querySelector(".text").textContent = text;
  scrollDown();
}

function scrollDown() {
  const main = document.querySelector("main");
  main.scrollTop = main.scrollHeight;
}

export function showRunning(running) {
  byId("stop").hidden = !running;
  byId("send").hidden = running;
}

// Budget

/** Shows what is left of each limit. A progress element would be announced as what is complete. */
export function showBudget(limits) {
  byId("budget").replaceChildren(...limits.map(({ name, left, max, returnsInMs }) => {
    const amount = `${left.toLocaleString()} of ${max.toLocaleString()} ${name} left`;
    const text = amount + (left < max ? `, all of them in ${duration(returnsInMs)}` : "");
    const bar = element("meter", { max, low: max / 5, optimum: max, value: Math.max(left, 0), "aria-label": name, "aria-valuetext": amount });
    return element("li", { "data-limit": name, "data-left": left }, element("p", {}, text), bar);
  }));
}

function duration(ms) {
  const seconds = Math.ceil(ms / 1000);
  if (seconds < 120) return `${seconds} s`;
  const minutes = Math.ceil(seconds / 60);
  return minutes < 120 ? `${minutes} min` : `${Math.ceil(minutes / 60)} h`;
}

// Errors

/** Shows an error, and which budget is exhausted if that is the reason; nothing without an error. */
export function showNotice(error) {
  byId("notice").textContent = error ? reasonOf(error) : "";
}

function reasonOf({ code, message, details, retryAfterMs }) {
  if (code === "CANCELLED") return "";
  if (!details?.policy) return message || code;
  if (retryAfterMs === null) return `The question is longer than your budget of ${details.policy}.`;
  const wait = retryAfterMs ? ` Ask again in ${duration(retryAfterMs)}.` : "";
  return `Your budget of ${details.policy} is used up.${wait}`;
}

// The application: the session of a user, room changes, sending and receiving messages, and
// the list of people. It connects the other modules with each other.

import { Countdown } from "./countdown.js";
import { byId, el } from "./dom.js";
import { MessageList, drawAvatar } from "./messages.js";
import { createClient, PenstockError } from "./penstock-client.js";
import { pacing } from "./penstock-pacing.js";
import { Search } from "./search.js";
import { prepareSignIn, remember, roomName, showSignIn } from "./signin.js";
import { announce, hideNotice, reasonOf, resetConnection, sentence, showConnection, showNotice } from "./status.js";

/** @import { Client } from "../../../clients/ts/src/types.ts" */
/** @import { Contract } from "../contract.ts" */

const MAX_TEXT_LENGTH = 500;
const SHOW_COUNTER_FROM = 400;
const BURST_SIZE = 30;
const RETRY_DELAY_MS = 2_000;
const CALL_TIMEOUT_MS = 10_000;
const MAX_WAITING_MESSAGES = 10_000;
const LOST_NOTE = "Some messages may be missing here.";
const KEYBOARD_HINT = matchMedia("(pointer: coarse)").matches ? "" : "Enter sends, Shift+Enter starts a new line.";

let session = null; // see startSession; null: signed out
let unread = 0;

const messages = new MessageList(
  { scroller: byId("messages"), list: byId("message-list"), empty: byId("empty"), pill: byId("new-messages") },
  { onRetry: retry, onEdit: moveToInput, onDiscard: () => byId("text").focus() },
);
const sendCountdown = new Countdown(
  { box: byId("send-countdown"), text: byId("send-countdown-text"), bar: byId("send-countdown-bar") },
  () => (session?.waiting ? session.client.nextAllowedAt("SAY") ?? 0 : undefined),
  (left) => `Next message in ${left} s` + (session.waiting > 1 ? `, ${session.waiting} waiting` : ""),
  () => announce("Messages wait for the rate limit."),
);
const search = new Search(findMessages, () => session?.client.nextAllowedAt("SEARCH_HISTORY"));

// Sign-in and sign-out

function startSession(token, room) {
  session = {
    client: connect(token),
    token,
    name: token.split(":").pop(),
    target: room, // the room that the user wants to be in
    joined: null, // the room that the current connection has joined
    shown: null, // the room whose messages are shown
    position: {}, // epoch and offset up to which its messages are shown
    users: new Set(),
    own: new Set(), // IDs of messages that were sent and not received
    waiting: 0, // messages without an answer
    connection: new AbortController(), // aborted when the connection changes
    calls: new Map(), // the AbortController of the latest call, by type
    whenJoined: [], // functions to be called after ROOM_JOINED
    isJoining: false, // JOIN_ROOM has no reply yet
    earlyEvents: [], // events of the target room that arrive before ROOM_JOINED, to be replayed after it
    joinAttempt: 0, // a reply to an earlier attempt is outdated
  };
  remember(token, room);
  byId("signin").hidden = true;
  byId("chat").hidden = false;
  byId("user-name").textContent = token || "guest";
  byId("room-name").textContent = `#${room}`;
  messages.clear();
  void session.client.connect();
  byId("text").focus();
}

// The server checks the name, which is the token: another attempt would make no difference.
function connect(token) {
  /** @type {Client<Contract>} */
  const client = createClient({
    url: new URL("/ws", location.href.replace(/^http/, "ws")).href,
    token: () => token,
    timeoutMs: CALL_TIMEOUT_MS,
    pacing,
    queue: { maxMessages: MAX_WAITING_MESSAGES },
    stopOn: (code) => code === 4401,
  });
  client.onState((state, info) => session?.client === client && connectionChanged(state, info));
  client.onError((error) => (error instanceof PenstockError ? showNotice(reasonOf(error)) : console.error(error)));
  for (const type of Object.keys(handlers)) client.on(type, (payload, meta) => handleEvent(type, payload, meta));
  client.on("SLOW_DOWN", slowDown);
  return client;
}

// errors: texts for the fields of the sign-in form, by name
function signOut(errors = {}) {
  const { client } = session;
  session = null;
  client.close();
  search.clear();
  resetConnection();
  hideNotice();
  sendCountdown.update();
  setSidePanel(false);
  showSignIn(errors);
}

// Connection

function connectionChanged(state, info) {
  if (state === "closed") return signOut({ name: sentence(info.error.message) });
  session.joined = null;
  session.connection.abort();
  session.connection = new AbortController();
  showConnection(state, info);
  if (state === "open") join(session.target);
  refreshComposer();
}

// call sends a message that must not be sent on another connection, where JOIN_ROOM precedes it.
async function call(type, payload, { signal, ...options } = {}) {
  const { client, calls, connection } = session;
  const controller = new AbortController();
  calls.set(type, controller);
  const signals = [connection.signal, controller.signal, ...(signal ? [signal] : [])];
  try {
    return await client.call(type, payload, { signal: AbortSignal.any(signals), ...options });
  } catch (error) {
    throw error.cause instanceof PenstockError ? error.cause : error;
  } finally {
    if (calls.get(type) === controller) calls.delete(type);
  }
}

// These buttons disappear when pressed, so the focus moves to the text field.

// The client connects at once when the network returns.
function reconnectNow() {
  dispatchEvent(new Event("online"));
  byId("text").focus();
}

function dismissNotice() {
  hideNotice();
  byId("text").focus();
}

// Messages from the server

const handlers = {
  SAID: receiveSaid,
  USER_JOINED: ({ user }) => {
    if (!session.users.has(user)) messages.addNote(`${user} joined`);
    session.users.add(user);
    showPeople();
  },
  USER_LEFT: ({ user }) => {
    if (isMe(user)) return; // another tab of the same user
    if (session.users.delete(user)) messages.addNote(`${user} left`);
    showPeople();
  },
  "$ws:position": movePosition,
};

function handleEvent(type, payload, meta) {
  const room = payload.room ?? payload.topic?.split("/").slice(2).join("/"); // a topic is room/{tenant}/{name}
  if (session.isJoining && room === session.target) {
    session.earlyEvents.push(() => handlers[type](payload, meta));
  } else if (room === session.joined) {
    handlers[type](payload, meta);
  }
}

// The server sends SLOW_DOWN in place of an error if -on-exceeded is custom. It does not say which
// call the server rejected: it is the latest one.
function slowDown({ refused: rejectedType, retryAfterMs }) {
  const error = new PenstockError("RESOURCE_EXHAUSTED", "rate limit exceeded", { retryable: true, retryAfterMs });
  const latest = session.calls.get(rejectedType);
  if (latest) latest.abort(error);
  else showNotice(error.message);
}

// The message after the position has the next offset. An earlier one is known, and a later one means
// that the page has missed the reply of an attempt to join: it presents its position again.
function receiveSaid(message, { offset }) {
  const next = session.position.offset + 1;
  if (offset > next) loadAgain();
  if (offset !== next) return;
  session.position.offset = offset;
  const own = session.own.delete(message.id);
  messages.addReceived(message, own || isMe(message.user));
  if (!own && document.hidden) showUnread(unread + 1);
}

// The server moves the position without a message, for example behind messages that are lost.
function movePosition({ epoch, offset, lost, ended, reset }) {
  session.position = { epoch, offset };
  if (lost || ended || reset) messages.addNote(LOST_NOTE);
  if (!reset) return;
  delete session.position.epoch; // requests the history
  loadAgain();
}

function loadAgain() {
  if (session.target === session.joined) join(session.joined); // else the user is changing rooms
}

// The server does not tell guests their names, and guests of one address share a name.
function isMe(user) {
  return session.token !== "" && (user === session.name || user === session.token);
}

function showUnread(count) {
  unread = count;
  document.title = `${count ? `(${count}) ` : ""}#${session.shown} - Penstock chat`;
}

// Rooms

async function join(room) {
  const startedIn = session;
  const { signal } = startedIn.connection;
  const attempt = ++startedIn.joinAttempt;
  startedIn.target = room;
  startedIn.isJoining = true;
  startedIn.earlyEvents = [];
  refreshComposer();
  const outdated = () => startedIn !== session || signal.aborted || attempt !== startedIn.joinAttempt;
  try {
    const since = room === startedIn.shown ? startedIn.position : {};
    const joined = await call("JOIN_ROOM", { room, ...since });
    if (!outdated()) showJoined(room, joined);
    else if (startedIn === session && !signal.aborted && room !== session.target && room !== session.joined) leave(room); // the user has chosen another room
  } catch (error) {
    if (!outdated()) joinFailed(room, error, outdated);
  }
}

function showJoined(room, { users, history, lost, epoch, offset = 0 }) {
  const previous = session.joined;
  const isNew = room !== session.shown;
  session.joined = session.shown = room;
  session.isJoining = false;
  if (isNew) showRoom(room);
  else notePresenceChanges(session.users, new Set(users));
  session.users = new Set(users);
  if (lost) messages.addNote(LOST_NOTE);
  messages.addHistory(history ?? [], ({ user }) => isMe(user));
  if (isNew || epoch !== session.position.epoch || offset > session.position.offset) session.position = { epoch, offset };
  if (isNew) messages.addNote(`You joined #${room}`);
  replayEarlyEvents();
  if (previous && previous !== room) leave(previous);
  showPeople();
  refreshComposer();
  for (const proceed of session.whenJoined.splice(0)) proceed();
}

function replayEarlyEvents() {
  for (const replay of session.earlyEvents.splice(0)) replay();
}

// USER_JOINED and USER_LEFT were missed while the connection was lost.
function notePresenceChanges(before, now) {
  for (const user of before.difference(now)) messages.addNote(`${user} left`);
  for (const user of now.difference(before)) messages.addNote(`${user} joined`);
}

function showRoom(room) {
  remember(session.token, room);
  messages.clear();
  search.clear();
  hideNotice();
  byId("room-name").textContent = `#${room}`;
  showUnread(0);
}

function joinFailed(room, error, outdated) {
  session.isJoining = false;
  if (room === session.joined) replayEarlyEvents();
  if (error.code === "ABORTED") return; // the connection is lost: connectionChanged joins again
  if (session.joined && session.joined !== room) {
    session.target = session.joined;
    showNotice(`Could not join #${room}: ${reasonOf(error)}`);
  } else if (error.retryable) {
    showNotice(`Could not load #${room} yet: ${reasonOf(error)}`);
    setTimeout(() => outdated() || join(room), error.retryAfterMs ?? RETRY_DELAY_MS);
  } else {
    signOut({ room: `Could not join #${room}: ${reasonOf(error)}` });
  }
  refreshComposer();
}

function leave(room) {
  void session.client.sendWithAck("LEAVE_ROOM", { room });
}

function switchRoom(event) {
  event.preventDefault();
  const room = roomName(byId("switch-room").value);
  if (!room || session.client.state !== "open") return;
  byId("switch-room").value = "";
  setSidePanel(false);
  byId("text").focus();
  if (room !== session.target) join(room);
}

// Composer

function submitText(event) {
  event?.preventDefault();
  const text = byId("text").value.trim();
  if (text && composerState().name === "ready") {
    say(text);
    byId("text").value = "";
    textChanged();
  }
  byId("text").focus();
}

function say(text, id = newId()) {
  const entry = messages.addPending(session.name, text, id);
  deliver(text, id).catch((error) => messages.fail(entry, failureOf(error)));
}

// The server publishes a message with the same ID only once.
function retry(text, id) {
  say(text, id);
  byId("text").focus();
}

function moveToInput(text) {
  const input = byId("text");
  input.value = input.value ? `${input.value}\n${text}` : text;
  textChanged();
  input.focus();
}

function sendBurst() {
  const entry = messages.addBurst(BURST_SIZE);
  const deliveries = Array.from({ length: BURST_SIZE }, (_, i) => deliver(`Number ${i + 1} of ${BURST_SIZE}`).then(
    () => messages.setBurstResult(entry, i, "delivered"),
    (error) => messages.setBurstResult(entry, i, isUnknownOutcome(error) ? "unconfirmed" : "rejected"),
  ));
  Promise.all(deliveries).then(() => {
    messages.moveToEnd(entry);
    announce(entry.node.textContent);
  });
  byId("text").focus();
}

// deliver resolves when the server has stored the message. A message that could not be sent
// because the connection has changed is sent on the next one, with the same ID.
async function deliver(text, id = newId()) {
  const mine = session;
  const room = mine.joined;
  mine.own.add(id);
  mine.waiting++;
  try {
    for (;;) {
      const { signal } = mine.connection;
      const stored = call("SAY", { room, text, id }, { timeoutMs: Infinity });
      sendCountdown.update();
      try {
        return await stored;
      } catch (error) {
        if (mine !== session || !signal.aborted || error.code !== "CANCELLED") throw error;
      }
      await new Promise((resolve) => mine.whenJoined.push(resolve));
    }
  } finally {
    mine.waiting--;
    sendCountdown.update();
  }
}

function failureOf(error) {
  if (isUnknownOutcome(error)) return { state: "unconfirmed", reason: "Not confirmed.", canRetry: true };
  if (error.retryAfterMs === null) return { state: "rejected", reason: `Never accepted: ${reasonOf(error)}.`, canRetry: false };
  return { state: "rejected", reason: `Rejected: ${reasonOf(error)}.`, canRetry: error.retryable };
}

// The server may have stored the message.
function isUnknownOutcome({ code, mayHaveExecuted }) {
  return mayHaveExecuted || code === "OUTCOME_UNKNOWN" || code === "DEADLINE_EXCEEDED";
}

// crypto.randomUUID is available only over https and on localhost.
function newId() {
  return Array.from(crypto.getRandomValues(new Uint32Array(3)), (n) => n.toString(36)).join("-");
}

function composerState() {
  const length = [...byId("text").value.trim()].length;
  if (session?.client.state !== "open") return { name: "offline", hint: "Not connected. Your text is kept." };
  if (!session.joined) return { name: "joining", hint: `Joining #${session.target}…` };
  if (length > MAX_TEXT_LENGTH) return { name: "too-long", hint: `Too long by ${length - MAX_TEXT_LENGTH} characters.` };
  return { name: "ready", hint: KEYBOARD_HINT };
}

function refreshComposer() {
  const { name, hint } = composerState();
  byId("composer").dataset.state = name;
  byId("composer-hint").textContent = hint;
  byId("send").disabled = name !== "ready";
  byId("send-burst").disabled = name !== "ready" && name !== "too-long";
  messages.allowRetry(!byId("send-burst").disabled);
}

function textChanged() {
  const input = byId("text");
  input.style.height = "auto";
  input.style.height = `${input.scrollHeight + input.offsetHeight - input.clientHeight}px`;
  const length = [...input.value.trim()].length;
  byId("counter").hidden = length < SHOW_COUNTER_FROM;
  byId("counter").textContent = `${length} / ${MAX_TEXT_LENGTH}`;
  refreshComposer();
}

function keyPressed(event) {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submitText(event);
}

// People

function showPeople() {
  const users = [...session.users].sort((a, b) => a.localeCompare(b));
  byId("people").replaceChildren(...users.map((user) =>
    el("li", { data: { user } }, drawAvatar(user), el("span", { className: "person" }, user), isMe(user) ? el("small", {}, "you") : null)));
  byId("people-count").textContent = byId("people-count-short").textContent = users.length;
}

async function refreshPeople() {
  const room = session.joined;
  try {
    const { users } = await call("WHO", { room });
    if (room !== session?.shown) return;
    session.users = new Set(users);
    showPeople();
  } catch (error) {
    if (session) showNotice(`Could not refresh the list of people: ${reasonOf(error)}`);
  }
}

// Search

async function findMessages(query, signal) {
  const { matches } = await call("SEARCH_HISTORY", { room: session.joined, query }, { signal });
  return matches ?? [];
}

// Side panel: a drawer on narrow screens

function setSidePanel(open) {
  const wasOpen = byId("chat").dataset.side === "open";
  byId("chat").dataset.side = open ? "open" : "closed";
  byId("side-toggle").ariaExpanded = String(open);
  byId("conversation").inert = open;
  if (open) byId("side-close").focus();
  else if (wasOpen) byId("side-toggle").focus();
}

// Start-up

byId("signout").addEventListener("click", () => signOut());
byId("reconnect-now").addEventListener("click", reconnectNow);
byId("notice-close").addEventListener("click", dismissNotice);
byId("composer").addEventListener("submit", submitText);
byId("text").addEventListener("input", textChanged);
byId("text").addEventListener("keydown", keyPressed);
byId("send-burst").addEventListener("click", sendBurst);
byId("people-refresh").addEventListener("click", refreshPeople);
byId("switch-form").addEventListener("submit", switchRoom);
byId("side-toggle").addEventListener("click", () => setSidePanel(true));
byId("side-close").addEventListener("click", () => setSidePanel(false));
byId("backdrop").addEventListener("click", () => setSidePanel(false));
addEventListener("keydown", (event) => event.key === "Escape" && setSidePanel(false));
matchMedia("(min-width: 56rem)").addEventListener("change", () => setSidePanel(false));
document.addEventListener("visibilitychange", () => session?.shown && !document.hidden && showUnread(0));
prepareSignIn(startSession);

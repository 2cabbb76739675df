// The application: the session of a user, room changes, sending and receiving messages, and
// the list of people. It connects the other modules with each other.

import { Countdown } from "./countdown.js";
import { byId, el } from "./dom.js";
import { MessageList, drawAvatar } from "./messages.js";
import { Search } from "./search.js";
import { prepareSignIn, remember, roomName, showSignIn } from "./signin.js";
import { Socket, newId } from "./socket.js";
import { announce, hideNotice, showConnection, showNotice, stopCountdown } from "./status.js";

const MAX_TEXT_LENGTH = 500;
const SHOW_COUNTER_FROM = 400;
const BURST_SIZE = 30;
const RETRY_DELAY_MS = 2_000;
const LOST_NOTE = "Some messages may be missing here.";
const KEYBOARD_HINT = matchMedia("(pointer: coarse)").matches ? "" : "Enter sends, Shift+Enter starts a new line.";

let session = null; // see startSession; null: signed out
let socket = null;
let unread = 0;

const messages = new MessageList(
  { scroller: byId("messages"), list: byId("message-list"), empty: byId("empty"), pill: byId("new-messages") },
  { onRetry: retry, onEdit: moveToInput, onDiscard: () => byId("text").focus() },
);
const sendCountdown = new Countdown(
  { box: byId("send-countdown"), text: byId("send-countdown-text"), bar: byId("send-countdown-bar") },
  (left) => (session?.joined ? `Retry in ${left} s` : `Joining #${session?.target} in ${left} s`),
  sendCountdownChanged,
);
const search = new Search(findMessages);

// Sign-in and sign-out

function startSession(token, room) {
  session = {
    token,
    name: token.split(":").pop(),
    target: room, // the room that the user wants to be in
    joined: null, // the room that the current connection has joined
    shown: null, // the room whose messages are shown
    position: {}, // epoch and offset up to which its messages are shown
    users: new Set(),
    outbox: new Map(), // correlation IDs of sent messages that the server has not published yet, by message ID
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
  socket = new Socket(token, { onState: connectionChanged, onMessage: handleMessage, onRejected: (name) => signOut({ name }) });
  socket.start();
  byId("text").focus();
}

// errors: texts for the fields of the sign-in form, by name
function signOut(errors = {}) {
  search.clear();
  socket.stop();
  socket = session = null;
  stopCountdown();
  hideNotice();
  sendCountdown.stop();
  search.stopCountdown();
  setSidePanel(false);
  showSignIn(errors);
}

// Connection

function connectionChanged(state) {
  showConnection(state);
  if (state.name === "online") {
    join(session.target);
  } else {
    session.joined = null;
    sendCountdown.stop();
    search.stopCountdown();
  }
  refreshComposer();
}

// These buttons disappear when pressed, so the focus moves to the text field.

function reconnectNow() {
  socket.reconnectNow();
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

function handleMessage(type, payload, meta) {
  const room = payload.room ?? payload.topic?.split("/").slice(2).join("/"); // a topic is room/{tenant}/{name}
  if (type === "ERROR" || type === "RPC_ERROR") {
    showEventError(payload);
  } else if (type === "SLOW_DOWN") {
    slowDown(payload);
  } else if (!Object.hasOwn(handlers, type)) {
    return;
  } else if (session.isJoining && room === session.target) {
    session.earlyEvents.push(() => handlers[type](payload, meta));
  } else if (room === session.joined) {
    handlers[type](payload, meta);
  }
}

// An error without a call in flight: the call has timed out, or the error has no correlation ID.
function showEventError({ message, code, retryAfterMs }) {
  showNotice(message || code);
  if (code === "RESOURCE_EXHAUSTED" && retryAfterMs > 0) sendCountdown.start(retryAfterMs);
}

// The server sends SLOW_DOWN in place of an error if -on-exceeded is custom.
function slowDown({ refused: rejectedType, retryAfterMs }) {
  const error = { code: "RESOURCE_EXHAUSTED", message: "rate limit exceeded", retryable: true, retryAfterMs };
  if (!socket.rejectLatest(rejectedType, error)) showEventError(error);
}

// The message after the position has the next offset. An earlier one is known, and a later one means
// that the page has missed the reply of an attempt to join: it presents its position again.
function receiveSaid(message, { offset }) {
  const next = session.position.offset + 1;
  if (offset > next) loadAgain();
  if (offset !== next) return;
  session.position.offset = offset;
  const call = session.outbox.get(message.id);
  messages.addReceived(message, Boolean(call) || isMe(message.user));
  if (call) socket.resolve(call);
  else if (document.hidden) showUnread(unread + 1);
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
  const attempt = ++startedIn.joinAttempt;
  startedIn.target = room;
  startedIn.isJoining = true;
  startedIn.earlyEvents = [];
  refreshComposer();
  const outdated = () => startedIn !== session || attempt !== startedIn.joinAttempt;
  try {
    const since = room === startedIn.shown ? startedIn.position : {};
    const joined = await socket.call("JOIN_ROOM", { room, ...since }).reply;
    if (!outdated()) showJoined(room, joined);
    else if (startedIn === session && room !== session.target && room !== session.joined) leave(room); // the user has chosen another room
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
  if (error.code === "CONNECTION_LOST") return; // connectionChanged joins again
  if (error.isRateLimit) {
    sendCountdown.start(error.retryAfterMs);
    setTimeout(() => outdated() || join(room), error.retryAfterMs);
  } else if (session.joined && session.joined !== room) {
    session.target = session.joined;
    showNotice(`Could not join #${room}: ${error.message}`);
  } else if (error.code === "TIMEOUT") {
    showNotice(error.message);
    join(room);
  } else if (error.retryable) {
    showNotice(`Could not load #${room} yet: ${error.message}`);
    setTimeout(() => outdated() || join(room), RETRY_DELAY_MS);
  } else {
    signOut({ room: `Could not join #${room}: ${error.message}` });
  }
  refreshComposer();
}

function leave(room) {
  const sentOn = socket;
  sentOn.call("LEAVE_ROOM", { room }).reply.catch((error) => {
    if (error.isRateLimit) setTimeout(() => sentOn === socket && session.joined !== room && leave(room), error.retryAfterMs);
  });
}

function switchRoom(event) {
  event.preventDefault();
  const room = roomName(byId("switch-room").value);
  if (!room || !socket.isOpen) return;
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
    (error) => messages.setBurstResult(entry, i, error.isUnknownOutcome ? "unconfirmed" : "rejected"),
  ));
  Promise.all(deliveries).then(() => {
    messages.moveToEnd(entry);
    announce(entry.node.textContent);
  });
  byId("text").focus();
}

// deliver resolves when the server has published the message to the room.
async function deliver(text, id = newId()) {
  const { outbox, joined: room } = session;
  const { id: call, reply } = socket.call("SAY", { room, text, id });
  outbox.set(id, call);
  try {
    await reply;
  } catch (error) {
    if (error.isRateLimit) sendCountdown.start(error.retryAfterMs);
    throw error;
  } finally {
    outbox.delete(id);
  }
}

function failureOf(error) {
  if (error.isRateLimit) return { state: "rejected", reason: "Rejected: rate limit exceeded.", canRetry: true };
  if (error.isUnknownOutcome) return { state: "unconfirmed", reason: "Not confirmed.", canRetry: true };
  if (error.retryAfterMs === null) return { state: "rejected", reason: `Never accepted: ${error.message}.`, canRetry: false };
  return { state: "rejected", reason: `Rejected: ${error.message}.`, canRetry: error.retryable };
}

function sendCountdownChanged(isRunning) {
  refreshComposer();
  if (!session?.joined) return;
  announce(isRunning ? `Message rejected: rate limit exceeded. ${byId("send-countdown-text").textContent}.` : "You can send again.");
}

function composerState() {
  const length = [...byId("text").value.trim()].length;
  if (!socket?.isOpen) return { name: "offline", hint: "Not connected. Your text is kept." };
  if (!session.joined) return { name: "joining", hint: `Joining #${session.target}…` };
  if (sendCountdown.isRunning) return { name: "limited", hint: "Rate limit exceeded. Your text is kept." };
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
  const { reply } = socket.call("WHO", { room });
  try {
    const { users } = await reply;
    if (room !== session?.shown) return;
    session.users = new Set(users);
    showPeople();
  } catch (error) {
    if (session) showNotice(`Could not refresh the list of people: ${error.message}`);
  }
}

// Search

async function findMessages(query, signal) {
  const sentOn = socket;
  const { id, reply } = sentOn.call("SEARCH_HISTORY", { room: session.joined, query });
  signal.addEventListener("abort", () => sentOn.abort(id));
  const { matches } = await reply;
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

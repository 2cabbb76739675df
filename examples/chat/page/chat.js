// The page: rooms, writing, people and search.

import { byId, el } from "./dom.js";
import { Gate } from "./gate.js";
import { MessageList, drawAvatar, drawMatch } from "./messages.js";
import { prepareSignIn, remember, roomName, showSignIn } from "./signin.js";
import { Socket } from "./socket.js";
import { announce, hideNotice, showConnection, showNotice, stopCountdown } from "./status.js";

const LONGEST_TEXT = 500;
const COUNT_FROM = 400;
const BURST = 30;
const RETRY_PAUSE = 2_000;
const KEYS_HINT = matchMedia("(pointer: coarse)").matches ? "" : "Enter sends, Shift+Enter makes a new line.";

let session = null; // who is signed in, and where
let socket = null;
let unseen = 0;

const messages = new MessageList(
  { scroller: byId("messages"), list: byId("message-list"), empty: byId("empty"), pill: byId("new-messages") },
  { onAgain: sayAgain, onEdit: backToInput, onDiscard: () => byId("text").focus() },
);
const sendGate = new Gate(
  { box: byId("gate"), text: byId("gate-text"), bar: byId("gate-bar") },
  (left) => (session?.joined ? `Next message in ${left} s` : `Joining again in ${left} s`),
  sendGateChanged,
);
const searchGate = new Gate(
  { box: byId("search-gate"), text: byId("search-gate-text"), bar: byId("search-gate-bar") },
  (left) => `Next search in ${left} s`,
  searchGateChanged,
);

// Signing in and out

function open(token, room) {
  session = {
    token,
    name: token.split(":").pop(),
    target: room, // the room to be in
    joined: null, // the room this connection is in
    shown: null, // the room whose messages are shown
    users: new Set(),
    outbox: [], // what was said and is not back yet
    early: [], // what came from a room before the answer that says who is there
    attempt: 0,
  };
  remember(token, room);
  byId("signin").hidden = true;
  byId("chat").hidden = false;
  byId("who-am-i").textContent = token || "guest";
  byId("room-name").textContent = `#${room}`;
  messages.clear();
  socket = new Socket(token, { onState: connectionChanged, onMessage: received });
  socket.start();
  byId("text").focus();
}

function signOut(roomError = "") {
  socket.stop();
  socket = session = null;
  stopCountdown();
  hideNotice();
  sendGate.open();
  searchGate.open();
  openSide(false);
  showSignIn(roomError);
}

// The connection

function connectionChanged(state) {
  showConnection(state);
  if (state.name === "online") {
    join(session.target);
  } else {
    session.joined = null;
    sendGate.open();
    searchGate.open();
  }
  refreshComposer();
}

// What is pressed here goes away, and must not take the focus along.

function reconnectNow() {
  socket.reconnectNow();
  byId("text").focus();
}

function dismissNotice() {
  hideNotice();
  byId("text").focus();
}

// What the server sends

const receivers = {
  SAID: heard,
  USER_JOINED: ({ user }) => {
    if (!session.users.has(user)) messages.note(`${user} joined`);
    session.users.add(user);
    showPeople();
  },
  USER_LEFT: ({ user }) => {
    if (isMe(user)) return; // another tab of the same name
    if (session.users.delete(user)) messages.note(`${user} left`);
    showPeople();
  },
};

function received(type, payload) {
  if (type === "ERROR" || type === "RPC_ERROR") {
    uncalledError(payload);
  } else if (type === "SLOW_DOWN") {
    slowDown(payload);
  } else if (!Object.hasOwn(receivers, type)) {
    return;
  } else if (payload.room === session.joined) {
    receivers[type](payload);
  } else if (payload.room === session.target) {
    session.early.push(() => receivers[type](payload));
  }
}

function uncalledError({ message, code, retryAfterMs }) {
  showNotice(message || code);
  if (code === "RESOURCE_EXHAUSTED" && retryAfterMs > 0) sendGate.close(retryAfterMs);
}

// What -on-exceeded=custom sends in place of an error.
function slowDown({ refused, retryAfterMs }) {
  const error = { code: "RESOURCE_EXHAUSTED", message: "slow down", retryable: true, retryAfterMs };
  if (!socket.refuse(refused, error)) uncalledError(error);
}

function heard(message) {
  const mayBeMine = isMe(message.user) || !session.token && message.user.startsWith("guest~");
  const own = session.outbox.find(({ room, text }) => mayBeMine && room === message.room && text === message.text);
  if (own) {
    socket.settle(own.id, message);
    return;
  }
  messages.said(message, isMe(message.user));
  if (document.hidden) showUnseen(unseen + 1);
}

// A guest is not told its name, and may share it.
function isMe(user) {
  return session.token !== "" && (user === session.name || user === session.token);
}

function showUnseen(count) {
  unseen = count;
  document.title = `${count ? `(${count}) ` : ""}#${session.shown} - Penstock chat`;
}

// Rooms

async function join(room) {
  const here = session;
  const attempt = ++here.attempt;
  here.target = room;
  here.early = [];
  refreshComposer();
  const outdated = () => here !== session || attempt !== here.attempt;
  try {
    const joined = await socket.call("JOIN_ROOM", { room }).reply;
    if (!outdated()) enter(room, joined);
    else if (here === session && room !== here.target && room !== here.joined) leave(room); // on the way to another
  } catch (error) {
    if (!outdated()) joinFailed(room, error, outdated);
  }
}

function enter(room, { users, history }) {
  const left = session.joined;
  const isNew = room !== session.shown;
  session.joined = session.shown = room;
  if (isNew) showRoom(room);
  else noteWhoChanged(session.users, new Set(users));
  session.users = new Set(users);
  messages.merge(history ?? [], ({ user }) => isMe(user));
  if (isNew) messages.note(`You joined #${room}`);
  for (const replay of session.early.splice(0)) replay();
  if (left && left !== room) leave(left);
  showPeople();
  refreshComposer();
}

// While the connection was lost nobody told.
function noteWhoChanged(before, now) {
  for (const user of before.difference(now)) messages.note(`${user} left`);
  for (const user of now.difference(before)) messages.note(`${user} joined`);
}

function showRoom(room) {
  remember(session.token, room);
  messages.clear();
  clearSearch();
  hideNotice();
  byId("room-name").textContent = `#${room}`;
  showUnseen(0);
}

function joinFailed(room, error, outdated) {
  if (error.code === "CONNECTION_LOST") return; // joins again once it is back
  if (error.isRateLimit) {
    sendGate.close(error.retryAfterMs);
    setTimeout(() => outdated() || join(room), error.retryAfterMs);
  } else if (session.joined) {
    session.target = session.joined;
    showNotice(`Could not join #${room}: ${error.message}`);
  } else if (error.code === "TIMEOUT") {
    showNotice(error.message);
    join(room);
  } else if (error.retryable) {
    showNotice(`Could not join #${room} yet: ${error.message}`);
    setTimeout(() => outdated() || join(room), RETRY_PAUSE);
  } else {
    signOut(`Could not join #${room}: ${error.message}`);
  }
  refreshComposer();
}

function leave(room) {
  const here = socket;
  here.call("LEAVE_ROOM", { room }).reply.catch((error) => {
    if (error.isRateLimit) setTimeout(() => here === socket && session.joined !== room && leave(room), error.retryAfterMs);
  });
}

function switchRoom(event) {
  event.preventDefault();
  const room = roomName(byId("switch-room").value);
  if (!room || !socket.isOpen) return;
  byId("switch-room").value = "";
  openSide(false);
  byId("text").focus();
  if (room !== session.target) join(room);
}

// Writing

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

function say(text) {
  const entry = messages.pending(session.name, text);
  deliver(text).then(
    (message) => messages.confirm(entry, message),
    (error) => messages.refuse(entry, ...fateOf(error)),
  );
}

function sayAgain(text) {
  say(text);
  byId("text").focus();
}

function backToInput(text) {
  const input = byId("text");
  input.value = input.value ? `${input.value}\n${text}` : text;
  textChanged();
  input.focus();
}

function sendBurst() {
  const entry = messages.burst(BURST);
  const shots = Array.from({ length: BURST }, (_, i) => deliver(`Number ${i + 1} of ${BURST}`).then(
    (message) => {
      messages.said(message, true);
      messages.shot(entry, i, "delivered");
    },
    (error) => messages.shot(entry, i, error.isUnknownOutcome ? "lost" : "refused"),
  ));
  Promise.all(shots).then(() => {
    messages.moveToEnd(entry);
    announce(entry.node.textContent);
  });
  byId("text").focus();
}

// deliver resolves with the message as everyone in the room got it.
async function deliver(text) {
  const { outbox, joined: room } = session;
  const { id, reply } = socket.call("SAY", { room, text });
  const sent = { id, room, text };
  outbox.push(sent);
  try {
    return await reply;
  } catch (error) {
    if (error.isRateLimit) sendGate.close(error.retryAfterMs);
    throw error;
  } finally {
    outbox.splice(outbox.indexOf(sent), 1);
  }
}

function fateOf(error) {
  if (error.isRateLimit) return ["refused", "Refused by the rate limiter.", true];
  if (error.isUnknownOutcome) return ["unsure", "Not confirmed.", true];
  if (error.retryAfterMs === null) return ["refused", `Can never be sent: ${error.message}.`, false];
  return ["refused", `Refused: ${error.message}.`, error.retryable];
}

function sendGateChanged(closed) {
  refreshComposer();
  if (!session?.joined) return;
  announce(closed ? `Refused by the rate limiter. ${byId("gate-text").textContent}.` : "You can send again.");
}

function composerState() {
  const length = [...byId("text").value.trim()].length;
  if (!socket?.isOpen) return { name: "offline", hint: "Not connected. Your text is kept." };
  if (!session.joined) return { name: "joining", hint: `Joining #${session.target}…` };
  if (sendGate.isClosed) return { name: "limited", hint: "Over the rate limit. Your text is kept." };
  if (length > LONGEST_TEXT) return { name: "too-long", hint: `Too long by ${length - LONGEST_TEXT}.` };
  return { name: "ready", hint: KEYS_HINT };
}

function refreshComposer() {
  const { name, hint } = composerState();
  byId("composer").dataset.state = name;
  byId("composer-hint").textContent = hint;
  byId("send").disabled = name !== "ready";
  byId("flood").disabled = name !== "ready" && name !== "too-long";
  messages.allowRetry(!byId("flood").disabled);
}

function textChanged() {
  const input = byId("text");
  input.style.height = "auto";
  input.style.height = `${input.scrollHeight + input.offsetHeight - input.clientHeight}px`;
  const length = [...input.value.trim()].length;
  byId("counter").hidden = length < COUNT_FROM;
  byId("counter").textContent = `${length} / ${LONGEST_TEXT}`;
  refreshComposer();
}

function keyInText(event) {
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
    if (session) showNotice(`Could not ask who is here: ${error.message}`);
  }
}

// Search

async function search(event) {
  event.preventDefault();
  const query = byId("search-query").value.trim();
  if (!query || searchGate.isClosed) return;
  const room = session.joined;
  byId("search-status").textContent = "Searching…";
  try {
    const { matches } = await socket.call("SEARCH_HISTORY", { room, query }).reply;
    if (room === session?.shown) showMatches(matches ?? []);
  } catch (error) {
    if (session) searchFailed(error);
  }
}

function showMatches(matches) {
  byId("search-results").replaceChildren(...matches.map(drawMatch));
  byId("search-status").textContent = matches.length === 1 ? "1 match" : `${matches.length || "No"} matches`;
}

function searchFailed(error) {
  byId("search-status").textContent = error.isRateLimit ? "Refused by the rate limiter." : `Search failed: ${error.message}`;
  if (error.isRateLimit) searchGate.close(error.retryAfterMs);
}

function searchGateChanged(closed) {
  byId("search-submit").disabled = closed;
  if (!closed && session) byId("search-status").textContent = "You can search again.";
}

function clearSearch() {
  byId("search-results").replaceChildren();
  byId("search-status").textContent = "";
}

// The side panel, a drawer on small screens

function openSide(open) {
  const wasOpen = byId("chat").dataset.side === "open";
  byId("chat").dataset.side = open ? "open" : "closed";
  byId("side-toggle").ariaExpanded = String(open);
  byId("conversation").inert = open;
  if (open) byId("side-close").focus();
  else if (wasOpen) byId("side-toggle").focus();
}

// Start

byId("signout").addEventListener("click", () => signOut());
byId("reconnect-now").addEventListener("click", reconnectNow);
byId("notice-close").addEventListener("click", dismissNotice);
byId("composer").addEventListener("submit", submitText);
byId("text").addEventListener("input", textChanged);
byId("text").addEventListener("keydown", keyInText);
byId("flood").addEventListener("click", sendBurst);
byId("people-refresh").addEventListener("click", refreshPeople);
byId("switch-form").addEventListener("submit", switchRoom);
byId("search-form").addEventListener("submit", search);
byId("side-toggle").addEventListener("click", () => openSide(true));
byId("side-close").addEventListener("click", () => openSide(false));
byId("backdrop").addEventListener("click", () => openSide(false));
addEventListener("keydown", (event) => event.key === "Escape" && openSide(false));
matchMedia("(min-width: 56rem)").addEventListener("change", () => openSide(false));
document.addEventListener("visibilitychange", () => session?.shown && !document.hidden && showUnseen(0));
prepareSignIn(open);

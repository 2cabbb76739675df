// The sign-in card, and what it remembers.

import { byId, el } from "./dom.js";

const TOKEN = /^([A-Za-z0-9_.-]{1,32}:)?[A-Za-z0-9_.-]{1,32}$/;
const STORE = "penstock-chat";
const ROOMS_REMEMBERED = 8;

// prepareSignIn fills the card; onSignIn gets the token, which is empty for a
// guest, and the room. A tab that was in a room is taken back there.
export function prepareSignIn(onSignIn) {
  const here = recall(() => sessionStorage);
  const { name = "", room = "lobby" } = here.room ? here : recall(() => localStorage);
  byId("name").value = name;
  byId("room").value = room;
  byId("signin-form").addEventListener("submit", (event) => {
    event.preventDefault();
    submit(onSignIn);
  });
  byId(name ? "signin-submit" : "name").focus();
  if (here.room) onSignIn(name, room);
}

export function showSignIn(roomError) {
  store(() => sessionStorage, {});
  byId("chat").hidden = true;
  byId("signin").hidden = false;
  document.title = "Penstock chat";
  setFieldError("room", roomError);
  byId(roomError ? "room" : "signin-submit").focus();
}

export function remember(name, room) {
  const rooms = [room, ...(recall(() => localStorage).rooms ?? []).filter((r) => r !== room)].slice(0, ROOMS_REMEMBERED);
  byId("known-rooms").replaceChildren(...rooms.map((value) => el("option", { value })));
  store(() => localStorage, { name, room, rooms });
  store(() => sessionStorage, { name, room });
}

export function roomName(input) {
  return input.trim().replace(/^#+/, "");
}

// The server refuses a malformed name before there is a WebSocket, which a page
// cannot tell from a server that is down: so it is refused here.
function submit(onSignIn) {
  const token = byId("name").value.trim();
  const room = roomName(byId("room").value);
  const nameIsGood = token === "" || TOKEN.test(token);
  setFieldError("name", nameIsGood ? "" : "Use 1 to 32 of A-Z a-z 0-9 _ . - and at most one tenant in front, with a colon.");
  setFieldError("room", room ? "" : "Name a room.");
  if (!nameIsGood) byId("name").focus();
  else if (!room) byId("room").focus();
  else onSignIn(token, room);
}

function setFieldError(id, message) {
  byId(`${id}-error`).textContent = message;
  byId(id).ariaInvalid = message ? "true" : null;
}

// The page works without storage: merely to name it may be forbidden.

function store(storage, value) {
  try {
    storage().setItem(STORE, JSON.stringify(value));
  } catch {
    // Nothing is remembered.
  }
}

function recall(storage) {
  try {
    return JSON.parse(storage().getItem(STORE)) ?? {};
  } catch {
    return {};
  }
}

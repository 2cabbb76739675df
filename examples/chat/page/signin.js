// The sign-in form. It stores the name and the recent rooms in the browser.

import { byId, el } from "./dom.js";

const TOKEN = /^([A-Za-z0-9_.-]{1,32}:)?[A-Za-z0-9_.-]{1,32}$/;
const STORE = "penstock-chat";
const MAX_RECENT_ROOMS = 8;

// prepareSignIn fills the form. onSignIn receives the token, which is empty for a guest, and
// the room. A tab that was in a room joins it again without the form.
export function prepareSignIn(onSignIn) {
  const tab = load(() => sessionStorage);
  const { name = "", room = "lobby" } = tab.room ? tab : load(() => localStorage);
  byId("name").value = name;
  byId("room").value = room;
  byId("signin-form").addEventListener("submit", (event) => {
    event.preventDefault();
    submit(onSignIn);
  });
  byId(name ? "signin-submit" : "name").focus();
  if (tab.room) onSignIn(name, room);
}

export function showSignIn(roomError) {
  save(() => sessionStorage, {});
  byId("chat").hidden = true;
  byId("signin").hidden = false;
  document.title = "Penstock chat";
  setFieldError("room", roomError);
  byId(roomError ? "room" : "signin-submit").focus();
}

export function remember(name, room) {
  const rooms = [room, ...(load(() => localStorage).rooms ?? []).filter((r) => r !== room)].slice(0, MAX_RECENT_ROOMS);
  byId("known-rooms").replaceChildren(...rooms.map((value) => el("option", { value })));
  save(() => localStorage, { name, room, rooms });
  save(() => sessionStorage, { name, room });
}

export function roomName(input) {
  return input.trim().replace(/^#+/, "");
}

// The server rejects a malformed name before the WebSocket opens. A page cannot distinguish
// that from a server that is down, so the page validates the name itself.
function submit(onSignIn) {
  const token = byId("name").value.trim();
  const room = roomName(byId("room").value);
  const isNameValid = token === "" || TOKEN.test(token);
  setFieldError("name", isNameValid ? "" : "Use 1 to 32 characters of A-Z a-z 0-9 _ . -, optionally after a tenant and a colon.");
  setFieldError("room", room ? "" : "Enter a room name.");
  if (!isNameValid) byId("name").focus();
  else if (!room) byId("room").focus();
  else onSignIn(token, room);
}

function setFieldError(id, message) {
  byId(`${id}-error`).textContent = message;
  byId(id).ariaInvalid = message ? "true" : null;
}

// The storage is passed as a function, because a browser that forbids storage throws when
// a script reads window.localStorage.

function save(storage, value) {
  try {
    storage().setItem(STORE, JSON.stringify(value));
  } catch {
    // The page works without storage.
  }
}

function load(storage) {
  try {
    return JSON.parse(storage().getItem(STORE)) ?? {};
  } catch {
    return {};
  }
}

// The sign-in form. It stores the name and the recent rooms in the browser.

import { byId, el } from "./dom.js";

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

// showSignIn shows the form again, with the errors of its fields.
export function showSignIn({ name = "", room = "" }) {
  save(() => sessionStorage, {});
  byId("chat").hidden = true;
  byId("signin").hidden = false;
  document.title = "Penstock chat";
  setFieldError("name", name);
  setFieldError("room", room);
  byId(name ? "name" : room ? "room" : "signin-submit").focus();
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

// The server validates the name.
function submit(onSignIn) {
  const token = byId("name").value.trim();
  const room = roomName(byId("room").value);
  setFieldError("name", "");
  setFieldError("room", room ? "" : "Enter a room name.");
  if (room) onSignIn(token, room);
  else byId("room").focus();
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

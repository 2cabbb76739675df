// What both pages show of the same data.

import type { Member, State } from "penstock-client";

import type { Note } from "./contract.js";

export const stateTexts: Record<State, string> = {
  idle: "", connecting: "Connecting", open: "Connected", waiting: "Reconnecting", paused: "Offline", closed: "Disconnected",
};

/** Why a note is not posted at once, or nothing. */
export function hintOf(state: State, waitSeconds: number): string {
  if (state !== "open") return "Not connected. A note that you post is sent when the connection returns.";
  return waitSeconds > 0 ? `Next note in ${waitSeconds} s` : "";
}

/** The names of the users, each once: a user may have several connections. */
export function namesOf(members: Member[]): string[] {
  return [...new Set(members.map((member) => member.userId ?? ""))].sort();
}

/** The color of a user, one of eight in style.css. */
export function hueOf(name: string): number {
  return [...name].reduce((hash, char) => Math.imul(hash ^ char.codePointAt(0)!, 0x1000193), 0) >>> 29;
}

export function timeOf(note: Note): string {
  return new Date(note.at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

// A tab that is loaded again stays signed in.

const store = "penstock-board";

export const savedName = () => sessionStorage.getItem(store) ?? "";
export const saveName = (name: string) => sessionStorage.setItem(store, name);

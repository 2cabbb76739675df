// Elements that show data and know no client.

import type { Note } from "../contract.js";
import { hueOf, timeOf } from "../view.js";

export const byId = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;

export function memberItem(name: string): HTMLElement {
  return el("li", { data: { hue: hueOf(name), initial: name[0] } }, name);
}

/** A note. Those of the user me look different. */
export function noteItem(note: Note, me: string): HTMLElement {
  const author = el("span", { className: "author" }, note.author);
  const time = el("time", { dateTime: note.at }, timeOf(note));
  return el("li", { data: { hue: hueOf(note.author), own: note.author === me } }, el("p", { className: "text" }, note.text), el("p", { className: "by" }, author, " ", time));
}

function el(tag: string, { data = {}, ...properties }: { data?: object; className?: string; dateTime?: string }, ...children: (string | HTMLElement)[]): HTMLElement {
  const element = Object.assign(document.createElement(tag), properties);
  Object.assign(element.dataset, data);
  element.append(...children);
  return element;
}

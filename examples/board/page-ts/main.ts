import { createClient, PenstockError, type Client } from "penstock-client";
import { pacing } from "penstock-client/pacing";

import type { Contract } from "../contract.js";
import { hintOf, namesOf, savedName, saveName, stateTexts } from "../view.js";
import { byId, memberItem, noteItem } from "./parts.js";

function showBoard(name: string): void {
  saveName(name);
  byId("signin").hidden = true;
  byId("board").hidden = false;
  const left = new AbortController();
  const client = createClient<Contract>({
    url: location.origin.replace(/^http/, "ws") + "/ws",
    token: () => name, // a real application returns a signed token
    pacing, // knows when the limits permit the next note
  });
  const leave = (reason = "") => {
    left.abort();
    client.close();
    saveName("");
    byId("board").hidden = true;
    byId("signin").hidden = false;
    byId("name-error").textContent = reason;
    byId("name").focus();
  };
  client.onState((state, { error }) => {
    byId("state").textContent = stateTexts[state];
    byId("state").dataset.state = state;
    if (state === "closed" && error && !left.signal.aborted) leave(error.message); // the server has refused the name
  });
  byId("leave").addEventListener("click", () => leave(), left);
  byId("text").focus();
  showNotes(client, name);
  postNotes(client, left.signal);
}

function showNotes(client: Client<Contract>, me: string): void {
  const notes = new Map<string, HTMLElement>();
  let loaded = false;
  byId("loss").textContent = "";
  client.subscribe("board", {
    // All notes follow: at first, and again if the server cannot send exactly what was missed.
    onReset() {
      if (loaded) byId("loss").textContent = "Changes were lost. All notes were loaded again.";
      loaded = true;
      notes.clear();
      byId("note-list").replaceChildren();
    },
    on: {
      NOTE(note) {
        const item = noteItem(note, me);
        notes.set(note.id, item);
        byId("note-list").append(item);
      },
      NOTE_REMOVED({ id }) {
        notes.get(id)?.remove();
        notes.delete(id);
      },
    },
    onPresence: (members) => byId("members").replaceChildren(...namesOf(members).map(memberItem)),
    onEnd: showError,
  });
}

function postNotes(client: Client<Contract>, signal: AbortSignal): void {
  const text = byId<HTMLInputElement>("text");
  const button = byId("post").querySelector("button")!;
  let busy = false;

  const showLimit = () => {
    const seconds = Math.max(0, Math.ceil(((client.nextAllowedAt("POST_NOTE") ?? 0) - performance.now()) / 1000));
    const hint = hintOf(client.state, seconds);
    if (byId("limit").textContent !== hint) byId("limit").textContent = hint; // screen readers announce changes
    button.disabled = busy || seconds > 0;
  };
  const timer = setInterval(showLimit, 100);
  signal.addEventListener("abort", () => clearInterval(timer));
  byId("post").addEventListener("submit", async (event) => {
    event.preventDefault();
    if (busy) return;
    busy = text.readOnly = true;
    byId("error").textContent = "";
    showLimit();
    try {
      // The server recognizes the ID, so the client may send the call again after it has lost the connection.
      await client.call("POST_NOTE", { id: crypto.randomUUID(), text: text.value }, { idempotent: true });
      text.value = "";
    } catch (error) {
      showError(error); // the text stays, so the user can try again
    }
    busy = text.readOnly = false;
    showLimit();
  }, { signal });
}

function showError(error: unknown): void {
  byId("error").textContent = error instanceof PenstockError ? error.message : String(error);
}

byId("join").addEventListener("submit", (event) => {
  event.preventDefault();
  showBoard(byId<HTMLInputElement>("name").value);
});
if (savedName()) showBoard(savedName());

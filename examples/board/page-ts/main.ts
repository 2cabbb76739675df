import { createClient, PenstockError, type Client, type Member, type State } from "penstock-client";
import { pacing } from "penstock-client/pacing";

import type { Contract, Note } from "../contract.js";

const byId = <T extends HTMLElement>(id: string) => document.getElementById(id) as T;

byId("join").addEventListener("submit", (event) => {
  event.preventDefault();
  byId("join").hidden = true;
  byId("board").hidden = false;
  showBoard(byId<HTMLInputElement>("name").value);
});

function showBoard(name: string): void {
  const client = createClient<Contract>({
    url: location.origin.replace(/^http/, "ws") + "/ws",
    token: () => name, // a real application returns a signed token
    pacing, // knows when the limits permit the next note
  });
  client.onState((state, { error }) => (byId("state").textContent = describe(state) + (error ? `: ${error.message}` : "")));

  const notes = new Map<string, HTMLElement>();
  let loaded = false;
  client.subscribe("board", {
    // All notes follow: at first, and again if the server cannot send exactly what was missed.
    onReset() {
      if (loaded) byId("loss").textContent = "Changes were lost. All notes were loaded again.";
      loaded = true;
      notes.clear();
      byId("notes").replaceChildren();
    },
    on: {
      NOTE(note) {
        const item = listItem(`${note.author}: ${note.text}`);
        item.title = timeOf(note);
        notes.set(note.id, item);
        byId("notes").append(item);
        item.scrollIntoView({ block: "nearest" });
      },
      NOTE_REMOVED({ id }) {
        notes.get(id)?.remove();
        notes.delete(id);
      },
    },
    onPresence: (members) => byId("members").replaceChildren(...namesOf(members).map(listItem)),
    onEnd: showError,
  });
  byId("text").focus();
  postNotes(client);
}

function postNotes(client: Client<Contract>): void {
  const text = byId<HTMLInputElement>("text");
  const button = byId("post").querySelector("button")!;
  let busy = false;

  const showLimit = () => {
    const waitMs = (client.nextAllowedAt("POST_NOTE") ?? 0) - performance.now();
    const shown = waitMs > 0 ? `Next note in ${Math.ceil(waitMs / 1000)} s` : "";
    if (byId("limit").textContent !== shown) byId("limit").textContent = shown; // screen readers announce changes
    button.disabled = busy || waitMs > 0;
  };
  setInterval(showLimit, 100);

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
  });
}

function describe(state: State): string {
  return { idle: "", connecting: "Connecting", open: "Connected", waiting: "Reconnecting", paused: "Paused", closed: "Disconnected" }[state];
}

function showError(error: unknown): void {
  byId("error").textContent = error instanceof PenstockError ? error.message : String(error);
}

function listItem(text: string): HTMLElement {
  const item = document.createElement("li");
  item.textContent = text;
  return item;
}

/** The names of the users, each once: a user may have several connections. */
function namesOf(members: Member[]): string[] {
  return [...new Set(members.map((member) => member.userId ?? ""))].sort();
}

function timeOf(note: Note): string {
  return new Date(note.at).toLocaleTimeString();
}

import { StrictMode, useState, type FormEvent } from "react";
import { createRoot } from "react-dom/client";

import { PenstockError, type Member } from "penstock-client";
import { pacing } from "penstock-client/pacing";
import { useClient, useClientState, useTopic, useWaitSeconds, type TopicReducer } from "penstock-client/react";

import type { Contract, Note } from "../contract.js";

const stateTexts = { idle: "", connecting: "Connecting", open: "Connected", waiting: "Reconnecting", paused: "Paused", closed: "Disconnected" };

interface Shown {
  notes: Note[];
  loads: number; // of all notes
  members: Member[];
}

const shown: TopicReducer<Contract, "board", Shown> = {
  initial: { notes: [], loads: 0, members: [] },
  // All notes follow: at first, and again if the server cannot send exactly what was missed.
  onReset: (shown) => ({ ...shown, notes: [], loads: shown.loads + 1 }),
  on: {
    NOTE: (shown, note) => ({ ...shown, notes: [...shown.notes, note] }),
    NOTE_REMOVED: (shown, { id }) => ({ ...shown, notes: shown.notes.filter((note) => note.id !== id) }),
  },
  onPresence: (shown, members) => ({ ...shown, members }),
};

function Board({ name }: { name: string }) {
  const [error, setError] = useState("");
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const client = useClient<Contract>({
    url: location.origin.replace(/^http/, "ws") + "/ws",
    token: () => name, // a real application returns a signed token
    pacing, // knows when the limits permit the next note
  });
  const { state, error: reason } = useClientState(client);
  const { data, error: rejection } = useTopic(client, "board", shown);
  const waitSeconds = useWaitSeconds(client, "POST_NOTE");

  const post = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError("");
    try {
      // The server recognizes the ID, so the client may send the call again after it has lost the connection.
      await client.call("POST_NOTE", { id: crypto.randomUUID(), text }, { idempotent: true });
      setText("");
    } catch (error) {
      setError(error instanceof PenstockError ? error.message : String(error)); // the text stays, so the user can try again
    }
    setBusy(false);
  };

  return (
    <section id="board">
      <p id="state" role="status">{stateTexts[state]}{reason && `: ${reason.message}`}</p>
      <p id="loss" role="alert">{data.loads > 1 && "Changes were lost. All notes were loaded again."}</p>
      <h2>Present</h2>
      <ul id="members">{namesOf(data.members).map((name) => <li key={name}>{name}</li>)}</ul>
      <h2>Notes</h2>
      <ol id="notes" role="log" aria-label="Notes" tabIndex={0}>
        {data.notes.map((note) => (
          <li key={note.id} title={new Date(note.at).toLocaleTimeString()}>{note.author}: {note.text}</li>
        ))}
      </ol>
      <form id="post" onSubmit={post}>
        <label htmlFor="text">New note</label>
        <input id="text" required maxLength={200} autoComplete="off" autoFocus readOnly={busy} value={text} onChange={(e) => setText(e.target.value)} />
        <button disabled={busy || waitSeconds > 0}>Post</button>
        <span id="limit" role="status">{waitSeconds > 0 && `Next note in ${waitSeconds} s`}</span>
      </form>
      <p id="error" role="alert">{error || rejection?.message}</p>
    </section>
  );
}

/** The names of the users, each once: a user may have several connections. */
function namesOf(members: Member[]): string[] {
  return [...new Set(members.map((member) => member.userId ?? ""))].sort();
}

function App() {
  const [name, setName] = useState("");
  const join = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    setName(String(new FormData(event.currentTarget).get("name")));
  };
  return (
    <>
      <h1>Notice board in React</h1>
      {name ? (
        <>
          <Board key={name} name={name} />
          <button id="leave" onClick={() => setName("")}>Leave</button>
        </>
      ) : (
        <form id="join" onSubmit={join}>
          <label htmlFor="name">Your name</label>
          <input id="name" name="name" required maxLength={32} pattern="[A-Za-z0-9_.\-]+" title="letters, digits and _ . -" autoComplete="username" />
          <button>Join</button>
        </form>
      )}
    </>
  );
}

createRoot(document.getElementById("root")!).render(<StrictMode><App /></StrictMode>);

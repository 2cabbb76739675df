import { StrictMode, useEffect, useState, type FormEvent } from "react";
import { createRoot } from "react-dom/client";

import { PenstockError, type Member } from "penstock-client";
import { pacing } from "penstock-client/pacing";
import { useClient, useClientState, useTopic, useWaitSeconds, type TopicReducer } from "penstock-client/react";

import type { Contract, Note } from "../contract.js";
import { hintOf, namesOf, savedName, saveName, stateTexts } from "../view.js";
import { Join, Members, Notes } from "./parts.js";

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

function Board({ name, onLeave }: { name: string; onLeave: (reason?: string) => void }) {
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

  useEffect(() => {
    if (state === "closed" && reason) onLeave(reason.message); // the server has refused the name
  }, [state, reason, onLeave]);

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
    <div id="board" className="board">
      <header className="bar">
        <img src="../icon.svg" alt="" width="32" height="32" />
        <h1>Notice board <small>React</small></h1>
        <p id="state" role="status" data-state={state}>{stateTexts[state]}</p>
        <button id="leave" className="quiet" type="button" onClick={() => onLeave()}>Leave</button>
      </header>
      <main>
        <Members names={namesOf(data.members)} />
        <p id="loss" className="notice" role="alert">{data.loads > 1 && "Changes were lost. All notes were loaded again."}</p>
        <Notes notes={data.notes} me={name} />
        <form id="post" onSubmit={post}>
          <p id="error" className="problem" role="alert">{error || rejection?.message}</p>
          <label htmlFor="text">New note</label>
          <input id="text" required maxLength={200} autoComplete="off" enterKeyHint="send" autoFocus aria-describedby="limit"
            readOnly={busy} value={text} onChange={(e) => setText(e.target.value)} />
          <button className="primary" disabled={busy || waitSeconds > 0}>Post</button>
          <p id="limit" className="hint" role="status">{hintOf(state, waitSeconds)}</p>
        </form>
      </main>
    </div>
  );
}

function App() {
  const [{ name, reason }, setSession] = useState({ name: savedName(), reason: "" });
  const [enter] = useState(() => (name: string, reason = "") => {
    saveName(name);
    setSession({ name, reason });
  });
  const [leave] = useState(() => (reason = "") => enter("", reason));
  return name ? <Board key={name} name={name} onLeave={leave} /> : <Join error={reason} onJoin={enter} />;
}

createRoot(document.getElementById("root")!).render(<StrictMode><App /></StrictMode>);

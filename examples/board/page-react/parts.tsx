// Components that show data and know no client.

import type { FormEvent } from "react";

import type { Note } from "../contract.js";
import { hueOf, timeOf } from "../view.js";

/** The form that asks for a name. error says why the last one was refused. */
export function Join({ error, onJoin }: { error: string; onJoin: (name: string) => void }) {
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    onJoin(String(new FormData(event.currentTarget).get("name")));
  };
  return (
    <main className="signin">
      <form id="join" className="card" onSubmit={submit}>
        <img src="../icon.svg" alt="" width="56" height="56" />
        <h1>Notice board</h1>
        <p className="lead">A shared board in React. Everyone who has it open sees the same notes.</p>
        <label htmlFor="name">Your name</label>
        <input id="name" name="name" required maxLength={32} pattern="[A-Za-z0-9_.\-]+" title="letters, digits and _ . -"
          autoComplete="username" autoCapitalize="off" spellCheck={false} autoFocus aria-describedby="name-hint name-error" />
        <p id="name-hint" className="hint">Up to 32 characters of A-Z a-z 0-9 _ . -</p>
        <p id="name-error" className="problem" role="alert">{error}</p>
        <button className="primary">Join</button>
      </form>
    </main>
  );
}

export function Members({ names }: { names: string[] }) {
  return (
    <section className="present" aria-labelledby="present" tabIndex={0}>
      <h2 id="present">Present</h2>
      <ul id="members">
        {names.map((name) => <li key={name} data-hue={hueOf(name)} data-initial={name[0]}>{name}</li>)}
      </ul>
    </section>
  );
}

/** The notes, oldest first. Those of the user me look different. */
export function Notes({ notes, me }: { notes: Note[]; me: string }) {
  return (
    <div id="notes" className="notes" role="log" aria-label="Notes" tabIndex={0}>
      <ol>
        {notes.map((note) => (
          <li key={note.id} data-hue={hueOf(note.author)} data-own={note.author === me}>
            <p className="text">{note.text}</p>
            <p className="by"><span className="author">{note.author}</span> <time dateTime={note.at}>{timeOf(note)}</time></p>
          </li>
        ))}
      </ol>
      <p className="empty">The board is empty.<br />Post the first note, or open this page in a second window to watch it arrive.</p>
    </div>
  );
}

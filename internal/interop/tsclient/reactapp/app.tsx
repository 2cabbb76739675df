// An application as the guides describe it: a topic as a collection, shown by a live query, and the hooks of the client.
import { createCollection, useLiveQuery } from "@tanstack/react-db";
import { createClient, type Client } from "penstock-client";
import { useClientState, useTopic, type TopicReducer } from "penstock-client/react";
import { topicCollectionOptions } from "penstock-client/tanstack-db";
import { createRoot } from "react-dom/client";

interface Note {
  id: string;
  text: string;
}

interface Contract {
  calls: { REMOVE_NOTE: { request: { id: string }; reply: undefined; progress: never } };
  received: { NOTE: Note; NOTE_REMOVED: { id: string } };
  topics: { board: { messages: "NOTE" | "NOTE_REMOVED" } };
}

const client: Client<Contract> = createClient<Contract>({ url: "wss://example.com/ws" });

const notes = createCollection({
  ...topicCollectionOptions({
    client,
    topic: "board",
    getKey: (note: Note) => note.id,
    rows: { NOTE: (note) => note },
    removed: { NOTE_REMOVED: ({ id }) => id },
  }),
  onDelete: ({ transaction }) => client.call("REMOVE_NOTE", { id: transaction.mutations[0].key }),
});

const counter: TopicReducer<Contract, "board", number> = { initial: 0, on: { NOTE: (count) => count + 1 } };

function Board() {
  const { state } = useClientState(client);
  const { data: count } = useTopic(client, "board", counter);
  const { data } = useLiveQuery((query) => query.from({ note: notes }));
  return (
    <ul title={`${state} ${count}`}>
      {data.map(({ id, text }) => (
        <li key={id} onClick={() => notes.delete(id)}>
          {text satisfies string}
        </li>
      ))}
    </ul>
  );
}

createRoot(document.body).render(<Board />);

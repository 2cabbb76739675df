import type { CollectionConfig } from "@tanstack/db";

import type { Client, MessageOf, PayloadOf, TopicName } from "./index.js";

/** How the messages of a topic become the rows of a collection. */
export interface TopicCollectionConfig<C, T extends TopicName<C>, Row extends object, Key extends string | number> {
  client: Client<C>;
  topic: T;
  getKey: (row: Row) => Key;
  /** The row that a message sets: that of its conflation key. A message of each row is part of the state of the topic. */
  rows: { [K in MessageOf<C, T>]?: (payload: PayloadOf<C, K>) => Row };
  /** The key of the row that a message removes, which the server has published with PublishOptions.Removed. */
  removed?: { [K in MessageOf<C, T>]?: (payload: PayloadOf<C, K>) => Key };
}

/**
 * Returns options of createCollection for a collection that has the current state of a topic. It is subscribed while the collection
 * syncs. If the client cannot receive what it has missed, all rows are replaced in one transaction. A rejected subscription is the error of
 * the collection, and so is why the client is closed.
 *
 * The collection is ready with the first part of the state: rows of a large one follow.
 */
export function topicCollectionOptions<C, T extends TopicName<C>, Row extends object, Key extends string | number>(
  config: TopicCollectionConfig<C, T, Row, Key>,
): Pick<CollectionConfig<Row, Key>, "getKey" | "sync"> {
  const { client, topic, getKey } = config;
  const rowOf = config.rows as { [type: string]: (payload: unknown) => Row };
  const keyOf = (config.removed ?? {}) as { [type: string]: (payload: unknown) => Key };
  return {
    getKey,
    sync: {
      rowUpdateMode: "full",
      sync({ begin, write, commit, truncate, markError }) {
        let missing = 0; // messages of the state that the transaction waits for

        /** Changes a row: in the transaction that replaces all, or in one of its own. */
        const receive = (type: string, payload: unknown) => {
          if (!missing) begin();
          try {
            // A full update of a row that does not exist inserts it.
            if (rowOf[type]) write({ type: "update", value: rowOf[type](payload) });
            else if (keyOf[type]) write({ type: "delete", key: keyOf[type](payload) });
          } finally {
            if (missing < 2) commit();
            if (missing) missing--;
          }
        };

        const subscription = client.subscribe(topic, {
          onReset(messages) {
            if (!missing) begin();
            truncate();
            missing = messages;
            if (!missing) commit();
          },
          // Of every type: messages without a row are counted as part of the state, too.
          on: new Proxy({}, { get: (_, type: string) => (payload: unknown) => receive(type, payload) }),
          onEnd: markError,
        });
        // The subscription is made again if the client connects again, which makes the collection ready.
        const off = client.onState((state, { error }) => state === "closed" && markError(error));
        return () => {
          off();
          subscription.unsubscribe();
        };
      },
    },
  };
}

// Messages that wait, in a list for each type, in the order in which they were submitted.

/** A place in a list. */
export interface Place {
  order: number;
  ahead?: Place;
  behind?: Place;
}

interface Listed extends Place {
  type: string;
  weight: number;
}

export function createQueue<E extends Listed>() {
  const lists = new Map<string, Place>(); // their ends: ahead is the last entry, behind the first one

  const queue = {
    count: 0,
    weight: 0,

    /** Adds an entry where its order says: usually at the end, or near the beginning if it was in the list before. */
    insert(entry: E) {
      let end = lists.get(entry.type)!;
      if (!end) {
        lists.set(entry.type, (end = { order: -Infinity }));
        end.ahead = end.behind = end;
      }
      let at = end;
      if (end.ahead!.order > entry.order) do at = at.behind!; while (at.order < entry.order);
      entry.ahead = at.ahead!;
      entry.behind = at;
      at.ahead = entry.ahead.behind = entry;
      queue.count++;
      queue.weight += entry.weight;
    },

    /** Removes an entry if it waits. */
    remove(entry: E) {
      const { ahead, behind } = entry;
      if (!ahead) return;
      ahead.behind = behind!;
      behind!.ahead = ahead;
      entry.ahead = undefined as any;
      queue.count--;
      queue.weight -= entry.weight;
    },

    /** The first entry of each type, in their order. */
    heads: () =>
      [...lists.values()]
        .map((end) => end.behind!)
        .filter((entry) => entry.order > -Infinity)
        .sort((a, b) => a.order - b.order) as E[],
  };
  return queue;
}

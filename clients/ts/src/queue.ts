// Messages that wait, in a list for each type, in the order in which they were submitted.

export interface Place {
  order: number;
}

interface Listed extends Place {
  type: string;
  weight: number;
}

const byOrder = (a: Place, b: Place) => a.order - b.order;

export function createQueue<E extends Listed>() {
  const lists: { [type: string]: E[] } = { __proto__: null } as any;

  const queue = {
    count: 0,
    weight: 0,

    /** Adds an entry where its order says: usually at the end, or near the beginning if it was in the list before. */
    insert(entry: E) {
      const list = (lists[entry.type] ??= []);
      list.push(entry);
      if (list.at(-2)?.order! > entry.order) list.sort(byOrder);
      queue.count++;
      queue.weight += entry.weight;
    },

    /** Removes an entry if it waits. */
    remove(entry: E) {
      const at = lists[entry.type]?.indexOf(entry)!;
      if (at >= 0) {
        lists[entry.type]!.splice(at, 1);
        queue.count--;
        queue.weight -= entry.weight;
      }
    },

    /** The first entry of each type, in their order. */
    heads: () =>
      Object.values(lists)
        .flatMap(([head]) => head ?? [])
        .sort(byOrder),
  };
  return queue;
}

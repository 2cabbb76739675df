// What the nodes have done in the last 15 minutes. The page asks for what is new, and keeps the rest.
const size = 180 // samples

const nodes = new Map() // name → { number, columns: { name: values }, types: { name: { messages, refused } } }
let stepMs = 5000

const empty = () => Array(size).fill(null)

/** append adds values after a gap of unknown ones. */
const append = (values, gap, added) => [...values, ...Array(Math.min(gap, size)).fill(null), ...added].slice(-size)

/** after returns the numbers of the samples that are known, by node. */
export const after = () => Object.fromEntries([...nodes].map(([name, { number }]) => [name, number]))

/** add adds the rows of an answer. Nodes that have not answered for 15 minutes are forgotten. */
export function add(rows) {
  for (const { node, series } of rows) {
    if (!series) continue
    stepMs = series.stepMs
    const length = series.columns.conns.length
    const before = nodes.get(node) ?? { number: series.number - length, columns: {}, types: {} }
    const overlap = before.number - (series.number - length) // with an answer to another question meanwhile
    const gap = Math.max(0, -overlap), skip = Math.min(length, Math.max(0, overlap))
    const columns = Object.fromEntries(Object.entries(series.columns).map(([name, values]) => [name, append(before.columns[name] ?? empty(), gap, values.slice(skip))]))
    const known = (before.columns.conns ?? empty()).map((value) => value === null ? null : 0)
    const parts = Object.fromEntries(series.types.map((part) => [part.type, part]))
    const none = Array(length).fill(0)
    const types = {}
    for (const type of new Set([...Object.keys(before.types), ...Object.keys(parts)])) {
      const old = before.types[type] ?? { messages: known, refused: known }
      types[type] = { messages: append(old.messages, gap, (parts[type]?.messages ?? none).slice(skip)), refused: append(old.refused, gap, (parts[type]?.refused ?? none).slice(skip)) }
    }
    nodes.set(node, { number: Math.max(before.number, series.number), columns, types })
  }
  const newest = Math.max(...[...nodes.values()].map(({ number }) => number))
  for (const [name, { number }] of nodes) if (newest - number > size) nodes.delete(name)
}

/** end returns the number of the last sample that all nodes that answer have. */
function end() {
  const numbers = [...nodes.values()].map(({ number }) => number)
  return Math.min(...numbers.filter((number) => number >= Math.max(...numbers) - 2))
}

/** aligned makes values of a node end at the common end. */
function aligned({ number }, values) {
  const ahead = number - end()
  if (ahead >= 0) return [...empty().slice(0, ahead), ...values.slice(0, size - ahead)]
  return [...values, ...empty()].slice(-ahead, size - ahead)
}

/** sum adds lists; null is unknown. */
export function sum(lists) {
  return empty().map((_, n) => lists.reduce((all, values) => values[n] === null ? all : (all ?? 0) + values[n], null))
}

const perSecond = (values) => values.map((value) => value === null ? null : value * 1000 / stepMs)

/** column returns a column of each node: [node, values]. */
export function column(name) {
  return [...nodes].map(([node, data]) => [node, aligned(data, data.columns[name] ?? empty())])
}

export const rates = (name) => column(name).map(([node, values]) => [node, perSecond(values)])

/** byNode returns the messages or refusals per second of each node. */
export function byNode(kind) {
  return [...nodes].map(([node, data]) => {
    const lists = Object.values(data.types).map((type) => type[kind])
    if (kind === "refused") lists.push(data.columns.refusedRequests)
    const zero = data.columns.conns.map((value) => value === null ? null : 0)
    return [node, perSecond(aligned(data, sum([zero, ...lists])))]
  })
}

/** byType returns the messages or refusals per second of each type, of all nodes. */
export function byType(kind) {
  const lists = {}
  for (const data of nodes.values()) {
    for (const [type, values] of Object.entries(data.types)) (lists[type] ??= []).push(aligned(data, values[kind]))
  }
  return Object.entries(lists).map(([type, values]) => [type, perSecond(sum(values))])
}

/** types returns the names of the types with messages. */
export const types = () => byType("messages").map(([type]) => type).filter((type) => type && type !== "(other)").sort()

/** timeOf returns the time of an index. */
export function timeOf(index) {
  return new Date((end() - size + 1 + index) * stepMs).toLocaleTimeString()
}

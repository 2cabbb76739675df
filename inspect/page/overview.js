// The view that answers at a glance.
import { bucket, bytes, connLink, link, nodeName, queue, rate, topicLink, userLink } from "./cells.js"
import { chart, highest, number, spark } from "./charts.js"
import { age, duration, el, missing, section, table } from "./dom.js"
import * as series from "./series.js"

const shown = 6 // parts of a card; the others are added

const last = (values) => values.at(-1)
const total = (parts) => series.sum(parts.map(([, values]) => values))
const typeName = (type) => type || "not registered"

/** rows shows the largest parts, and the sum of the others. */
function rows(parts, kind, unit) {
  const sorted = [...parts].sort(([a, x], [b, y]) => highest(y) - highest(x) || a.localeCompare(b))
  const others = sorted.slice(shown)
  const all = sorted.slice(0, shown)
  if (others.length > 0) all.push([`${others.length} others`, total(others)])
  const max = highest(all.flatMap(([, values]) => values))
  return el("ul", { class: "parts" }, ...all.map(([name, values]) => el("li", {},
    el("span", { class: "name" }, name),
    spark(values, `${name}: ${number(last(values))}${unit} now, at most ${number(highest(values))}${unit}`, { kind, max }),
    el("span", { class: "value" }, number(last(values))))))
}

/** card shows a number over time, and its parts. */
function card(title, parts, { kind = "", unit = "/s", sum = parts, note = "" }) {
  const values = total(sum)
  return el("section", { class: kind === "bad" && last(values) > 0 ? "card alarm" : "card", "aria-label": title },
    el("h3", {}, title),
    el("p", { class: "now" }, el("strong", {}, number(last(values))), unit && el("span", {}, unit.trim()), el("span", { class: "quiet" }, `highest ${number(highest(values))}${note}`)),
    chart(values, `${title}: ${number(last(values))}${unit} now, at most ${number(highest(values))}${unit} in 15 minutes`, { kind, unit, at: series.timeOf }),
    rows(parts, kind, unit))
}

function cards(by) {
  const named = (parts) => parts.map(([node, values]) => [nodeName(node), values])
  const types = (kind) => series.byType(kind).map(([type, values]) => [typeName(type), values])
  const messages = series.byNode("messages"), refused = series.byNode("refused")
  const lost = series.rates("lost"), dropped = series.rates("dropped")
  const loss = lost.map(([node, values], n) => [node, series.sum([values, dropped[n][1]])])
  const byType = by === "type"
  return [
    card("Messages", byType ? types("messages") : named(messages), { sum: messages, note: `, ${number(last(total(series.rates("sent"))))}/s sent` }),
    card("Refusals", byType ? [...types("refused"), ["requests", total(series.rates("refusedRequests"))]] : named(refused), { kind: "bad", sum: refused }),
    card("Connections", byType ? [["opened per second", total(series.rates("opened"))], ["closed per second", total(series.rates("closed"))]] : named(series.column("conns")), { kind: "good", unit: "", sum: series.column("conns") }),
    card("Lost messages", byType ? [["between nodes", total(lost)], ["by full queues", total(dropped)]] : named(loss), { kind: "bad", sum: loss }),
  ]
}

const deniedColumns = [
  ["Limit", (row) => row.name, "wraps"],
  ["Whom", (row) => row.user ? userLink(row) : row.ip || row.key.filter(Boolean).join(" / "), "wraps"],
  ["Refusals", (row) => row.refusals, "number"],
  ["Bucket", bucket],
]

const slowColumns = (longest) => [
  ["User", userLink, "wraps"],
  ["Queue", queue(longest)],
  ["Oldest", (row) => duration(row.oldestMs), "number"],
  ["Connection", (row) => connLink(row.id)],
]

function hotColumns(all) {
  const most = Math.max(...all.map((row) => row.deliveriesPerSecond))
  return [
    ["Topic", (row) => topicLink(row.name), "wraps"],
    ["Deliveries", (row) => rate(row.deliveriesPerSecond, most, `${number(row.deliveriesPerSecond)}/s`)],
    ["Published", (row) => `${number(row.publicationsPerSecond)}/s`, "number"],
    ["Subscribers", (row) => row.subscribers, "number"],
  ]
}

function nodeColumns(same) {
  const memory = new Map(series.column("memory")), lag = new Map(series.column("lag"))
  const over = (column, format, name) => (row) => {
    const values = column.get(row.node)
    if (!values) return ""
    const text = format(last(values) ?? 0)
    return el("div", { class: "measure" }, spark(values, `${name}: ${text} now, at most ${format(highest(values))}`), el("span", {}, text))
  }
  return [
    ["Node", (row) => nodeName(row.node) + (row.asker ? " (asked)" : ""), "wraps"],
    ["State", (row) => row.error ? el("span", { class: "bad" }, row.error) : row.healthy ? el("span", { class: "good" }, "serving") : el("span", { class: "bad" }, "shutting down")],
    ["Connections", (row) => row.conns, "number"],
    ["Memory", over(memory, bytes, "Memory")],
    ["Event loop lag", over(lag, (us) => `${(us / 1000).toFixed(1)} ms`, "Event loop lag")],
    ["Queued", (row) => row.error ? "" : bytes(row.queuedBytes), "number"],
    ["Goroutines", (row) => row.goroutines, "number"],
    ["Up", (row) => row.error ? "" : age(row.startedAt)],
    ["Program", (row) => row.error || same ? "" : program(row), "wraps"],
  ]
}

const program = ({ version, go }) => `${version}, ${go}`

export async function overview({ post }, { by = "node" }) {
  const [denied, hot, slow] = [post("refusals", { keys: true }), post("topics", { hot: true }), post("conns", { slow: true })]
  for (const request of [denied, hot, slow]) request.catch(() => {}) // section shows it
  const { nodes, rows: found } = await post("nodes", { series: true, after: series.after() })
  series.add(found)
  const same = new Set(found.map(program)).size === 1
  const choice = (name, text) => el("a", { href: `#overview?by=${name}`, ...by === name && { "aria-current": "true" } }, text)
  return [
    missing(nodes),
    el("p", { class: "choice" }, "15 minutes ", choice("node", "by node"), choice("type", "by type")),
    el("div", { class: "cards" }, ...cards(by)),
    el("div", { class: "panels" },
      await section("Which limits deny whom", denied, (answer) => [
        table("Keys with the most refusals in 15 minutes", deniedColumns, answer.rows.slice(0, 8)),
        answer.rows.length > 0 && el("p", { class: "quiet" }, "At most one refusal of a client per second is counted. ", link("refusals", {}, "All refusals")),
      ]),
      await section("Hot topics", hot, (answer) => answer.counted
        ? [table("Topics with the most deliveries now", hotColumns(answer.rows), answer.rows.slice(0, 8))]
        : [el("p", { class: "quiet" }, "The nodes begin to count; the topics follow in 5 seconds.")]),
      await section("Slow clients", slow, (answer) => {
        const rows = answer.rows.filter((row) => row.backpressure || row.oldestMs >= 1000).slice(0, 8)
        return [table("Connections with messages that have waited for a second", slowColumns(Math.max(...rows.map((row) => row.queuedBytes))), rows)]
      })),
    el("section", { class: "panel", "aria-label": "Nodes" }, el("h3", {}, "Nodes"),
      table("Memory and lag over 15 minutes", nodeColumns(same), [...found, ...nodes.missing]),
      same && el("p", { class: "quiet wraps" }, program(found[0]))),
  ]
}

// The view of one user: whether the next message would be admitted, and what explains it.
import { bucketColumns, button, connColumns, link, refusalColumns, topicColumns, userName } from "./cells.js"
import { el, form, missing, section, table } from "./dom.js"
import * as series from "./series.js"

const maxConns = 5 // whose subscriptions are read

const withoutUser = (columns) => columns.filter(([heading]) => heading !== "User")

/** typeLinks offers the types that clients send. */
function typeLinks(who, chosen, types) {
  return el("ul", { class: "choice", "aria-label": "Message types" }, ...["", ...types].map((type) => el("li", {},
    el("a", { href: `#user?${new URLSearchParams({ ...who, ...type && { type } })}`, ...type === chosen && { "aria-current": "true" } }, type || "any type"))))
}

/** merge returns each topic once, to which one of the connections subscribes. */
function merge(answers) {
  const topics = new Map()
  for (const { conn } of answers) for (const topic of conn?.topics ?? []) topics.set(topic.name, topic)
  return [...topics.values()].sort((a, b) => a.name.localeCompare(b.name))
}

/** buckets returns each bucket once: several connections of a user may share one. Nodes without a connection of a connected user do not matter. */
function buckets(rows) {
  const decisive = rows.some(({ conn }) => conn) ? rows.filter(({ conn }) => conn) : rows
  const all = new Map(decisive.map((row) => [JSON.stringify([row.name, row.node, row.key]), row]))
  return [...all.values()].sort((a, b) => a.allowed - b.allowed || a.remaining / a.limit - b.remaining / b.limit)
}

export async function user({ post, act, go }, { tenant = "", user: name = "", type = "" }) {
  const find = form("Find a user", [["user", "User", { required: true }], ["tenant", "Tenant"], ["type", "Message type"]], ["Find"],
    (values) => go("user", values), { tenant, user: name, type })
  if (!name) return [find]
  const who = { tenant, user: name }
  const [conns, refusals, admission] = [post("conns", who), post("refusals", who), post("admission", { ...who, type })]
  const topics = conns.then(({ rows }) => Promise.all(rows.slice(0, maxConns).map(({ id }) => post("conn", { id }))))
  for (const request of [conns, refusals, admission, topics]) request.catch(() => {}) // section shows it
  if (series.types().length === 0) await post("nodes", { series: true, after: series.after() }).then(({ rows }) => series.add(rows), () => {})
  const about = `User ${userName(who)}`
  return [
    find,
    await section(type ? `Would the next ${type} be admitted?` : "Would the next message be admitted?", admission, ({ nodes, verdict }) => [
      missing(nodes),
      el("p", { class: `verdict ${verdict.admitted}` }, verdict.sentence),
      typeLinks(who, type, series.types()),
    ]),
    await section("Connections", conns, ({ nodes, rows }) => [
      missing(nodes),
      table("Connections on all nodes", withoutUser(connColumns), rows),
      el("p", { class: "actions" },
        button("Disconnect user", () => act("disconnect_user", who, "Disconnect user", `${about}: all connections and sessions, on all nodes.`), true),
        link("trace", who, "Trace")),
    ]),
    await section("Limits", admission, ({ rows }) => [
      table("Decisions now, which take no tokens", bucketColumns, buckets(rows)),
    ]),
    await section("Why was the user refused?", refusals, ({ nodes, rows }) => [
      missing(nodes),
      table("Latest refusals", withoutUser(refusalColumns), rows),
    ]),
    await section("Subscriptions", topics, (answers) => [
      answers.length === maxConns && el("p", { class: "quiet" }, `Those of the first ${maxConns} connections.`),
      table("Topics", topicColumns, merge(answers)),
      form("Revoke access to a topic", [["topic", "Topic or pattern", { required: true }]], ["Revoke"],
        ({ topic }) => act("revoke", { ...who, topic }, "Revoke", `${about}: access to ${topic}.`)),
    ]),
  ]
}

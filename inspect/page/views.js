// Each view loads its data and returns what to show.
import { bytes, button, connColumns, connLink, link, nodeName, refusalColumns, topicColumns, userLink, userName } from "./cells.js"
import { age, details, duration, el, form, missing, table, time } from "./dom.js"
import { limits } from "./limits.js"
import { overview } from "./overview.js"
import { user } from "./user.js"

async function conns({ post, go }, parameters) {
  const query = { ...parameters }
  const found = await post("conns", query)
  return [
    form("Find connections", [["user", "User"], ["tenant", "Tenant"], ["ip", "Address or prefix"], ["id", "Connection"]], ["Find"],
      (values) => values.id ? go("conn", values) : go("conns", values), parameters),
    missing(found.nodes),
    el("p", { class: "quiet" }, `${found.total} connections match.`),
    table("Connections", connColumns, found.rows),
    found.next && el("p", {}, link("conns", { ...parameters, after: found.next }, "Next page")),
  ]
}

async function conn({ post, act }, { id }) {
  const { nodes: states, conn: found } = await post("conn", { id })
  if (!found) return [missing(states), el("p", {}, "No node that has answered has this connection. Its client may have another one.")]
  const refusals = await post("refusals", { conn: id })
  const about = `Connection ${id} of ${userName(found)}`
  return [
    missing(states),
    details([
      ["Connection", found.id], ["User", userLink(found)], ["Address", found.ip], ["Node", nodeName(found.node)],
      ["Opened", time(found.openedAt)], ["Age", age(found.openedAt)], ["Transport", found.transport], ["Subprotocol", found.subprotocol || "none"],
      ["Round trip", found.rttMs ? `${found.rttMs} ms, at the latest heartbeat` : "not measured yet"],
      ["Identity expires", time(found.expiresAt) || "never"], ["Session", found.session ? "can be resumed" : "none"],
      ["Send queue", `${found.queued} messages, ${bytes(found.queuedBytes)}, the oldest ${duration(found.oldestMs)}${found.backpressure ? "; the client is slow" : ""}`],
      ["Longest queue", `${found.peak} messages, ${bytes(found.peakBytes)}`], ["Calls without an answer", found.calls],
      ["Messages left (router.Limits.MessagesPerConn)", found.messageBurst < 0 ? "unlimited" : `${found.messageTokens} of ${found.messageBurst}`],
    ]),
    el("p", { class: "actions" },
      button("Disconnect", () => act("disconnect", { id }, "Disconnect", `${about}. The client may resume its session.`)),
      button("End session", () => act("end_session", { id }, "End session", `${about}. The client can connect again, but resumes nothing.`), true),
      link("trace", { conn: id }, "Trace")),
    el("h3", {}, `Topics (${found.topicCount})`),
    table("Topics", topicColumns, found.topics),
    el("h3", {}, "Refusals"),
    missing(refusals.nodes),
    table("Latest refusals of this connection", refusalColumns, refusals.rows),
  ]
}

async function refusals({ post, go }, parameters) {
  const found = await post("refusals", parameters)
  return [
    form("Select refusals", [["user", "User"], ["tenant", "Tenant"], ["ip", "Address"], ["code", "Code"], ["stage", "Stage"]], ["Select"],
      (values) => go("refusals", values), parameters),
    missing(found.nodes),
    el("p", { class: "quiet" }, "At most one refusal of a client per second is listed."),
    table("Latest refusals", refusalColumns, found.rows),
  ]
}

async function topics({ post, go }, parameters) {
  const found = await post("topics", parameters)
  return [
    form("Find topics", [["prefix", "Beginning of the name"]], ["Find"], (values) => go("topics", values), parameters),
    missing(found.nodes),
    table("Topics with subscribers", topicColumns, found.rows),
    found.next && el("p", {}, link("topics", { ...parameters, after: found.next }, "Next page")),
  ]
}

async function topic({ post, act, fail }, { name }) {
  const found = await post("topic", { name })
  const present = found.rows.reduce((longest, row) => row.present.length > longest.length ? row.present : longest, [])
  return [
    missing(found.nodes),
    el("p", { class: "wraps" }, el("code", {}, name)),
    table("Subscribers per node", [["Node", (row) => nodeName(row.node)], ...topicColumns.slice(1)], found.rows),
    found.problem && el("p", {}, found.problem),
    found.stored.messages > 0 && el("p", {}, `The history has ${found.stored.messages} messages. The latest ${found.stored.latest} have ${bytes(found.stored.latestBytes)}.`),
    table("Present (at most 100)", [["User", userLink, "wraps"], ["Connection", (row) => connLink(row.conn)]], present),
    el("h3", {}, "Publish"),
    form("Publish a message", [["type", "Type", { required: true }], ["payload", "Payload as JSON", { kind: "textarea" }]], ["Publish"],
      ({ type, payload = "{}" }) => {
        let value
        try { value = JSON.parse(payload) } catch (error) { return fail(new Error(`The payload is not JSON: ${error.message}`)) }
        return act("publish", { topic: name, type, payload: value }, "Publish", `${type} to all subscribers of ${name}.`)
      }),
  ]
}

async function trace({ post, act, go }, parameters) {
  if (!parameters.trace) {
    return [
      el("p", {}, "A trace lists the messages of a user, a connection or a type, or the publications of a topic, on all nodes, without payloads. It lasts 5 minutes at most, and has at most 100 messages per second and node."),
      form("Start a trace", [["user", "User"], ["tenant", "Tenant"], ["conn", "Connection"], ["type", "Message type"], ["topic", "Topic"], ["seconds", "Seconds", { kind: "number", min: "1", max: "300", required: true }], ["payloads", "With redacted payloads", { kind: "checkbox" }]], ["Start"],
        async (values) => {
          const started = await act("start_trace", values, "Start trace", "On all nodes.")
          if (started) go("trace", { trace: started.id })
        }, { seconds: 60, ...parameters }),
    ]
  }
  const memory = read(parameters.trace)
  const found = await post("trace", { id: parameters.trace, after: memory.after })
  memory.after = found.after
  memory.rows = [...found.rows.reverse(), ...memory.rows].slice(0, 500)
  return [
    missing(found.nodes),
    el("p", {}, found.running ? "The trace records." : "The trace has ended.", found.skipped ? ` ${found.skipped} messages were skipped, because there were more than 100 in a second.` : ""),
    el("p", { class: "actions" }, button("Stop", () => act("stop_trace", { id: parameters.trace }, "Stop trace", "On all nodes."))),
    table("Messages, the newest first", [
      ["Time", (row) => time(row.time)], ["Event", (row) => row.event], ["Type", (row) => row.type], ["User", userLink, "wraps"],
      ["Size", (row) => row.size ? bytes(row.size) : "", "number"], ["Position", (row) => row.offset || "", "number"],
      ["Receivers", (row) => row.event === "published" ? row.receivers : "", "number"], ["Code", (row) => row.code],
      ["Duration", (row) => row.durationUs ? `${(row.durationUs / 1000).toFixed(1)} ms` : "", "number"],
      ["Payload", (row) => row.payload ? el("code", {}, row.payload) : "", "wraps"], ["Connection", (row) => connLink(row.conn)], ["Node", (row) => nodeName(row.node)],
    ], memory.rows),
  ]
}

// What the page has read of the trace that it shows.
let traced = { id: "" }

function read(id) {
  if (traced.id !== id) traced = { id, after: {}, rows: [] }
  return traced
}

async function audit({ post }) {
  const found = await post("audit")
  return [
    missing(found.nodes),
    el("p", { class: "quiet" }, "The latest actions that each node remembers. The application keeps the complete log."),
    table("Actions", [
      ["Time", (row) => time(row.time)], ["Actor", (row) => row.actor], ["Action", (row) => row.action],
      ["Target", (row) => Object.entries(row.target ?? {}).map(([key, value]) => `${key}: ${value}`).join(", "), "wraps"],
      ["Error", (row) => row.error ? el("span", { class: "bad" }, row.error) : "", "wraps"], ["Node", (row) => nodeName(row.node)],
    ], found.entries),
  ]
}

export const views = {
  overview: { title: "Overview", load: overview, refreshMs: 5000 },
  user: { title: "User", load: user, refreshMs: 5000 },
  conns: { title: "Connections", load: conns, refreshMs: 10000 },
  conn: { title: "Connection", load: conn, hidden: true, under: "conns", refreshMs: 5000 },
  refusals: { title: "Refusals", load: refusals, refreshMs: 5000 },
  topics: { title: "Topics", load: topics, refreshMs: 10000 },
  topic: { title: "Topic", load: topic, hidden: true, under: "topics", refreshMs: 10000 },
  limits: { title: "Limits", load: limits, refreshMs: 5000 },
  trace: { title: "Trace", load: trace, refreshMs: 1000 },
  audit: { title: "Audit log", load: audit, refreshMs: 5000 },
}

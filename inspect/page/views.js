// Each view loads its data and returns what to show.
import { age, details, duration, el, form, missing, table, time } from "./dom.js"

const link = (name, parameters, text) => el("a", { href: `#${name}?${new URLSearchParams(parameters)}` }, text)
const nodeName = (name) => name || "this node"
const userName = ({ tenant, user }) => tenant ? `${tenant} / ${user || "anonymous"}` : user || "anonymous"
const userLink = (row) => row.user ? link("user", { tenant: row.tenant, user: row.user }, userName(row)) : userName(row)
const connLink = (id) => id ? link("conn", { id }, id) : ""
const button = (text, onclick, danger) => el("button", { type: "button", onclick, ...danger && { class: "danger" } }, text)
const bytes = (n) => n < 1024 ? `${n} B` : n < 1048576 ? `${(n / 1024).toFixed(1)} KiB` : `${(n / 1048576).toFixed(1)} MiB`

const connColumns = [
  ["Connection", (row) => connLink(row.id)],
  ["User", userLink],
  ["Address", (row) => row.ip ? link("conns", { ip: row.ip }, row.ip) : ""],
  ["Node", (row) => nodeName(row.node)],
  ["Age", (row) => age(row.openedAt)],
  ["Queue", (row) => `${row.queued} (${bytes(row.queuedBytes)})`, "number"],
  ["Oldest", (row) => duration(row.oldestMs), "number"],
  ["State", (row) => [row.backpressure && "slow", row.session && "resumable"].filter(Boolean).join(", ")],
]

const refusalColumns = [
  ["Time", (row) => time(row.time)],
  ["User", userLink],
  ["Address", (row) => row.ip],
  ["Type", (row) => row.type],
  ["Stage", (row) => row.stage],
  ["Code", (row) => el("code", {}, row.code)],
  ["Limit", (row) => row.kind ? `${row.policy || row.kind}: ${row.observed} of ${row.limit}` : ""],
  ["Retry", (row) => row.retryAfterMs === 0 ? "" : duration(row.retryAfterMs)],
  ["Text", (row) => row.text],
  ["Connection", (row) => connLink(row.conn)],
  ["Node", (row) => nodeName(row.node)],
]

const bucketColumns = [
  ["Limit", (row) => row.name],
  ["Node", (row) => nodeName(row.node)],
  ["Decision", (row) => row.error ? el("span", { class: "bad" }, row.error) : row.allowed ? el("span", { class: "good" }, "admitted") : el("span", { class: "bad" }, `denied: ${row.reason}`)],
  ["Tokens", (row) => `${row.remaining} of ${row.limit}`, "number"],
  ["Retry", (row) => row.retryAfterMs === 0 ? "" : duration(row.retryAfterMs), "number"],
  ["Full in", (row) => duration(row.resetAfterMs), "number"],
]

async function nodes({ post }) {
  const { nodes: states, rows } = await post("nodes")
  const slow = await post("conns", { slow: true })
  return [
    missing(states),
    table("Nodes", [
      ["Node", (row) => nodeName(row.node) + (row.asker ? " (asked)" : "")],
      ["State", (row) => row.healthy ? el("span", { class: "good" }, "serving") : el("span", { class: "bad" }, "shutting down")],
      ["Connections", (row) => row.conns, "number"],
      ["Queued", (row) => `${row.queuedMessages} (${bytes(row.queuedBytes)})`, "number"],
      ["Refusals", (row) => row.refusals, "number"],
      ["Goroutines", (row) => row.goroutines, "number"],
      ["Up", (row) => age(row.startedAt)],
      ["Program", (row) => `${row.version}, ${row.go}`],
    ], rows),
    el("h3", {}, "Slowest clients"),
    table("Connections with the longest send queues", connColumns, slow.rows.slice(0, 10)),
  ]
}

async function conns({ post, go }, parameters) {
  const query = { ...parameters }
  const found = await post("conns", query)
  return [
    form("Find connections", [["user", "User"], ["tenant", "Tenant"], ["ip", "Address or prefix"], ["id", "Connection"]], "Find",
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
      ["Identity expires", time(found.expiresAt) || "never"], ["Session", found.session ? "can be resumed" : "none"],
      ["Send queue", `${found.queued} messages, ${bytes(found.queuedBytes)}, the oldest ${duration(found.oldestMs)}${found.backpressure ? "; the client is slow" : ""}`],
      ["Longest queue", `${found.peak} messages, ${bytes(found.peakBytes)}`], ["Calls without an answer", found.calls],
      ["Messages left (MessagesPerConn)", found.messageBurst < 0 ? "unlimited" : `${found.messageTokens} of ${found.messageBurst}`],
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

async function user({ post, act, go }, { tenant = "", user: name = "", type = "" }) {
  const find = form("Find a user", [["user", "User", { required: true }], ["tenant", "Tenant"], ["type", "Message type"]], "Find",
    (values) => go("user", values), { tenant, user: name, type })
  if (!name) return [find]
  const who = { tenant, user: name }
  const [found, refusals, admission] = await Promise.all([post("conns", who), post("refusals", who), post("admission", { ...who, type })])
  const about = `User ${userName(who)}`
  return [
    find,
    missing(found.nodes),
    table("Connections", connColumns, found.rows),
    el("p", { class: "actions" },
      button("Disconnect user", () => act("disconnect_user", who, "Disconnect user", `${about}: all connections and sessions, on all nodes.`), true),
      link("trace", who, "Trace")),
    form("Revoke access to a topic", [["topic", "Topic or pattern", { required: true }]], "Revoke",
      ({ topic }) => act("revoke", { ...who, topic }, "Revoke", `${about}: access to ${topic}.`)),
    el("h3", {}, type ? `Would the next ${type} be admitted?` : "Would the next message be admitted?"),
    table("Decisions now, which take no tokens", bucketColumns, admission.rows),
    el("h3", {}, "Why was the user refused?"),
    table("Latest refusals", refusalColumns, refusals.rows),
  ]
}

async function refusals({ post, go }, parameters) {
  const found = await post("refusals", parameters)
  return [
    form("Select refusals", [["user", "User"], ["tenant", "Tenant"], ["ip", "Address"], ["code", "Code"], ["stage", "Stage"]], "Select",
      (values) => go("refusals", values), parameters),
    missing(found.nodes),
    el("p", { class: "quiet" }, "At most one refusal of a client per second is listed."),
    table("Latest refusals", refusalColumns, found.rows),
  ]
}

const topicColumns = [
  ["Topic", (row) => link("topic", { name: row.name }, row.name)],
  ["Pattern", (row) => row.pattern],
  ["Subscribers", (row) => row.subscribers, "number"],
  ["Present", (row) => row.members, "number"],
  ["Position", (row) => row.epoch ? `${row.offset} in ${row.epoch}` : ""],
]

async function topics({ post, go }, parameters) {
  const found = await post("topics", parameters)
  return [
    form("Find topics", [["prefix", "Beginning of the name"]], "Find", (values) => go("topics", values), parameters),
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
    el("p", {}, el("code", {}, name)),
    table("Subscribers per node", [["Node", (row) => nodeName(row.node)], ...topicColumns.slice(1)], found.rows),
    found.problem && el("p", {}, found.problem),
    found.stored.messages > 0 && el("p", {}, `The history has ${found.stored.messages} messages. The latest ${found.stored.latest} have ${bytes(found.stored.latestBytes)}.`),
    table("Present (at most 100)", [["User", userLink], ["Connection", (row) => connLink(row.conn)]], present),
    el("h3", {}, "Publish"),
    form("Publish a message", [["type", "Type", { required: true }], ["payload", "Payload as JSON", { kind: "textarea" }]], "Publish",
      ({ type, payload = "{}" }) => {
        let value
        try { value = JSON.parse(payload) } catch (error) { return fail(new Error(`The payload is not JSON: ${error.message}`)) }
        return act("publish", { topic: name, type, payload: value }, "Publish", `${type} to all subscribers of ${name}.`)
      }),
  ]
}

async function limits({ post, act, go }, parameters) {
  const found = await post("limits")
  const names = [...new Set(found.rows.map(({ name }) => name))]
  const bucket = parameters.limit ? await post("bucket", bucketOf(parameters)) : null
  return [
    missing(found.nodes),
    table("Limits", [
      ["Limit", (row) => row.name], ["Node", (row) => nodeName(row.node)], ["Policy", (row) => row.policies.join("; ")],
      ["Waits for confirmation", (row) => row.applied ? `${row.applied.policy}; returns to ${row.applied.before} in ${duration(new Date(row.applied.until) - Date.now())}` : ""],
      ["Preview", (row) => row.preview ? `${row.preview.policy}: ${row.preview.messages} messages, denied now ${row.preview.deniedNow}, then ${row.preview.deniedProposed}` : ""],
    ], found.rows),
    ...names.map((name) => limitActions(name, found.rows.filter((row) => row.name === name), act)),
    el("h3", {}, "Bucket of a client"),
    form("Show a bucket", [["limit", "Limit", { required: true }], ["user", "User"], ["tenant", "Tenant"], ["ip", "Address"], ["type", "Message type"], ["key", "Or the parts of the key, as JSON"]], "Show",
      (values) => go("limits", values), { limit: names[0] ?? "", ...parameters }),
    bucket && missing(bucket.nodes),
    bucket && table("Tokens", [...bucketColumns.slice(0, 2), ["Key", (row) => el("code", {}, JSON.stringify(row.key))], ...bucketColumns.slice(2)], bucket.rows),
    bucket && el("p", { class: "actions" },
      button("Reset", () => act("reset", bucketOf(parameters), "Reset", `${parameters.limit}: fill the bucket, and end its block.`)),
      button("Block for 1 hour", () => act("block", { ...bucketOf(parameters), seconds: 3600 }, "Block for 1 hour", `${parameters.limit}: deny everything to this key.`), true)),
  ]
}

function bucketOf({ key, ...rest }) {
  return key ? { limit: rest.limit, key: JSON.parse(key) } : rest
}

function limitActions(name, rows, act) {
  const waiting = rows.find(({ applied }) => applied)?.applied
  if (waiting) {
    return el("fieldset", {}, el("legend", {}, `${name}: ${waiting.policy}`), el("p", { class: "actions" },
      button("Keep policy", () => act("confirm", { limit: name, id: waiting.id }, "Keep policy", `${name}: ${waiting.policy} until the programs start again.`)),
      button("Return now", () => act("return", { limit: name, id: waiting.id }, "Return now", `${name}: ${waiting.before}`))))
  }
  if (!rows.some(({ canChange }) => canChange)) return null
  return el("fieldset", {}, el("legend", {}, `Change the policy of ${name}`),
    form(`Change the policy of ${name}`, [["policy", "Policy", { required: true, placeholder: "10/s burst 20" }], ["minutes", "Minutes", { kind: "number", min: "1", max: "60", required: true }], ["preview", "Only count what it would deny (at most 5 minutes)", { kind: "checkbox" }]], "Change",
      ({ policy, minutes, preview }) => preview
        ? act("preview", { limit: name, policy, minutes }, "Preview", `${name}: count what ${policy} would deny, beside the policy in effect.`)
        : act("apply", { limit: name, policy, minutes }, "Apply", `${name}: ${policy} on all nodes. They return to the policy before after ${minutes} minutes unless you keep it.`), { minutes: 5, preview: true }))
}

async function trace({ post, act, go }, parameters) {
  if (!parameters.trace) {
    return [
      el("p", {}, "A trace lists the messages of a user, a connection or a type, or the publications of a topic, on all nodes, without payloads. It lasts 5 minutes at most, and has at most 100 messages per second and node."),
      form("Start a trace", [["user", "User"], ["tenant", "Tenant"], ["conn", "Connection"], ["type", "Message type"], ["topic", "Topic"], ["seconds", "Seconds", { kind: "number", min: "1", max: "300", required: true }], ["payloads", "With redacted payloads", { kind: "checkbox" }]], "Start",
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
      ["Time", (row) => time(row.time)], ["Event", (row) => row.event], ["Type", (row) => row.type], ["User", userLink],
      ["Size", (row) => row.size ? bytes(row.size) : "", "number"], ["Position", (row) => row.offset || "", "number"],
      ["Receivers", (row) => row.event === "published" ? row.receivers : "", "number"], ["Code", (row) => row.code],
      ["Duration", (row) => row.durationUs ? `${(row.durationUs / 1000).toFixed(1)} ms` : "", "number"],
      ["Payload", (row) => row.payload ? el("code", {}, row.payload) : ""], ["Connection", (row) => connLink(row.conn)], ["Node", (row) => nodeName(row.node)],
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
      ["Target", (row) => Object.entries(row.target ?? {}).map(([key, value]) => `${key}: ${value}`).join(", ")],
      ["Error", (row) => row.error ? el("span", { class: "bad" }, row.error) : ""], ["Node", (row) => nodeName(row.node)],
    ], found.entries),
  ]
}

export const views = {
  nodes: { title: "Nodes", load: nodes, refreshMs: 5000 },
  user: { title: "User", load: user },
  conns: { title: "Connections", load: conns },
  conn: { title: "Connection", load: conn, hidden: true, refreshMs: 5000 },
  refusals: { title: "Refusals", load: refusals, refreshMs: 5000 },
  topics: { title: "Topics", load: topics },
  topic: { title: "Topic", load: topic, hidden: true },
  limits: { title: "Limits", load: limits, refreshMs: 5000 },
  trace: { title: "Trace", load: trace, refreshMs: 1000 },
  audit: { title: "Audit log", load: audit, refreshMs: 5000 },
}

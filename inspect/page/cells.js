// What several views show of connections, refusals, buckets and topics.
import { bar } from "./charts.js"
import { age, duration, el, time } from "./dom.js"

export const link = (name, parameters, text) => el("a", { href: `#${name}?${new URLSearchParams(parameters)}` }, text)
export const nodeName = (name) => name || "this node"
export const userName = ({ tenant, user }) => tenant ? `${tenant} / ${user || "anonymous"}` : user || "anonymous"
export const userLink = (row) => row.user ? link("user", { tenant: row.tenant, user: row.user }, userName(row)) : userName(row)
export const connLink = (id) => id ? el("a", { href: `#conn?${new URLSearchParams({ id })}`, title: id }, id.length > 12 ? `${id.slice(0, 12)}…` : id) : ""
export const topicLink = (name) => link("topic", { name }, name)
export const button = (text, onclick, danger) => el("button", { type: "button", onclick, ...danger && { class: "danger" } }, text)
export const bytes = (n) => n < 1024 ? `${n} B` : n < 1048576 ? `${(n / 1024).toFixed(1)} KiB` : n < 1073741824 ? `${(n / 1048576).toFixed(1)} MiB` : `${(n / 1073741824).toFixed(1)} GiB`

const withBar = (drawn, text) => el("div", { class: "measure" }, drawn, el("span", {}, text))

/** queue shows a send queue beside the longest one. */
export const queue = (longest) => (row) => withBar(
  bar(row.queuedBytes, longest, `Send queue: ${bytes(row.queuedBytes)}`, row.backpressure ? "bad" : ""),
  `${bytes(row.queuedBytes)}, ${row.queued} messages`)

/** bucket shows the tokens that are left, and when it is full. */
export function bucket(row) {
  if (row.error) return el("span", { class: "bad" }, row.error)
  if (!row.limit) return ""
  const full = row.remaining >= row.limit ? ", full" : row.resetAfterMs > 0 ? `, full in ${duration(row.resetAfterMs)}` : row.resetAfterMs < 0 ? ", blocked" : ""
  return withBar(bar(row.remaining, row.limit, `Tokens: ${row.remaining} of ${row.limit}`, row.allowed ? "good" : "bad"), `${row.remaining} of ${row.limit}${full}`)
}

/** rate shows a number per second beside the highest one. */
export const rate = (value, highest, text) => withBar(bar(value, highest, text), text)

export const connColumns = [
  ["Connection", (row) => connLink(row.id)],
  ["User", userLink, "wraps"],
  ["Address", (row) => row.ip ? link("conns", { ip: row.ip }, row.ip) : ""],
  ["Node", (row) => nodeName(row.node), "wraps"],
  ["Age", (row) => age(row.openedAt)],
  ["Queue", (row) => `${row.queued} (${bytes(row.queuedBytes)})`, "number"],
  ["Oldest", (row) => row.queued ? duration(row.oldestMs) : "", "number"],
  ["State", (row) => [row.backpressure && "slow", row.session && "resumable"].filter(Boolean).join(", ")],
]

export const refusalColumns = [
  ["Time", (row) => time(row.time)],
  ["User", userLink, "wraps"],
  ["Address", (row) => row.ip],
  ["Type", (row) => row.type],
  ["Stage", (row) => row.stage],
  ["Code", (row) => el("code", {}, row.code)],
  ["Limit", (row) => row.exceeded, "wraps"],
  ["Retry", (row) => row.retryAfterMs === 0 ? "" : duration(row.retryAfterMs)],
  ["Text", (row) => row.text, "wraps"],
  ["Connection", (row) => connLink(row.conn)],
  ["Node", (row) => nodeName(row.node), "wraps"],
]

export const bucketColumns = [
  ["Limit", (row) => row.name],
  ["Decision", (row) => row.error ? el("span", { class: "bad" }, "unknown") : row.allowed ? el("span", { class: "good" }, "admitted") : el("span", { class: "bad" }, `denied: ${row.reason}`)],
  ["Bucket", bucket],
  ["Retry in", (row) => row.retryAfterMs === 0 ? "" : duration(row.retryAfterMs), "number"],
  ["Key", (row) => row.key.filter(Boolean).join(" / "), "wraps"],
  ["Node", (row) => nodeName(row.node), "wraps"],
]

export const topicColumns = [
  ["Topic", (row) => topicLink(row.name), "wraps"],
  ["Pattern", (row) => row.pattern, "wraps"],
  ["Subscribers", (row) => row.subscribers, "number"],
  ["Present", (row) => row.members, "number"],
  ["Position", (row) => row.epoch ? `${row.offset} in ${row.epoch}` : "", "wraps"],
]

// The view of limits: their policies, previews as pictures, and buckets.
import { bucketColumns, button, nodeName } from "./cells.js"
import { lines } from "./charts.js"
import { details, duration, el, form, missing, section, table } from "./dom.js"

const share = (part, all) => all === 0 ? "0 %" : `${(100 * part / all).toFixed(1)} %`

/** previewOf adds the previews of all nodes. Those of another policy are of an earlier preview. */
function previewOf(rows) {
  const latest = rows.map(({ preview }) => preview).filter(Boolean).sort((a, b) => new Date(b.until) - new Date(a.until))
  if (latest.length === 0) return null
  const all = latest.filter(({ policy }) => policy === latest[0].policy)
  const left = new Date(latest[0].until) - Date.now()
  const length = Math.max(2, ...all.map(({ series }) => series.length - (left > 0 ? 1 : 0))) // without the step that has not ended
  const column = (name) => Array.from({ length }, (_, n) => all.reduce((sum, { series }) => sum + (series[n]?.[name] ?? 0), 0))
  const sum = (name) => all.reduce((total, preview) => total + preview[name], 0)
  return {
    policy: latest[0].policy, left, length,
    messages: sum("messages"), deniedNow: sum("deniedNow"), deniedProposed: sum("deniedProposed"),
    series: { messages: column("messages"), deniedNow: column("deniedNow"), deniedProposed: column("deniedProposed") },
  }
}

/** previewPicture shows what both policies deny over time. */
function previewPicture(now, preview) {
  const { messages, deniedNow, deniedProposed, series } = preview
  const of = (n) => `${n} of ${messages} (${share(n, messages)})`
  const sentence = `${now} denies ${of(deniedNow)}, ${preview.policy} would deny ${of(deniedProposed)}.`
  return el("figure", { class: "preview" },
    lines([[series.messages, "all"], [series.deniedNow, "today"], [series.deniedProposed, "proposed"]], `Messages per 5 seconds, and the denied ones: ${sentence}`, preview.length),
    el("figcaption", {},
      el("ul", { class: "legend" }, el("li", { class: "all" }, "messages"), el("li", { class: "today" }, `denied by ${now}`), el("li", { class: "proposed" }, `denied by ${preview.policy}`)),
      el("p", {}, sentence),
      el("p", { class: "quiet" }, preview.left > 0 ? `The preview counts for another ${duration(preview.left)}. Nothing has changed.` : "The preview has ended. Nothing has changed.")))
}

/** policies shows the policies with their nodes, if these differ. */
function policies(rows) {
  const byText = Map.groupBy(rows, (row) => row.policies.join("; "))
  return details([...byText].map(([text, of]) => [byText.size === 1 ? `on ${of.length === 1 ? "this node" : `all ${of.length} nodes`}` : `on ${of.map((row) => nodeName(row.node)).join(", ")}`, el("code", {}, text)]))
}

function limit(name, rows, act) {
  const waiting = rows.find(({ applied }) => applied)?.applied
  const preview = previewOf(rows)
  const now = waiting?.policy ?? rows[0].policies.join("; ")
  const apply = (policy, minutes) => act("apply", { limit: name, policy, minutes }, "Apply", `${name}: ${policy} on all nodes. They return to the policy before after ${minutes} minutes unless you keep it.`)
  return section(name, null, () => [
    policies(rows),
    waiting && el("div", { class: "waiting" },
      el("p", {}, `${waiting.policy} returns to ${waiting.before} in ${duration(new Date(waiting.until) - Date.now())}, unless it is kept.`),
      el("p", { class: "actions" },
        button("Keep policy", () => act("confirm", { limit: name, id: waiting.id }, "Keep policy", `${name}: ${waiting.policy} until the programs start again.`)),
        button("Return now", () => act("return", { limit: name, id: waiting.id }, "Return now", `${name}: ${waiting.before}`)))),
    preview && previewPicture(now, preview),
    !waiting && rows.some(({ canChange }) => canChange) && form(`Change the policy of ${name}`,
      [["policy", "Policy", { required: true, placeholder: "10/s burst 20" }], ["minutes", "Minutes", { kind: "number", min: "1", max: "60", required: true }]], ["Preview", "Apply"],
      ({ policy, minutes }, pressed) => pressed === "Apply"
        ? apply(policy, minutes)
        : act("preview", { limit: name, policy, minutes: Math.min(minutes, 5) }, "Preview", `${name}: count what ${policy} would deny, beside the policy in effect. Nothing changes.`),
      { minutes: 5, ...preview && { policy: preview.policy.replace(/^[^:]*: /, "") } }),
  ])
}

const target = ({ key, ...rest }) => key ? { limit: rest.limit, key: JSON.parse(key) } : rest

export async function limits({ post, act, go }, parameters) {
  const found = await post("limits")
  const byName = Map.groupBy(found.rows, ({ name }) => name)
  const bucket = parameters.limit && post("bucket", target(parameters))
  bucket?.catch(() => {}) // section shows it
  return [
    missing(found.nodes),
    byName.size === 0 && el("p", {}, "There are no limits in inspect.Options.Limits."),
    el("div", { class: "panels" }, ...await Promise.all([...byName].map(([name, rows]) => limit(name, rows, act)))),
    await section("Bucket of a client", bucket, (answer) => [
      form("Show a bucket", [["limit", "Limit", { required: true }], ["user", "User"], ["tenant", "Tenant"], ["ip", "Address"], ["type", "Message type"], ["key", "Or the parts of the key, as JSON"]], ["Show"],
        (values) => go("limits", values), { limit: [...byName.keys()][0] ?? "", ...parameters }),
      answer && missing(answer.nodes),
      answer && table("Tokens", bucketColumns.filter(([heading]) => heading !== "Decision" && heading !== "Retry in"), answer.rows),
      answer && el("p", { class: "actions" },
        button("Reset", () => act("reset", target(parameters), "Reset", `${parameters.limit}: fill the bucket, and end its block.`)),
        button("Block for 1 hour", () => act("block", { ...target(parameters), seconds: 3600 }, "Block for 1 hour", `${parameters.limit}: deny everything to this key.`), true)),
    ]),
  ]
}

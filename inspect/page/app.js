// The page asks when it is shown, and again while it is visible; the server never pushes.
import { el } from "./dom.js"
import { views } from "./views.js"

const main = document.getElementById("main")
const status = document.getElementById("status")
const alert = document.getElementById("alert")

let number = 0 // of the latest view, so that a late answer of another one is dropped
let refresh
let paused = false
let failing = false // the latest refresh has failed

/** post calls the API. It throws what the server says. */
async function post(action, argument = {}) {
  const response = await fetch(`api/${action}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(argument),
    credentials: "same-origin",
  })
  const result = await response.json().catch(() => ({ error: `status ${response.status}` }))
  if (!response.ok) throw new Error(result.error ?? `status ${response.status}`)
  return result
}

/** confirm asks before an action, and resolves to whether it was confirmed. */
function confirm(title, text) {
  const dialog = document.getElementById("confirm")
  document.getElementById("confirm-title").textContent = title
  document.getElementById("confirm-text").textContent = text
  document.getElementById("confirm-yes").textContent = title
  dialog.returnValue = "no"
  dialog.showModal()
  return new Promise((resolve) => {
    const closed = () => {
      if (dialog.open) return // the event of the question before, which was late
      dialog.removeEventListener("close", closed)
      resolve(dialog.returnValue === "yes")
    }
    dialog.addEventListener("close", closed)
  })
}

/** act does what changes something, after a confirmation, and shows the view again. */
async function act(action, argument, title, text) {
  if (!await confirm(title, text)) return undefined
  try {
    const result = await post(action, argument)
    const failed = result.nodes?.missing ?? []
    alert.textContent = failed.map(({ node, error }) => `Not on node ${node}: ${error}`).join("\n")
    status.textContent = `${title}: done`
    await show(false, failed.length > 0)
    return result
  } catch (error) {
    alert.textContent = `${title}: ${error.message}`
    return undefined
  }
}

/** route returns the view and its parameters from the fragment of the URL: #conns?user=ann. */
function route() {
  const [name, query] = location.hash.slice(1).split("?", 2)
  return { name: views[name] ? name : "overview", parameters: Object.fromEntries(new URLSearchParams(query ?? "")) }
}

function go(name, parameters) {
  const query = new URLSearchParams(parameters).toString()
  const hash = `#${name}${query && `?${query}`}`
  if (location.hash === hash) show(false)
  else location.hash = hash
}

const context = {
  post, act, go,
  report: (text) => { status.textContent = text },
  fail: (error) => { alert.textContent = error.message },
}

/** isFilledIn reports whether a refresh would lose what an operator enters. */
function isFilledIn() {
  return [...main.querySelectorAll("input, textarea")].some((e) => e === document.activeElement || (e.type === "checkbox" ? e.checked !== e.defaultChecked : e.value !== e.defaultValue))
}

/** replace draws a view. The focus stays on a link, a button or a table that is still there, and otherwise in the view; tables stay scrolled. */
function replace(content) {
  const all = () => [...main.querySelectorAll("a, button, [tabindex]")]
  const name = (e) => e.ariaLabel ?? e.textContent
  const index = all().indexOf(document.activeElement)
  const focused = name(document.activeElement)
  const scrolled = new Map([...main.querySelectorAll(".scroll")].map((e) => [name(e), e.scrollLeft]))
  main.replaceChildren(...content)
  for (const e of main.querySelectorAll(".scroll")) e.scrollLeft = scrolled.get(name(e)) ?? 0
  if (index < 0) return
  const again = all()
  const same = again[index] && name(again[index]) === focused ? again[index] : again.find((e) => name(e) === focused)
  ;(same ?? main).focus({ preventScroll: true })
}

/** show draws the view of the URL. A refresh keeps what is shown if it fails, or while a form is filled in. */
async function show(isRefresh, keepsAlert = false) {
  const current = isRefresh ? number : ++number
  clearTimeout(refresh)
  const { name, parameters } = route()
  for (const link of document.querySelectorAll("#views a")) {
    if (link.hash === `#${views[name].under ?? name}`) {
      link.setAttribute("aria-current", "page")
      if (!isRefresh) link.scrollIntoView({ block: "nearest", inline: "nearest" })
    } else link.removeAttribute("aria-current")
  }
  document.title = `${views[name].title} – Penstock inspector`
  if (!isRefresh) main.setAttribute("aria-busy", "true")
  try {
    const content = await views[name].load(context, parameters)
    if (current !== number) return
    if (!isRefresh || !paused && !isFilledIn()) replace([el("h2", {}, views[name].title), ...content.filter(Boolean)])
    if (isRefresh ? failing : !keepsAlert) alert.textContent = ""
    failing = false
  } catch (error) {
    if (current !== number) return
    alert.textContent = error.message
    failing = true
    if (!isRefresh) main.replaceChildren(el("h2", {}, views[name].title))
  } finally {
    if (current === number) {
      main.removeAttribute("aria-busy")
      if (views[name].refreshMs) refresh = setTimeout(() => { if (!document.hidden && !paused) show(true) }, views[name].refreshMs)
    }
  }
}

document.getElementById("views").append(...Object.entries(views).filter(([, view]) => !view.hidden)
  .map(([name, { title }]) => el("li", {}, el("a", { href: `./#${name}` }, title)))) // no place in the page, which a fragment alone would be
document.getElementById("find").addEventListener("submit", (event) => {
  event.preventDefault()
  const { find } = event.target.elements
  if (find.value.trim()) go("user", { user: find.value.trim() })
  event.target.reset()
})
document.getElementById("pause").addEventListener("click", ({ target }) => {
  paused = !paused
  target.setAttribute("aria-pressed", paused)
  document.body.classList.toggle("paused", paused)
  if (!paused) show(true)
})
document.getElementById("skip").addEventListener("click", (event) => { // the fragment is that of the view
  event.preventDefault()
  main.focus()
})
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select") || document.querySelector("dialog[open]")) return
  event.preventDefault()
  document.getElementById("find").elements.find.focus()
})
addEventListener("hashchange", async () => {
  status.textContent = ""
  await show(false)
  main.focus({ preventScroll: true })
  scrollTo(0, 0)
})
document.addEventListener("visibilitychange", () => { if (!document.hidden && !paused) show(true) })
show(false)

// Elements are made of texts only: what users have chosen is never parsed as HTML.

/** el makes an element with attributes and children, which are nodes or texts. */
export function el(name, attributes = {}, ...children) {
  const e = document.createElement(name)
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) e.addEventListener(key.slice(2), value)
    else if (typeof value === "boolean") e.toggleAttribute(key, value)
    else e.setAttribute(key, value)
  }
  e.append(...children.filter((child) => child !== undefined && child !== null && child !== false))
  return e
}

/** table makes a table that scrolls in itself, and whose rows are lists in a narrow window. Columns are [heading, cell of a row, class]; those that are empty are left out. */
export function table(caption, columns, rows) {
  if (rows.length === 0) return el("p", { class: "quiet" }, `${caption}: none`)
  const cells = columns.map(([, make]) => rows.map((row) => make(row) ?? ""))
  const shown = [...columns.keys()].filter((column) => cells[column].some((cell) => cell !== ""))
  const kind = (column) => columns[column][2] ? { class: columns[column][2] } : {}
  const cell = (column, row) => {
    const content = cells[column][row]
    if (content === "") return el("td", { role: "cell", class: "empty" })
    return el("td", { role: "cell", "data-label": columns[column][0], ...kind(column) }, typeof content === "number" ? String(content) : content)
  }
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", { role: "table" }, el("caption", {}, caption),
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, ...shown.map((column) => el("th", { scope: "col", role: "columnheader", ...kind(column) }, columns[column][0])))),
      el("tbody", { role: "rowgroup" }, ...rows.map((_, row) => el("tr", { role: "row" }, ...shown.map((column) => cell(column, row)))))))
}

/** section makes a part of a view with a heading. If what it needs fails, it says why, and the other parts are shown. */
export async function section(title, needs, draw, className = "panel") {
  let content
  try {
    content = await draw(await needs)
  } catch (error) {
    content = [el("p", { class: "bad" }, error.message)]
  }
  return el("section", { class: className, "aria-label": title }, el("h3", {}, title), ...content.filter(Boolean))
}

/** details makes a list of terms and values. */
export function details(pairs) {
  return el("dl", {}, ...pairs.flatMap(([term, value]) => [el("dt", {}, term), el("dd", {}, value === "" ? "–" : typeof value === "number" ? String(value) : value)]))
}

/** missing shows which nodes have not answered. */
export function missing(nodes) {
  const lines = nodes.missing.map(({ node, error }) => el("li", {}, `${node}: ${error}`))
  if (!nodes.complete) lines.push(el("li", {}, "There may be more nodes, which this one does not know at the moment."))
  if (lines.length === 0) return null
  return el("div", { class: "missing" }, el("p", {}, "The answer is incomplete."), el("ul", {}, ...lines))
}

/** form makes a form. Fields are [name, label, options]; submit receives the values that are not empty, and the text of the button. */
export function form(name, fields, buttons, submit, values = {}) {
  const controls = fields.map(([key, label, { kind = "text", ...attributes } = {}]) => {
    if (kind === "checkbox") return el("label", { class: "check" }, el("input", { type: kind, name: key, checked: Boolean(values[key]) }), label)
    const control = kind === "textarea" ? el("textarea", { name: key, rows: "3", ...attributes }) : el("input", { type: kind, name: key, autocomplete: "off", spellcheck: "false", ...attributes })
    if (values[key] !== undefined) control.defaultValue = values[key]
    return el("label", {}, label, control)
  })
  return el("form", {
    "aria-label": name,
    onsubmit: (event) => {
      event.preventDefault()
      const result = {}
      for (const [key, , { kind } = {}] of fields) {
        const control = event.target.elements[key]
        if (kind === "checkbox") { if (control.checked) result[key] = true }
        else if (kind === "number") { if (control.value !== "") result[key] = Number(control.value) }
        else if (control.value !== "") result[key] = control.value
      }
      submit(result, event.submitter?.textContent ?? buttons[0])
    },
  }, ...controls, ...buttons.map((text) => el("button", {}, text)))
}

/** time shows a time of the server in the zone of the browser. */
export function time(text) {
  if (!text) return ""
  const at = new Date(text)
  return el("time", { datetime: text, title: text }, at.toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" }))
}

/** age shows how long ago a time is. */
export function age(text) {
  return duration(Date.now() - new Date(text).getTime())
}

export function duration(ms) {
  if (ms < 0) return "never"
  if (ms < 1000) return `${Math.round(ms)} ms`
  const s = Math.floor(ms / 1000)
  if (s < 60) return `${s} s`
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`
}

// Pictures are SVG with attributes only: the content security policy forbids inline styles. Each has a text with the
// same content.
import { el } from "./dom.js"

function svg(name, attributes, ...children) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", name)
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value)
  e.append(...children)
  return e
}

const picture = (className, label, viewBox, ...children) =>
  svg("svg", { class: className, role: "img", "aria-label": label, viewBox, preserveAspectRatio: "none" }, ...children)

/** number shows a number briefly. */
export function number(n) {
  if (n === null || n === undefined) return "–"
  const digits = n !== 0 && Math.abs(n) < 10 && !Number.isInteger(n) ? 1 : 0
  return n >= 10000 ? `${(n / 1000).toFixed(n < 100000 ? 1 : 0)}k` : n.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits })
}

export const highest = (values) => Math.max(0, ...values.filter((value) => value !== null))

/** path draws a line through values from 0 to max, in a box that is 100 high; null is a gap. */
function path(values, max) {
  let text = "", drawing = false
  values.forEach((value, x) => {
    if (value !== null) text += `${drawing ? "L" : "M"}${x} ${(100 - 96 * value / (max || 1)).toFixed(2)}`
    drawing = value !== null
  })
  return text
}

/** area closes a path at the bottom. */
function area(values, max) {
  const first = values.findIndex((value) => value !== null)
  if (first < 0) return ""
  return `M${first} 100L${path(values.slice(first).map((value) => value ?? 0), max).slice(1).replace(/(^|L)(\d+) /g, (_, l, x) => `${l}${Number(x) + first} `)}L${values.length - 1} 100Z`
}

/** spark draws values over time, the latest at the right; it moves by a step until the next value is there. */
export function spark(values, label, { kind = "", max = highest(values) } = {}) {
  return picture(`spark ${kind}`, label, `0 0 ${values.length - 1} 100`,
    svg("g", { class: "moves" },
      svg("path", { class: "area", d: area(values, max) }),
      svg("path", { class: "line", d: path(values, max), "vector-effect": "non-scaling-stroke" })))
}

/** lines draws several series over a common time. Each is [values, class]. */
export function lines(series, label, length) {
  const max = Math.max(1, ...series.map(([values]) => highest(values)))
  return picture("spark tall", label, `0 0 ${length - 1} 100`, ...series.map(([values, kind]) =>
    svg("path", { class: `line ${kind}`, d: path(values, max), "vector-effect": "non-scaling-stroke" })))
}

/** bar shows a part of a whole. */
export function bar(value, max, label, kind = "") {
  const width = max > 0 ? Math.min(100, Math.max(0, 100 * value / max)) : 0
  return picture(`bar ${kind}`, label, "0 0 100 10",
    svg("rect", { class: "rest", width: 100, height: 10 }), svg("rect", { class: "part", width: width.toFixed(1), height: 10 }))
}

/** chart is a spark with a reading of the value under the pointer. at returns the time of an index. */
export function chart(values, label, { kind, unit = "", at }) {
  const reading = el("output", { class: "reading" })
  const drawn = spark(values, label, { kind })
  drawn.addEventListener("pointermove", (event) => {
    const box = drawn.getBoundingClientRect()
    const index = Math.max(0, Math.min(values.length - 1, Math.round((event.clientX - box.left) / box.width * (values.length - 1))))
    reading.textContent = `${at(index)}: ${number(values[index])}${unit}`
  })
  drawn.addEventListener("pointerleave", () => { reading.textContent = "" })
  return el("div", { class: "chart" }, drawn, el("p", { class: "axis", "aria-hidden": "true" }, el("span", {}, "15 min ago"), reading, el("span", {}, "now")))
}

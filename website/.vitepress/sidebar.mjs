// The sidebar: the sections of docs/README.md, and the decisions.
import { readFileSync } from "node:fs";
import path from "node:path";
import { filesIn, pageOf, pathOf, resolveLink, root } from "./repository.mjs";

const index = "docs/README.md";

/** Returns the sections of an index: its second-level headings with the first link of each list item and table row. */
export function sectionsOf(text) {
  const sections = [];
  let fenced = false;
  for (const line of text.split("\n")) {
    if (/^\s*```/.test(line)) fenced = !fenced;
    if (fenced) continue;
    const heading = /^## (.+?)\s*$/.exec(line);
    if (heading) sections.push({ text: plain(heading[1]), items: [] });
    const entry = /^\s*(?:[-*] |\d+\. |\|).*?(?<!!)\[((?:[^\]\\]|\\.)+)\]\(([^)\s]+)\)/.exec(line);
    if (!entry) continue;
    const link = resolveLink(index, entry[2]);
    if (!link) throw new Error(`${index}: ${entry[2]} does not exist`);
    if (!link.startsWith("/")) continue;
    if (sections.length === 0) throw new Error(`${index}: the link to ${entry[2]} is in no section; write a heading with ## above it`);
    sections.at(-1).items.push({ text: plain(entry[1]), link });
  }
  return sections.filter((section) => section.items.length > 0);
}

/** Returns the sidebar, and fails if a page of docs/ is missing in it. */
export function sidebar() {
  const files = filesIn(path.join(root, "docs"), ".md").map((file) => `docs/${file}`);
  const list = files.filter(isDecision).map((file) => ({ text: titleOf(file), link: pathOf(pageOf(file)) }));
  const decisions = { text: "Decisions", link: list[0].link, collapsed: true, items: list };

  const sections = sectionsOf(readFileSync(path.join(root, index), "utf8"));
  const linked = new Set(sections.flatMap(({ items }) => items.map(({ link }) => link.replace(/#.*$/, ""))));
  const missing = files.filter((file) => file !== index && !isDecision(file) && !linked.has(pathOf(pageOf(file))));
  if (missing.length > 0) throw new Error(`${index} must have a link to each page, as the first one of a list item or table row: ${missing.join(", ")}`);
  return [...sections, decisions];
}

function isDecision(file) {
  return /^docs\/decisions\/\d/.test(file);
}

/** Returns the first heading of a Markdown file. */
export function titleOf(file) {
  const title = /^# (.+?)\s*$/m.exec(readFileSync(path.join(root, file), "utf8"));
  if (!title) throw new Error(`${file} has no heading`);
  return plain(title[1]);
}

/** Removes the marks of Markdown from a heading or a link's text. */
function plain(text) {
  return text.replace(/[`*]/g, "").replace(/\\(.)/g, "$1");
}

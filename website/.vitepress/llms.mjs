// Text for language models (https://llmstxt.org): llms.txt lists all pages, llms-full.txt contains them.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { pageOf, resolveLink, root } from "./repository.mjs";
import { titleOf } from "./sidebar.mjs";

/**
 * Writes llms.txt, llms-full.txt and the Markdown of each page next to its HTML. files are the Markdown
 * files of all pages; prefix precedes the paths of the site in links.
 */
export function writeTexts(folder, prefix, description, sections, files) {
  const texts = new Map();
  for (const file of files.filter((file) => file !== "website/index.md")) texts.set(pageOf(file), markdown(file, prefix));
  for (const [page, text] of texts) {
    mkdirSync(path.dirname(path.join(folder, page)), { recursive: true });
    writeFileSync(path.join(folder, page), text);
  }

  const titles = new Map(files.map((file) => [pageOf(file), file === "website/index.md" ? "" : titleOf(file)]));
  const line = (page) => `- [${titles.get(page)}](${prefix}${page})`;
  const others = new Set(texts.keys());
  const list = sections.map(({ text, items }) => {
    const pages = items.map(({ link }) => pageAt(link)).filter((page) => others.delete(page));
    return pages.length === 0 ? "" : `## ${text}\n\n${pages.map(line).join("\n")}\n`;
  });
  const rest = `## More\n\n${[...others].sort().map(line).join("\n")}\n`;
  const head = `# Penstock\n\n> ${description}\n`;
  writeFileSync(path.join(folder, "llms.txt"), [head, ...list.filter(Boolean), rest].join("\n"));
  writeFileSync(path.join(folder, "llms-full.txt"), [...texts].map(([page, text]) => `<!-- ${prefix}${page} -->\n\n${text}`).join("\n"));
}

/** Returns the Markdown file of a path on the site. */
function pageAt(link) {
  return link.slice(1).replace(/#.*$/, "").replace(/\.html$/, ".md").replace(/(^|\/)$/, "$1index.md");
}

/** Returns the text of a file, in which links outside code work outside the repository, too. */
function markdown(file, prefix) {
  return readFileSync(path.join(root, file), "utf8").replace(/^ *```.*?^ *```$|(?<=\]\()[^)\s]+(?=\))/gms, (link) => {
    if (link.includes("```")) return link;
    const resolved = resolveLink(file, link) ?? link;
    return resolved.startsWith("/") ? prefix + resolved.slice(1) : resolved;
  });
}

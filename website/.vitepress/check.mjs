// Checks what was built: every link within the site leads to a page, and every fragment to an element.
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { filesIn } from "./repository.mjs";

/** Returns what is wrong with the links of the pages in a folder, which are below base on their host. */
export function brokenLinks(folder, base) {
  const pages = new Map(); // of { ids, links }
  for (const page of filesIn(folder, ".html")) {
    const html = readFileSync(path.join(folder, page), "utf8");
    pages.set(page, {
      ids: new Set([...html.matchAll(/\sid="([^"]*)"/g)].map(([, id]) => unescape(id))),
      links: [...html.matchAll(/<(?:a|img|link|script)\b[^>]*?\s(?:href|src)="([^"]*)"/g)].map(([, link]) => unescape(link)),
    });
  }
  const problems = new Set();
  for (const [page, { links }] of pages) {
    for (const link of links) {
      if (/^[a-z][a-z+.-]*:|^\/\//i.test(link)) continue;
      const { pathname, hash } = new URL(link, `http://site${base}${page}`);
      const target = pathname.startsWith(base) ? fileOf(decodeURI(pathname.slice(base.length))) : undefined;
      const id = decodeURIComponent(hash.slice(1));
      if (target === undefined || !existsSync(path.join(folder, target))) problems.add(`${page}: ${link} does not exist`);
      else if (id && !pages.get(target)?.ids.has(id)) problems.add(`${page}: ${link}: the page has no heading or element #${id}`);
    }
  }
  return [...problems];
}

function fileOf(pathname) {
  return pathname === "" || pathname.endsWith("/") ? `${pathname}index.html` : pathname;
}

function unescape(text) {
  return text.replaceAll("&quot;", '"').replaceAll("&#39;", "'").replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
}

// Where the files of the repository are on the site, and on the forge.
import { existsSync, readdirSync, statSync } from "node:fs";
import path from "node:path";

/** The root of the repository, which is also the root of VitePress's sources. */
export const root = path.resolve(import.meta.dirname, "../..");

/** A branch or a tag: links to code lead to it. */
export const ref = process.env.SITE_REF || "main";

export const forge = "https://github.com/penstock-go/penstock";

/** The address of the site, or undefined if it is not known yet: https://example.org/v0.1/. */
export const address = siteAddress(process.env.SITE_URL);

function siteAddress(text) {
  if (!text) return undefined;
  if (!/^https?:\/\/.*\/$/.test(text)) {
    throw new Error(`SITE_URL is ${JSON.stringify(text)}; it must be the address of a folder, such as https://example.org/v0.1/`);
  }
  return new URL(text);
}

/** The folder of the site on its host, such as /v0.1/. */
export const base = address?.pathname ?? "/";

/** Other Markdown files are not on the site. */
const published = /^(docs\/.*|website\/index|(?!website\/)(.*\/)?README|internal\/benchmarks\/RESULTS|CHANGELOG|CONTRIBUTING|SECURITY)\.md$/;

/**
 * Returns the path of the page that a Markdown file becomes: the same without docs/, except that a
 * README.md becomes the index of its folder. The result is undefined for a file that is no page.
 */
export function pageOf(file) {
  if (!published.test(file)) return undefined;
  if (!file.includes("/")) return file.toLowerCase();
  if (file === "website/index.md") return "index.md";
  if (file === "docs/README.md") return "docs/index.md";
  return file.replace(/^docs\//, "").replace(/(^|\/)README\.md$/, "$1index.md");
}

/** Returns the path of a page in links. */
export function pathOf(page) {
  return "/" + page.replace(/(^|\/)index\.md$/, "$1").replace(/\.md$/, ".html");
}

/**
 * Returns what a link in a file of the repository becomes: a path on the site, or an address on the
 * forge for what is not on the site. A link to the forge counts as one to the file, since the README
 * of a package is also read outside the repository. The result is undefined for a file that does not
 * exist. Other links remain as they are.
 */
export function resolveLink(from, link) {
  const onForge = /^\/(?:blob|tree)\/main\/(.+)$/.exec(link.startsWith(forge) ? link.slice(forge.length) : "");
  if (onForge) return resolveLink("", onForge[1]) ?? fail(`${from}: ${link} does not exist`);
  if (!isRelative(link)) return link;

  const [, target, fragment] = /^([^#]*)(#.*)?$/.exec(link);
  const file = path.posix.join(path.posix.dirname(from), decodeURI(target)).replace(/\/$/, "");
  if (file.startsWith("..") || !existsSync(path.join(root, file))) return undefined;
  const isFolder = statSync(path.join(root, file)).isDirectory();
  const readme = path.posix.join(file, "README.md");
  const page = pageOf(isFolder && existsSync(path.join(root, readme)) ? readme : file);
  if (page) return pathOf(page) + (fragment ?? "");
  return `${forge}/${isFolder ? "tree" : "blob"}/${ref}/${file}${fragment ?? ""}`;
}

/** Reports whether a link has neither a scheme nor a host, and is not within its page. */
function isRelative(link) {
  return !/^([a-z][a-z+.-]*:|\/|#|$)/i.test(link);
}

/** Returns the files in a folder and its folders that end in suffix, sorted, as paths relative to the folder. */
export function filesIn(folder, suffix) {
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).map((file) => file.replaceAll("\\", "/"));
  return files.filter((file) => file.endsWith(suffix)).sort();
}

function fail(message) {
  throw new Error(message);
}

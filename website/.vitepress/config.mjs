import { readFileSync } from "node:fs";
import path from "node:path";
import { defineConfig } from "vitepress";
import { brokenLinks } from "./check.mjs";
import { goNames } from "./gonames.mjs";
import { writeTexts } from "./llms.mjs";
import { addRules, slugify } from "./markdown.mjs";
import { address, base, forge, pageOf, ref, root } from "./repository.mjs";
import { sidebar } from "./sidebar.mjs";

const description = "Penstock is a typed WebSocket framework for Go with exact rate limiting.";
const sections = sidebar();
const names = goNames();
const logo = `data:image/svg+xml,${encodeURIComponent(readFileSync(path.join(import.meta.dirname, "logo.svg"), "utf8"))}`;

/** Finds the packages of pages outside website/, which have no node_modules above them. */
const packagesOfWebsite = {
  name: "packages-of-website",
  enforce: "pre",
  resolveId(source, importer, options) {
    if (!/^vue(\/|$)/.test(source) || !importer?.endsWith(".md")) return null;
    return this.resolve(source, path.join(root, "website/package.json"), { ...options, skipSelf: true });
  },
};

function rewrite(file) {
  const page = pageOf(file);
  if (!page) throw new Error(`${file} has no place on the site; add it to pageOf, or to srcExclude`);
  return page;
}

export default defineConfig({
  srcDir: root,
  ignoreDeadLinks: "localhostLinks", // examples
  srcExclude: ["website/README.md", "**/testdata/**"],
  rewrites: rewrite,
  base,
  lang: "en-US",
  title: "Penstock",
  description,
  head: [["link", { rel: "icon", href: logo }]],
  vite: {
    plugins: [packagesOfWebsite],
    build: { chunkSizeWarningLimit: 2000 }, // KB: the search index, which loads when a search begins
  },
  sitemap: address && { hostname: address.href },
  markdown: {
    anchor: { slugify },
    theme: { light: "github-light-high-contrast", dark: "github-dark-high-contrast" },
    languageAlias: { caddyfile: "nginx", golang: "go", haproxy: "nginx", hex: "ini" },
    config: (md) => addRules(md, names),
  },
  themeConfig: {
    logo: { src: logo, alt: "" },
    siteTitle: ref === "main" ? "Penstock" : `Penstock ${ref}`,
    nav: [
      { text: "Documentation", link: "/docs/" },
      { text: "Protocol", link: "/protocol" },
      { text: "Go packages", link: "https://pkg.go.dev/github.com/penstock-go/penstock" },
      { text: "Changelog", link: "/changelog" },
    ],
    sidebar: sections,
    outline: [2, 3],
    search: { provider: "local" },
    editLink: { pattern: `${forge}/edit/main/:path`, text: "Edit this page" },
    socialLinks: [{ icon: "github", link: forge, ariaLabel: "Source on GitHub" }],
    externalLinkIcon: true,
    notFound: { title: "Page not found", quote: "The address may be of an older version.", linkText: "To the home page", linkLabel: "To the home page" },
  },
  buildEnd({ outDir, pages }) {
    writeTexts(outDir, address?.href ?? base, description, sections, pages);
    const problems = brokenLinks(outDir, base);
    if (problems.length > 0) throw new Error(`broken links:\n${problems.join("\n")}`);
  },
});

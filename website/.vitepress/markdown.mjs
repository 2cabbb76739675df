// Rules for markdown-it, which VitePress renders Markdown with.
import { readFileSync } from "node:fs";
import path from "node:path";
import { resolveLink, root } from "./repository.mjs";

/** Returns the fragment that GitHub gives to a heading, so that links work in both places. */
export function slugify(heading) {
  return heading.trim().toLowerCase().replace(/[^\p{L}\p{M}\p{N}\p{Pc}\- ]/gu, "").replaceAll(" ", "-");
}

export function addRules(md, goNames) {
  md.core.ruler.push("repository", (state) => {
    const file = path.relative(root, state.env.realPath ?? state.env.path).replaceAll("\\", "/");
    for (const [i, token] of state.tokens.entries()) {
      if (token.type === "fence" && file === "website/index.md") insertProgram(token);
      if (token.type === "html_block") token.content = relativeImages(token.content);
      if (token.type !== "inline" || !token.children) continue;
      for (const child of token.children) resolve(file, child);
      if (state.tokens[i - 1]?.type !== "heading_open") token.children = linkNames(token.children, goNames, state.Token);
    }
  });
}

/** Replaces the link of a token. One that leads nowhere is kept, so that the checks of the build report it. */
function resolve(file, token) {
  if (token.type === "html_inline") token.content = relativeImages(token.content);
  const link = token.type === "link_open" ? token.attrGet("href") : null;
  if (link) token.attrSet("href", resolveLink(file, link) ?? link);
}

/** Makes VitePress copy the pictures of <img> elements: it takes a path without a dot for one of the host. */
function relativeImages(html) {
  return html.replace(/(<img\b[^>]*?\bsrc=")(?![a-z]+:|[./])/gi, "$1./");
}

/** Fills an empty block of Go code with the first program of README.md. */
function insertProgram(fence) {
  if (fence.info !== "go" || fence.content.trim() !== "") return;
  const program = /^```go\n(package main\n.*?)^```$/ms.exec(readFileSync(path.join(root, "README.md"), "utf8"));
  if (!program) throw new Error("README.md has no Go program for the home page: a block that begins with package main");
  fence.content = program[1];
}

/** Makes links of the names in backticks that packages of this module export, except in links. */
function linkNames(tokens, goNames, Token) {
  let links = 0;
  return tokens.flatMap((token) => {
    links += token.type === "link_open" ? 1 : token.type === "link_close" ? -1 : 0;
    const name = /^[*&]?([a-z]+\.[A-Z]\w*(?:\.[A-Z]\w*)?)(?:[({[].*)?$/.exec(token.content)?.[1];
    const address = token.type === "code_inline" && links === 0 && name ? goNames.get(name) : undefined;
    if (!address) return [token];
    const open = new Token("link_open", "a", 1);
    open.attrs = [["href", address], ["class", "no-icon"]];
    return [open, token, new Token("link_close", "a", -1)];
  });
}

// The exported names of the module's packages, and where pkg.go.dev documents them.
import { execFileSync } from "node:child_process";
import { ref, root } from "./repository.mjs";

/** Maps router.Options, router.Options.OnOpen and router.Conn.Send to their addresses. */
export function goNames() {
  const names = new Map();
  for (const importPath of run("list", "./...").trim().split("\n")) {
    if (/\/(internal|docs|examples)(\/|$)/.test(importPath)) continue;
    const page = `https://pkg.go.dev/${atVersion(importPath)}`;
    const name = importPath.slice(importPath.lastIndexOf("/") + 1);
    for (const exported of exportedNames(run("doc", "-all", importPath))) names.set(`${name}.${exported}`, `${page}#${exported}`);
  }
  return names;
}

/** Returns the exported names in the output of go doc -all: functions, types, methods, fields, constants and variables. */
export function exportedNames(text) {
  const names = [];
  let block = ""; // the type whose members follow, or "(" within a block of constants or variables
  for (const line of text.split("\n")) {
    const method = /^func \((?:\w+ )?\*?(\w+)(?:\[.*?\])?\) ([A-Z]\w*)/.exec(line);
    const top = /^(?:func|type|const|var) ([A-Z]\w*)/.exec(line);
    const member = /^\t([A-Z]\w*(?:, [A-Z]\w*)*)(?=[ (]|$)/.exec(line);
    if (method) names.push(`${method[1]}.${method[2]}`);
    if (top) names.push(top[1]);
    if (/^(type .* (struct|interface) \{|(const|var) \()$/.test(line)) block = top ? `${top[1]}.` : "(";
    else if (/^[)}]/.test(line)) block = "";
    else if (block && member) for (const name of member[1].split(", ")) names.push(block === "(" ? name : block + name);
  }
  return names;
}

function atVersion(importPath) {
  const module = "github.com/penstock-go/penstock";
  return /^v\d/.test(ref) ? importPath.replace(module, `${module}@${ref}`) : importPath;
}

function run(...args) {
  return execFileSync("go", args, { cwd: root, encoding: "utf8", maxBuffer: 1 << 26, env: { ...process.env, GOWORK: "off" } });
}

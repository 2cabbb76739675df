// Builds dist: the client as one minified file with a source map, and its declarations.

import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

import { build } from "esbuild";
import { minify } from "terser";

const LIMIT_BYTES = 6144;

// Properties of the parts of the client, which no user sees. esbuild shortens them.
const internal =
  "order first link settle receive drop dropAll grant submit tell use isIdle resumable opened closed forget subscribedByServer sync " +
  "weight cancel rejectAll restart denied announce wait sent confirm rejected applies take after emit deliver socket serving retired oneWay within fetchToken start done";
const names = internal.split(" ");
const types = readFileSync("src/types.ts", "utf8");
const exposed = names.filter((name) => new RegExp(`\\b${name}\\??[:(]`).test(types));
if (exposed.length) throw new Error(`src/types.ts has internal properties: ${exposed}`);

const { outputFiles } = await build({
  entryPoints: ["src/index.ts"],
  bundle: true,
  minifySyntax: true,
  format: "esm",
  target: "es2022",
  mangleProps: new RegExp(`^(${names.join("|")})$`),
  sourcemap: "external",
  outfile: "dist/index.js",
  write: false,
});
const [map, bundle] = outputFiles;
const { code, map: finalMap } = await minify(bundle.text, {
  module: true,
  ecma: 2022,
  compress: { ecma: 2022, passes: 3 },
  sourceMap: { content: map.text, url: "index.js.map", filename: "index.js" },
});
// Users need the declarations of these alone.
const declared = ["index", "client", "errors", "types"];
rmSync("dist", { recursive: true, force: true });
mkdirSync("dist");
writeFileSync("dist/index.js", code);
writeFileSync("dist/index.js.map", finalMap);
execFileSync("npx", ["tsc", "--noEmit", "false", "--declaration", "--emitDeclarationOnly", "--outDir", "dist"], { stdio: "inherit" });

for (const name of readdirSync("dist")) {
  if (name.endsWith(".d.ts") && !declared.includes(name.slice(0, -5))) rmSync(`dist/${name}`);
}

const compressed = gzipSync(code.replace(/\n?\/\/# sourceMappingURL.*/, ""), { level: 9 }).length;
console.log(`dist/index.js: ${code.length} bytes, ${compressed} bytes compressed, at most ${LIMIT_BYTES}`);
if (compressed > LIMIT_BYTES) process.exitCode = 1;

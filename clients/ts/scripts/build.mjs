// Builds dist: the client and pacing as one minified file each, with source maps, and their declarations; also for CommonJS.

import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

import { build, transform } from "esbuild";
import { minify } from "terser";

const LIMIT_BYTES = 6144;

// Properties of the parts of the client, which no user sees. esbuild shortens them.
const internal =
  "order first link settle receive drop grant submit tell use unansweredOn resumable opened forget subscribedByServer sync " +
  "weight cancel restart denied announce wait sent confirm rejected applies take after emit deliver socket serving retired oneWay within fetchToken start done search forget notBefore nextAt ahead behind crowded awaited closedIn heads insert openCalls lane online stopAll about pending endAll";
const names = internal.split(" ");
const types = readFileSync("src/types.ts", "utf8");
const exposed = names.filter((name) => new RegExp(`\\b${name}\\??[:(]`).test(types));
if (exposed.length) throw new Error(`src/types.ts has internal properties: ${exposed}`);

rmSync("dist", { recursive: true, force: true });
mkdirSync("dist");

// One build, so that the entry points agree on the shortened names.
const { outputFiles } = await build({
  entryPoints: ["src/index.ts", "src/pacing.ts"],
  bundle: true,
  minifySyntax: true,
  format: "esm",
  target: "es2022",
  mangleProps: new RegExp(`^(${names.join("|")})$`),
  mangleCache: {},
  sourcemap: "external",
  outdir: "dist",
  write: false,
});
const sizes = {};
for (const name of ["index", "pacing"]) {
  const text = (file) => outputFiles.find(({ path }) => path.endsWith(file)).text;
  const { code, map } = await minify(text(`/${name}.js`), {
    module: true,
    ecma: 2022,
    compress: { ecma: 2022, passes: 5, inline: 1 },
    sourceMap: { content: text(`/${name}.js.map`), url: `${name}.js.map`, filename: `${name}.js` },
  });
  writeFileSync(`dist/${name}.js`, code);
  writeFileSync(`dist/${name}.js.map`, map);
  writeFileSync(`dist/${name}.cjs`, (await transform(code, { format: "cjs", minifyWhitespace: true })).code.replace(/\/\/# source.*/, ""));
  sizes[name] = gzipSync(code.replace(/\n?\/\/# sourceMappingURL.*/, ""), { level: 9 }).length;
  console.log(`dist/${name}.js: ${code.length} bytes, ${sizes[name]} bytes compressed`);
}
// Users need the declarations of these alone.
const declared = ["index", "client", "errors", "pacing", "types"];
execFileSync("npx", ["tsc", "--noEmit", "false", "--declaration", "--emitDeclarationOnly", "--outDir", "dist"], { stdio: "inherit" });

for (const name of readdirSync("dist")) {
  if (!name.endsWith(".d.ts")) continue;
  if (!declared.includes(name.slice(0, -5))) rmSync(`dist/${name}`);
  else writeFileSync(`dist/${name.slice(0, -2)}cts`, readFileSync(`dist/${name}`, "utf8").replace(/(from "\.\/[a-z]+)\.js"/g, '$1.cjs"'));
}

if (sizes.index > LIMIT_BYTES) {
  console.error(`dist/index.js has more than ${LIMIT_BYTES} bytes compressed`);
  process.exitCode = 1;
}

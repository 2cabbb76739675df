// Builds dist: the client, pacing and each part for a library as one minified file, with source maps, and their declarations; also for CommonJS.

import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

import { build, transform } from "esbuild";
import { minify } from "terser";

const LIMIT_BYTES = 6240;
const RUN_LIMIT_BYTES = 1024; // of the part for runs
const FALLBACK_LIMIT_BYTES = 2048; // of each file of the fallback to HTTP

// Properties of the parts of the client, which no user sees. esbuild shortens them.
const internal =
  "handled order first link settle receive drop grant submit tell use unansweredOn resumable opened forget subscribedByServer sync " +
  "weight cancel restart denied announce wait sent confirm rejected applies take after emit deliver socket answering retired oneWay within fetchToken start done search forget notBefore nextAt crowded awaited closedIn heads insert openCalls lane online stopAll about pending endAll count remove welcome";
const names = internal.split(" ");
const types = readFileSync("src/types.ts", "utf8");
const exposed = names.filter((name) => new RegExp(`\\b${name}\\??[:(]`).test(types));
if (exposed.length) throw new Error(`src/types.ts has internal properties: ${exposed}`);

rmSync("dist", { recursive: true, force: true });
mkdirSync("dist");

/** Writes a module, minified once more, with its source map, and the same for CommonJS. Returns its size in bytes, compressed. */
async function write(name, text, map) {
  const { code, map: sourceMap } = await minify(text, {
    module: true,
    ecma: 2022,
    compress: { ecma: 2022, passes: 5, inline: 1, directives: false, lhs_constants: false, unsafe_arrows: true },
    sourceMap: { content: map, url: `${name}.js.map`, filename: `${name}.js` },
  });
  writeFileSync(`dist/${name}.js`, code);
  writeFileSync(`dist/${name}.js.map`, sourceMap);
  const { code: common } = await transform(code, { format: "cjs", minifyWhitespace: true });
  const required = common.replace(/\bimport\((".*?")\)/g, "Promise.resolve().then(()=>require($1))");
  writeFileSync(`dist/${name}.cjs`, required.replace(/\/\/# source.*/, "").replace(/require\("\.\/([a-z-]+)\.js"\)/g, 'require("./$1.cjs")'));
  const size = gzipSync(code.replace(/\n?\/\/# sourceMappingURL.*/, ""), { level: 9 }).length;
  console.log(`dist/${name}.js: ${code.length} bytes, ${size} bytes compressed`);
  return size;
}

// One build, so that the entry points agree on the shortened names.
const { outputFiles } = await build({
  entryPoints: ["src/index.ts", "src/pacing.ts", "src/serving.ts"],
  bundle: true,
  external: ["./index.js"], // of serving
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
for (const name of ["index", "pacing", "serving"]) {
  const text = (file) => outputFiles.find(({ path }) => path.endsWith(file)).text;
  sizes[name] = await write(name, text(`/${name}.js`), text(`/${name}.js.map`));
}
// These use the client as applications do: they import dist/index.js, and no name in them is shortened, since libraries have the same.
const parts = ["fallback", "latency", "otel", "react", "run", "streams", "tanstack-db", "try-call"];
for (const name of [...parts, "fallback-http", "node"]) {
  const sourcefile = `../src/${name}.ts`;
  const { code, map } = await transform(readFileSync(`src/${name}.ts`, "utf8"), { loader: "ts", target: "es2022", sourcemap: "external", sourcefile });
  sizes[name] = await write(name, code, map);
}
// cborg creates them when it is imported, but pages may set them later, where there are none.
const lazyText = {
  name: "lazy-text",
  setup: (b) =>
    b.onLoad({ filter: /cborg\/lib\/(3string|byte-utils)\.js$/ }, ({ path }) => {
      const source = readFileSync(path, "utf8");
      const contents = source.replace(/^const (text(?:En|De)coder) = new (Text(en|de)coder)\(\)$/im, (_, name, type, method) => {
        const by = `${method.toLowerCase()}code`;
        return `let late; const ${name} = { ${by}: (data) => (late ??= new ${type}()).${by}(data) }`;
      });
      if (contents === source) throw new Error(`${path} creates no encoder or decoder of text`);
      return { contents };
    }),
};
// With the library cborg (Apache License 2.0), which has no form for CommonJS.
const cbor = await build({ entryPoints: ["src/cbor.ts"], bundle: true, format: "esm", target: "es2022", sourcemap: "external", outdir: "dist", write: false, plugins: [lazyText] });
const [cborMap, cborText] = cbor.outputFiles.map((file) => file.text);
await write("cbor", cborText, cborMap);
writeFileSync("dist/cbor.LICENSE", readFileSync("node_modules/cborg/LICENSE"));
// Users need the declarations of these alone.
const declared = ["index", "cbor", "client", "errors", "pacing", "serving", "types", ...parts];
execFileSync("npx", ["tsc", "--noEmit", "false", "--declaration", "--emitDeclarationOnly", "--outDir", "dist"], { stdio: "inherit" });

for (const name of readdirSync("dist")) {
  if (!name.endsWith(".d.ts")) continue;
  if (!declared.includes(name.slice(0, -5))) rmSync(`dist/${name}`);
  else writeFileSync(`dist/${name.slice(0, -2)}cts`, readFileSync(`dist/${name}`, "utf8").replace(/(from "\.\/[a-z-]+)\.js"/g, '$1.cjs"'));
}

for (const [name, limit] of [["index", LIMIT_BYTES], ["run", RUN_LIMIT_BYTES], ["fallback", FALLBACK_LIMIT_BYTES], ["fallback-http", FALLBACK_LIMIT_BYTES]]) {
  if (sizes[name] <= limit) continue;
  console.error(`dist/${name}.js has more than ${limit} bytes compressed`);
  process.exitCode = 1;
}

// Prints the size of the client, minified and compressed, and fails if it is above the limit.

import { gzipSync } from "node:zlib";

import { build } from "esbuild";

const LIMIT_BYTES = 6144;

const { outputFiles } = await build({
  entryPoints: ["src/index.ts"],
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  write: false,
});
const [{ contents }] = outputFiles;
const compressed = gzipSync(contents, { level: 9 }).length;
console.log(`${contents.length} bytes minified, ${compressed} bytes compressed, at most ${LIMIT_BYTES}`);
if (compressed > LIMIT_BYTES) process.exit(1);

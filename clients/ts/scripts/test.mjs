// Bundles the tests and runs them. Arguments are names of test files without extension; none: all that need no server.
// With PENSTOCK_PACKAGE=1 they test dist instead of the sources.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";

import { build } from "esbuild";

const wanted = process.argv.slice(2);
const files = readdirSync("test").filter((name) => name.endsWith(".test.ts"));
const withServer = ["cbor", "fallback-server", "otel-server", "run-server", "server", "react", "tanstack-db"];
const names = files.map((name) => name.replace(/\.test\.ts$/, "")).filter((name) => (wanted.length ? wanted.includes(name) : !withServer.includes(name)));
const testPackage = {
  name: "package",
  setup: (b) => b.onResolve({ filter: /src\/(index|cbor|fallback|latency|node|otel|pacing|react|run|serving|streams|tanstack-db|try-call)\.ts$/ }, ({ path }) => ({ path: resolve("dist", path.replace(/.*\/(.*)ts$/, "$1js")) })),
};
const outdir = mkdtempSync(join("node_modules", ".test-"));
try {
  await build({
    entryPoints: names.map((name) => `test/${name}.test.ts`),
    outdir,
    bundle: true,
    platform: "node",
    format: "esm",
    target: "es2022",
    packages: "external",
    sourcemap: "inline",
    outExtension: { ".js": ".mjs" },
    logLevel: "warning",
    plugins: process.env.PENSTOCK_PACKAGE ? [testPackage] : [],
  });
  const outputs = names.map((name) => join(outdir, `${name}.test.mjs`));
  const { status } = spawnSync(process.execPath, ["--enable-source-maps", "--test", ...outputs], { stdio: "inherit" });
  process.exitCode = status ?? 1;
} finally {
  rmSync(outdir, { recursive: true });
}

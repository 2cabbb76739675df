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
)

// consumers are files of a project that has installed the package, each a module of another kind.
var consumers = map[string]string{
	"package.json": `{"name":"consumer","private":true}`,
	"module.mjs": `import { createClient, PenstockError } from "penstock-client";
import { pacing } from "penstock-client/pacing";
import { Worker } from "node:worker_threads";
const client = createClient({ url: "ws://localhost:1", pacing });
if (client.inspect().waiting !== 0 || !(new PenstockError("A") instanceof Error)) throw new Error("ESM");
const worker = new Worker(new URL("./common.cjs", import.meta.url));
worker.on("exit", (code) => (process.exitCode = code));
`,
	"common.cjs": `const { createClient } = require("penstock-client");
const { pacing } = require("penstock-client/pacing");
if (createClient({ url: "ws://localhost:1", pacing }).state !== "idle") throw new Error("CommonJS");
if (!require("penstock-client/package.json").version) throw new Error("package.json");
`,
	"uses.mts": `import { createClient, type Client } from "penstock-client";
import { pacing } from "penstock-client/pacing";
export const client: Client = createClient({ url: "ws://localhost:1", pacing });
`,
	"uses.cts": `import { createClient, type Client } from "penstock-client";
import { pacing } from "penstock-client/pacing";
export const client: Client = createClient({ url: "ws://localhost:1", pacing });
`,
	"tsconfig.json": `{"compilerOptions":{"module":"node16","target":"es2022","lib":["es2023","dom"],"strict":true,"noEmit":true,"skipLibCheck":false,"types":[]},"files":["uses.mts","uses.cts"]}`,
}

// TestPackage_WorksInAnEmptyProject packs the package as for the registry, and installs it.
func TestPackage_WorksInAnEmptyProject(t *testing.T) {
	run(t, nil, "npm", "run", "build")
	dir, project := install(t), t.TempDir()
	for name, text := range consumers {
		require.NoError(t, os.WriteFile(filepath.Join(project, name), []byte(text), 0o600))
	}
	var packed []struct {
		Filename string
		Files    []struct{ Path string }
	}
	out := runIn(t, dir, "npm", "pack", "--json", "--silent", "--ignore-scripts", "--pack-destination", project)
	require.NoError(t, json.Unmarshal([]byte(out), &packed), out)
	var files []string
	for _, f := range packed[0].Files {
		files = append(files, f.Path)
	}
	for _, want := range []string{"LICENSE", "README.md", "package.json", "dist/index.js", "dist/index.cjs", "dist/pacing.d.cts", "dist/index.js.map", "src/client.ts"} {
		assert.Contains(t, files, want)
	}
	for _, name := range []string{"react.js", "react.cjs"} {
		text, err := os.ReadFile(filepath.Join(dir, "dist", name))
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(string(text), `"use client";`), "%s: frameworks with server components read the directive", name)
	}
	runIn(t, project, "npm", "install", "--silent", "--offline", "--no-audit", "--no-fund", packed[0].Filename)
	runIn(t, project, "node", "module.mjs")
	runIn(t, project, filepath.Join(dir, "node_modules", ".bin", "tsc"), "-p", ".")
	bundle := runIn(t, project, filepath.Join(dir, "node_modules", ".bin", "esbuild"), "module.mjs", "--bundle", "--platform=node", "--format=esm")
	assert.False(t, strings.Contains(bundle, `from "penstock-client`), "the bundle has the package")
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

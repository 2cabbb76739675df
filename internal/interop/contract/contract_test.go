package contract_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/nodetest"
)

// Generated files: that of a router with everything, and that of the chat. Tests in their packages
// compare them with what is generated.
const (
	kitchen = "../../../contract/testdata/kitchen"
	chat    = "../../../examples/chat/contract"
)

func TestAsyncAPI_IsValid(t *testing.T) {
	dir := install(t)
	var paths []string
	for _, path := range []string{kitchen + ".asyncapi.json", chat + ".asyncapi.json"} {
		absolute, err := filepath.Abs(path)
		require.NoError(t, err)
		paths = append(paths, absolute)
	}
	out, err := run(t, append([]string{filepath.Join(dir, "asyncapi.mjs")}, paths...)...)
	require.NoError(t, err, "%s", out)
}

func TestTypeScript_CompilesUnderStrict(t *testing.T) {
	dir := install(t)
	for _, path := range []string{kitchen + ".ts", chat + ".ts"} {
		out, err := compile(t, dir, copyFile(t, path, dir, filepath.Base(path)))
		require.NoError(t, err, "%s: %s", path, out)
	}
}

// TestTypeScript_EnforcesRules compiles rules.ts, in which every line with an expected error must have
// one.
func TestTypeScript_EnforcesRules(t *testing.T) {
	dir := install(t)
	copyFile(t, kitchen+".ts", dir, "kitchen.ts")
	rules := copyFile(t, "rules.ts", dir, "rules.ts")
	out, err := compile(t, dir, rules)
	require.NoError(t, err, "%s", out)

	source, err := os.ReadFile(rules)
	require.NoError(t, err)
	expected := strings.Count(string(source), "// @ts-expect-error")
	require.Greater(t, expected, 20)
	without := filepath.Join(dir, "without.ts")
	require.NoError(t, os.WriteFile(without, []byte(strings.ReplaceAll(string(source), "// @ts-expect-error", "//")), 0o600))
	out, err = compile(t, dir, without)
	require.Error(t, err)
	assert.Equal(t, expected, strings.Count(out, "error TS"), "%s", out)
}

// compile runs the compiler without writing anything.
func compile(t *testing.T, dir, path string) (string, error) {
	return run(t, filepath.Join(dir, "node_modules", "typescript", "lib", "tsc.js"),
		"--strict", "--exactOptionalPropertyTypes", "--noEmit", "--target", "es2022", "--lib", "es2022", "--skipLibCheck", "--moduleResolution", "bundler", "--module", "esnext", "--pretty", "false", path)
}

// copyFile copies a file to a directory and returns its path there.
func copyFile(t *testing.T, path, dir, name string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	to := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(to, content, 0o600))
	return to
}

// run runs a program with Node.js and returns what it prints.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, nodetest.Program(t, "node"), args...).CombinedOutput()
	return string(out), err
}

// directory has the programs and their packages.
var directory nodetest.Directory

func TestMain(m *testing.M) { directory.Main(m) }

func install(t *testing.T) string {
	t.Helper()
	return directory.Path(t, func(dir string) {
		for _, name := range []string{"asyncapi.mjs", "models.mjs", "package.json", "package-lock.json"} {
			copyFile(t, name, dir, name)
		}
	})
}

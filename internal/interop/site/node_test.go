package site_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/nodetest"
)

const (
	repository = "../../.."
	timeout    = 10 * time.Minute // of a build, on a busy machine
)

// evaluate returns the value of a JavaScript expression, in which the given names of a module of
// website/.vitepress can be used. It needs Node.js, but no packages.
func evaluate[T any](t *testing.T, names, module, expression string) T {
	t.Helper()
	out, err := evaluation(t, names, module, expression)
	require.NoError(t, err, out)
	var value T
	require.NoError(t, json.Unmarshal([]byte(out), &value), out)
	return value
}

// evaluation returns what Node.js prints for an expression: its value as JSON, or why it throws.
func evaluation(t *testing.T, names, module, expression string) (string, error) {
	t.Helper()
	script := `import { ` + names + ` } from "./` + module + `.mjs"; console.log(JSON.stringify(` + expression + `))`
	return run(t, filepath.Join(repository, "website/.vitepress"), nil, nodetest.Program(t, "node"), "--input-type=module", "-e", script)
}

func run(t *testing.T, dir string, env []string, program string, arguments ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	command := exec.CommandContext(ctx, program, arguments...)
	command.Dir = dir
	command.Env = append(os.Environ(), append(env, "NO_COLOR=1")...)
	out, err := command.CombinedOutput()
	return string(out), err
}

// quote returns a value as a JavaScript expression.
func quote(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return string(text)
}

// markdownFiles returns the Markdown files in a folder of the repository, as paths relative to the repository.
func markdownFiles(t *testing.T, folder string) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(filepath.Join(repository, folder), func(path string, _ os.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			files = append(files, strings.TrimPrefix(filepath.ToSlash(path), repository+"/"))
		}
		return err
	}))
	return files
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const version = "v0.1.0"

func TestRun_RejectsArguments(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"none":               {nil, "usage"},
		"no version":         {[]string{"prepare"}, "usage"},
		"an unknown command": {[]string{"publish", version}, "usage"},
		"no folder":          {[]string{"proxy", version}, "usage"},
		"a short version":    {[]string{"prepare", "v0.1"}, "must have the form v0.1.0"},
		"a build":            {[]string{"prepare", "v0.1.0+linux"}, "must have the form v0.1.0"},
		"no letter":          {[]string{"prepare", "0.1.0"}, "must have the form v0.1.0"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.ErrorContains(t, run(t.Context(), t.TempDir(), c.args), c.want)
		})
	}
}

// write writes files, whose names are relative to a new folder.
func write(t *testing.T, files map[string]string) (dir string) {
	dir = t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

// clone returns a clone of this repository, in which a test commits.
func clone(t *testing.T) (root string) {
	t.Helper()
	if _, err := gitOutput(t.Context(), "../..", "rev-parse", "HEAD"); err != nil {
		t.Skipf("a release consists of what is committed, and this is not a git repository: %v", err)
	}
	root = filepath.Join(t.TempDir(), "clone")
	git(t, "../..", "clone", "-q", "--shared", ".", root)
	return root
}

// git runs a git command that needs nothing but the repository.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := gitOutput(t.Context(), dir, append([]string{"-c", "user.name=test", "-c", "user.email=test@example.com"}, args...)...)
	require.NoError(t, err)
	return out
}

// edit replaces a text in a file, which must have it.
func edit(t *testing.T, path, text, by string) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(data), text)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(data), text, by, 1)), 0o600))
}

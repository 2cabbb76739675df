package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/nodetest"
)

// buildPages builds copies of the pages with the command of README.md, and returns the directory of
// the result. It skips the test if the npm registry cannot be reached.
func buildPages(t *testing.T) string {
	t.Helper()
	nodetest.Program(t, "node")
	root := t.TempDir()
	for _, source := range []string{"clients/ts/src", "examples/board"} {
		copySources(t, filepath.Join("../..", source), filepath.Join(root, source))
	}
	nodetest.Install(t, root, "--prefix", "examples/board", "--foreground-scripts")
	return filepath.Join(root, "examples/board/dist")
}

// copySources copies a directory without what npm and the build have created.
func copySources(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		switch name := entry.Name(); {
		case entry.IsDir() && (name == "node_modules" || name == "dist"):
			return filepath.SkipDir
		case entry.IsDir():
			return os.MkdirAll(target, 0o700)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o600)
	}))
}

package boardpage_test

import (
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
		nodetest.CopySources(t, filepath.Join("../../..", source), filepath.Join(root, source))
	}
	nodetest.Install(t, root, "--prefix", "examples/board", "--foreground-scripts")
	return filepath.Join(root, "examples/board/dist")
}

// axeSource returns the source of axe-core, in the version that the tests of the inspector use.
func axeSource(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	nodetest.CopySources(t, "../inspectpage", dir)
	nodetest.Install(t, dir, "--ignore-scripts")
	source, err := os.ReadFile(filepath.Join(dir, "node_modules/axe-core/axe.min.js"))
	require.NoError(t, err)
	return string(source)
}

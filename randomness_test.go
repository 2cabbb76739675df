package penstock_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ownRandomness are the folders of what is no part of a product: tests, test kits and commands.
var ownRandomness = regexp.MustCompile(`^(broker/brokertest|cmd|limit/limittest|router/routertest|internal/(batch/batchtest|benchmarks|cluster/enginetest|freeport|interop|random|simnet|simtest|testscale))/`)

// TestRandomness_HasOneSource finds product code that a seed of internal/random would not reach, in all
// modules.
func TestRandomness_HasOneSource(t *testing.T) {
	files := 0
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "node_modules" || strings.HasPrefix(entry.Name(), ".") && path != ".") {
			return fs.SkipDir
		}
		path = filepath.ToSlash(path)
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || ownRandomness.MatchString(path) {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		files++
		for _, imported := range importsOf(file) {
			assert.False(t, strings.HasPrefix(imported, "math/rand"), "%s imports %s; import internal/random, which a test can seed", path, imported)
		}
		return nil
	}))
	assert.Greater(t, files, 500, "files of the product")
}

package penstock_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var goFileBlock = regexp.MustCompile("(?ms)^```go (\\S+)\n(.*?)^```$")

// TestTutorial_ProgramsUseWhatExists parses the Go files of the tutorial, and looks up the identifiers
// that they use of this module. Package internal/interop/tutorial builds and runs them.
func TestTutorial_ProgramsUseWhatExists(t *testing.T) {
	pages, err := filepath.Glob("docs/tutorial/*.md")
	require.NoError(t, err)
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, block := range goFileBlock.FindAllSubmatch(text, -1) {
			found++
			problems, err := missingIdentifiers(string(block[2]))
			assert.NoError(t, err, "%s %s", page, block[1])
			assert.Empty(t, problems, "%s %s", page, block[1])
		}
	}
	assert.Greater(t, found, 20)
}

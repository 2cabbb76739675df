package durablestreams_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/nodetest"
)

// The groups of published tests that read.
const (
	readingGroups = `Read Operations|Long-Poll|Browser Security Headers|Content-Type Validation|HEAD Metadata should|` +
		`Offset Validation and Resumability|Caching and ETag|Chunking and Large Payloads|Read-Your-Writes|SSE Mode|(?<!Fork - )JSON Mode should|` +
		`Byte-Exactness|Operation Sequence|Immutability|Offset Validation Properties|State Hash`
	closedGroups = `Read Closed Streams|HEAD with Stream Closure|Long-poll with Stream Closure|SSE with Stream Closure|offset-now-on-closed`
)

func TestConformance_Runs(t *testing.T) {
	runPublished(t, newRunStore(t), readingGroups+"|"+closedGroups)
}

func TestConformance_Topics(t *testing.T) { runPublished(t, newTopicStore(), readingGroups) }

// runPublished runs the published tests whose names match a pattern.
func runPublished(t *testing.T, s store, pattern string) {
	t.Helper()
	dir := directory.Path(t, func(dir string) {
		for _, file := range []string{"package.json", "package-lock.json", "conformance.test.mjs"} {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), content, 0o600))
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, nodetest.Program(t, "node"), "node_modules/vitest/vitest.mjs", "run", "--reporter=verbose", "--test-timeout=60000", "-t", pattern)
	command.Dir, command.WaitDelay = dir, time.Second
	command.Env = append(os.Environ(), "PENSTOCK_URL="+startFront(t, s), "NO_COLOR=1")
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}

// directory has the programs and their packages.
var directory nodetest.Directory

func TestMain(m *testing.M) { directory.Main(m) }

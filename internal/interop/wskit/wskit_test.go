package wskit_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/interop/exampletest"
	"github.com/penstock-go/penstock/internal/nodetest"
)

func TestWSKit_PlainClientAcceptsEveryFrame(t *testing.T) {
	runNode(t, "plain.test.mjs", topics, clientCalls)
}

var chat = exampletest.Example{Name: "chat"}

// TestWSKit_PlainClientWorksWithTheChat has topics with histories, of which a client that has not asked for positions
// learns nothing.
func TestWSKit_PlainClientWorksWithTheChat(t *testing.T) {
	t.Cleanup(chat.Remove)
	runNodeAgainst(t, "chat.test.mjs", "ws"+strings.TrimPrefix(chat.Start(t).URL(), "http")+"/ws")
}

// runNode starts a server and runs a test program against it.
func runNode(t *testing.T, program string, features ...feature) {
	t.Helper()
	runNodeAgainst(t, program, startServer(t, features).url)
}

func runNodeAgainst(t *testing.T, program, url string) {
	t.Helper()
	dir := directory.Path(t, func(dir string) { copyPrograms(t, dir) })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, nodetest.Program(t, "node"), filepath.Join(dir, program))
	command.WaitDelay = time.Second
	command.Env = append(os.Environ(), "PENSTOCK_URL="+url)
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// directory has the programs and their packages.
var directory nodetest.Directory

func TestMain(m *testing.M) { directory.Main(m) }

// copyPrograms copies the files for Node.js.
func copyPrograms(t *testing.T, dir string) {
	t.Helper()
	for _, pattern := range []string{"*.mjs", "package*.json"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), content, 0o600))
		}
	}
}

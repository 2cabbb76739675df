package clienttest_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/conformance"
	"github.com/penstock-go/penstock/internal/nodetest"
)

// nodeScale and nodeHTTPScale are how much faster the clock of the TypeScript client runs.
const (
	nodeScale     = 5
	nodeHTTPScale = 3
)

// startNode starts the program driver.mjs. With a mode, its client connects over HTTP.
func startNode(t *testing.T, scale int, mode ...string) *conformance.Process {
	t.Helper()
	arguments := append([]string{filepath.Join(buildNode(t), "driver.mjs"), strconv.Itoa(scale)}, mode...)
	command := exec.CommandContext(t.Context(), "node", arguments...)
	command.Stderr = os.Stderr
	d, err := conformance.StartProcess(command, 5*time.Minute)
	require.NoError(t, err)
	t.Cleanup(func() { d.Stop() })
	return d
}

// directory has the driver and the TypeScript client.
var (
	directory nodetest.Directory
	nodeBuild struct {
		sync.Once

		failure string
	}
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "6") // the TypeScript client waits more than it computes
	directory.Main(m)
}

// buildNode returns a directory with the driver and the TypeScript client. Without Node.js the test is skipped, or fails where it
// is required.
func buildNode(t *testing.T) string {
	t.Helper()
	dir := directory.Path(t, func(dir string) {
		nodetest.CopySources(t, "../../../clients/ts", dir)
		program, err := os.ReadFile("driver.mjs")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "driver.mjs"), program, 0o600))
	})
	nodeBuild.Do(func() {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		command := exec.CommandContext(ctx, "npm", "run", "build")
		command.Dir = dir
		if out, err := command.CombinedOutput(); err != nil {
			nodeBuild.failure = fmt.Sprintf("npm run build: %s%v", out, err)
		}
	})
	require.Empty(t, nodeBuild.failure)
	return dir
}

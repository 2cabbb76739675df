package tsclient_test

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/nodetest"
)

// source is the directory of the client.
const source = "../../../clients/ts"

const timeout = 5 * time.Minute

// run runs a program in the copy of the client, and returns what it prints.
func run(t *testing.T, environment []string, program string, arguments ...string) string {
	t.Helper()
	out, err := tryRun(t, environment, program, arguments...)
	require.NoError(t, err, "%s", out)
	return out
}

func tryRun(t *testing.T, environment []string, program string, arguments ...string) (string, error) {
	t.Helper()
	dir := install(t)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	command := exec.CommandContext(ctx, nodetest.Program(t, program), arguments...)
	command.Dir = dir
	command.WaitDelay = time.Second
	command.Env = append(os.Environ(), environment...)
	out, err := command.CombinedOutput()
	return string(out), err
}

// directory has the client and its packages, built.
var directory nodetest.Directory

func TestMain(m *testing.M) { directory.Main(m) }

func install(t *testing.T) string {
	t.Helper()
	return directory.Path(t, func(dir string) { nodetest.CopySources(t, source, dir) })
}

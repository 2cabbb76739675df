package wskit_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWSKit_PlainClientAcceptsEveryFrame(t *testing.T) {
	runNode(t, "plain.test.mjs", topics, identities, streams, clientCalls, codecs)
}

func TestWebSocket_CancelsCalls(t *testing.T) { runNode(t, "calls.test.mjs") }

// runNode starts a server and runs a test program against it.
func runNode(t *testing.T, program string, features ...feature) {
	t.Helper()
	dir := install(t)
	s := startServer(t, features)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, need(t, "node"), filepath.Join(dir, program))
	command.WaitDelay = time.Second
	command.Env = append(os.Environ(), "PENSTOCK_URL="+s.url)
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// need returns the path of a program. Without it, the test is skipped, or fails where it is
// required.
func need(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err == nil {
		return path
	}
	if os.Getenv("PENSTOCK_REQUIRE_NODE") == "1" || os.Getenv("CI") == "true" {
		t.Fatalf("%s is not installed: PENSTOCK_REQUIRE_NODE=1 or CI=true requires it", program)
	}
	t.Skipf("%s is not installed; install Node.js 18 or newer with npm to run this test", program)
	return ""
}

var (
	installOnce  sync.Once
	installDir   string // with the programs and their packages; removed by TestMain
	installError string // what npm printed, "" if it succeeded
)

func TestMain(m *testing.M) {
	code := m.Run()
	if installDir != "" {
		_ = os.RemoveAll(installDir)
	}
	os.Exit(code)
}

// unreachable matches what npm prints if it cannot reach its registry.
var unreachable = regexp.MustCompile(`\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ERR_SOCKET_TIMEOUT|ENETUNREACH|EHOSTUNREACH|ENOTCACHED|E50[0-9])\b`)

// install returns a directory with the programs of this directory and the packages of
// package-lock.json, which npm verifies and caches. It skips the test if the registry cannot be
// reached.
func install(t *testing.T) string {
	t.Helper()
	need(t, "node")
	npm := need(t, "npm")
	installOnce.Do(func() {
		installDir = copyPrograms(t)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		command := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund",
			"--prefer-offline", "--fetch-retries=1", "--fetch-timeout=20000", "--loglevel=error")
		command.Dir = installDir
		if out, err := command.CombinedOutput(); err != nil {
			installError = fmt.Sprintf("%s%v", out, err)
		}
	})
	if unreachable.MatchString(installError) {
		t.Skip("the npm registry cannot be reached, and npm has not cached the packages of package-lock.json")
	}
	require.Empty(t, installError, "npm ci")
	return installDir
}

// copyPrograms copies the files for Node.js to a new directory.
func copyPrograms(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "wskit") //nolint:usetesting // all tests of the binary share it
	require.NoError(t, err)
	for _, pattern := range []string{"*.mjs", "package*.json"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), content, 0o600))
		}
	}
	return dir
}

package tsclient_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// source is the directory of the client.
const source = "../../../clients/ts"

const timeout = 5 * time.Minute

// run runs a program in the copy of the client, and returns what it prints.
func run(t *testing.T, environment []string, program string, arguments ...string) string {
	t.Helper()
	dir := install(t)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	command := exec.CommandContext(ctx, need(t, program), arguments...)
	command.Dir = dir
	command.WaitDelay = time.Second
	command.Env = append(os.Environ(), environment...)
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
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
	t.Skipf("%s is not installed; install Node.js 20 or newer with npm to run this test", program)
	return ""
}

var (
	installOnce  sync.Once
	installDir   string // with the client and its packages, built; removed by TestMain
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

// install returns a directory with a copy of the client and the packages of its package-lock.json,
// which npm verifies and caches. It skips the test if the registry cannot be reached.
func install(t *testing.T) string {
	t.Helper()
	need(t, "node")
	npm := need(t, "npm")
	installOnce.Do(func() {
		installDir = copyClient(t)
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		command := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund",
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

// copyClient copies the client without what npm and its build have created.
func copyClient(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tsclient") //nolint:usetesting // all tests of the binary share it
	require.NoError(t, err)
	err = filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(dir, strings.TrimPrefix(path, source))
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
	})
	require.NoError(t, err)
	return dir
}

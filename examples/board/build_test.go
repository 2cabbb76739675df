package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// buildTimeout bounds the download of the packages, and the build.
const buildTimeout = 5 * time.Minute

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

// unreachable matches what npm prints if it cannot reach its registry.
var unreachable = regexp.MustCompile(`\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ERR_SOCKET_TIMEOUT|ENETUNREACH|EHOSTUNREACH|ENOTCACHED|E50[0-9])\b`)

// buildPages builds copies of the pages with the command of README.md, and returns the directory of
// the result. It skips the test if the npm registry cannot be reached.
func buildPages(t *testing.T) string {
	t.Helper()
	need(t, "node")
	npm := need(t, "npm")
	root := t.TempDir()
	for _, source := range []string{"clients/ts/src", "examples/board"} {
		copySources(t, filepath.Join("../..", source), filepath.Join(root, source))
	}
	ctx, cancel := context.WithTimeout(t.Context(), buildTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, npm, "ci", "--prefix", "examples/board",
		"--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=1", "--fetch-timeout=20000", "--foreground-scripts")
	command.Dir = root
	if out, err := command.CombinedOutput(); err != nil {
		problem := fmt.Sprintf("%s%v", out, err)
		if unreachable.MatchString(problem) {
			t.Skip("the npm registry cannot be reached, and npm has not cached the packages of package-lock.json")
		}
		require.FailNow(t, "npm ci", problem)
	}
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

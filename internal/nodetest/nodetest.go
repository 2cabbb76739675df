// Package nodetest runs Node.js and npm in tests.
package nodetest

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// installTimeout bounds the download of packages, and their scripts.
const installTimeout = 5 * time.Minute

// Program returns the path of node or npm. Without it, or with a version of Node.js before 20, the test
// is skipped, or fails if PENSTOCK_REQUIRE_NODE=1 or CI=true is set.
func Program(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil || isOutdated() {
		Skip(t, "Node.js 20 or newer with npm is not installed; this test runs %s", name)
	}
	return path
}

// Skip skips a test that needs something which this machine does not have, or fails it if
// PENSTOCK_REQUIRE_NODE=1 or CI=true is set.
func Skip(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("PENSTOCK_REQUIRE_NODE") == "1" || os.Getenv("CI") == "true" {
		t.Fatalf(format+"; PENSTOCK_REQUIRE_NODE=1 or CI=true requires it", args...)
	}
	t.Skipf(format, args...)
}

// isOutdated reports whether Node.js is too old for the packages that the tests install.
var isOutdated = sync.OnceValue(func() bool {
	version, err := exec.Command("node", "--version").Output()
	if err != nil {
		return true
	}
	var major int
	_, err = fmt.Sscanf(string(version), "v%d.", &major)
	return err != nil || major < 20
})

// unreachable matches what npm prints if it cannot reach its registry.
var unreachable = regexp.MustCompile(`\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ERR_SOCKET_TIMEOUT|ENETUNREACH|EHOSTUNREACH|ENOTCACHED|E50[0-9])\b`)

// Install runs npm ci in a directory, which npm verifies and caches. It skips the test if the registry
// cannot be reached.
func Install(t testing.TB, dir string, arguments ...string) {
	t.Helper()
	check(t, install(t, dir, arguments))
}

// install returns what npm printed, or "" if it succeeded.
func install(t testing.TB, dir string, arguments []string) (problem string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), installTimeout)
	defer cancel()
	arguments = append([]string{"ci", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=1", "--fetch-timeout=20000"}, arguments...)
	command := exec.CommandContext(ctx, Program(t, "npm"), arguments...)
	command.Dir = dir
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Sprintf("%s%v", out, err)
	}
	return ""
}

func check(t testing.TB, problem string) {
	t.Helper()
	if unreachable.MatchString(problem) {
		t.Skip("the npm registry cannot be reached, and npm has not cached the packages of package-lock.json")
	}
	require.Empty(t, problem, "npm ci")
}

// A Directory is a directory with packages that all tests of a program share. It is not copied after
// its first use.
type Directory struct {
	once    sync.Once
	path    string
	problem string
}

// Path returns the directory. The first call creates it, lets fill copy the files of the test, and
// installs the packages of package-lock.json, without their scripts.
func (d *Directory) Path(t testing.TB, fill func(dir string)) string {
	t.Helper()
	Program(t, "node")
	Program(t, "npm")
	d.once.Do(func() {
		var err error
		d.path, err = os.MkdirTemp("", "nodetest") //nolint:usetesting // all tests of the program share it
		require.NoError(t, err)
		fill(d.path)
		d.problem = install(t, d.path, []string{"--ignore-scripts", "--loglevel=error"})
	})
	check(t, d.problem)
	return d.path
}

// Main runs the tests of a program, removes the directory, and exits.
func (d *Directory) Main(m *testing.M) {
	code := m.Run()
	if d.path != "" {
		_ = os.RemoveAll(d.path)
	}
	os.Exit(code)
}

// CopySources copies a directory without what npm and builds have created.
func CopySources(t testing.TB, from, to string) {
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

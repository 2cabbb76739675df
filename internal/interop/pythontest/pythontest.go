// Package pythontest runs Python in tests, with the packages of clients/python/requirements-dev.txt.
package pythontest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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

// installTimeout bounds the download of packages.
const installTimeout = 5 * time.Minute

// An Environment is Python with the packages of a client.
type Environment struct {
	client   string // the absolute path of clients/python
	python   string // the program
	packages string
}

// clientDir is the directory of the client, seen from a package of internal/interop.
const clientDir = "../../../clients/python"

// Find returns the environment of the client, and installs its packages if no test has done so before. Without
// Python 3.10 or newer, pip or a connection to its index, the test is skipped, or fails if PENSTOCK_REQUIRE_PYTHON=1 or CI=true is set.
func Find(t testing.TB) *Environment {
	t.Helper()
	found := find()
	if found.missing != "" && (os.Getenv("PENSTOCK_REQUIRE_PYTHON") == "1" || os.Getenv("CI") == "true") {
		t.Fatalf("%s; PENSTOCK_REQUIRE_PYTHON=1 or CI=true requires it", found.missing)
	}
	if found.missing != "" {
		t.Skip(found.missing)
	}
	require.NoError(t, found.err)
	return &found.Environment
}

type outcome struct {
	Environment

	missing string // what this machine does not have
	err     error
}

var find = sync.OnceValue(func() *outcome {
	o := &outcome{}
	if o.client, o.err = filepath.Abs(clientDir); o.err != nil {
		return o
	}
	o.python, o.missing = program()
	if o.missing == "" {
		o.packages, o.missing, o.err = install(o.python, filepath.Join(o.client, "requirements-dev.txt"))
	}
	return o
})

// program returns the path of Python, or what is missing.
func program() (path, missing string) {
	const need = "Python 3.10 or newer with pip is not installed; this test runs python3"
	path, err := exec.LookPath("python3")
	if err != nil || exec.Command(path, "-c", "import pip, sys; sys.exit(sys.version_info < (3, 10))").Run() != nil {
		return "", need
	}
	return path, ""
}

// unreachable matches what pip prints if it cannot reach its index.
var unreachable = regexp.MustCompile(`NewConnectionError|ConnectTimeoutError|ReadTimeoutError|NameResolutionError|ProxyError|ConnectionResetError`)

// install returns a directory with the packages of a file. It is in the cache of the user, by the versions of Python and packages.
func install(python, requirements string) (dir, missing string, err error) {
	text, err := os.ReadFile(requirements)
	if err != nil {
		return "", "", err
	}
	version, err := exec.Command(python, "-VV").Output()
	if err != nil {
		return "", "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", "", err
	}
	sum := sha256.Sum256(bytes.Join([][]byte{[]byte(python), version, text}, nil))
	dir = filepath.Join(cache, "penstock-pythontest", hex.EncodeToString(sum[:12]))
	if _, err := os.Stat(dir); err == nil {
		return dir, "", nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return "", "", err
	}
	building, err := os.MkdirTemp(filepath.Dir(dir), "building")
	if err != nil {
		return "", "", err
	}
	defer func() { _ = os.RemoveAll(building) }()
	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries=1", "--timeout=20",
		"--require-hashes", "--only-binary=:all:", "--target="+building, "--requirement="+requirements)
	if out, err := command.CombinedOutput(); err != nil {
		if unreachable.Match(out) {
			return "", "the index of pip cannot be reached, and pip has not cached the packages of requirements-dev.txt", nil
		}
		return "", "", fmt.Errorf("pip install: %s%w", out, err)
	}
	if err := os.Rename(building, dir); err != nil && !isDirectory(dir) { // another test may have been faster
		return "", "", err
	}
	return dir, "", nil
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Command returns a command that runs Python in the directory of the client, with the client and its packages.
func (e *Environment) Command(ctx context.Context, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, e.python, arguments...)
	command.Dir = e.client
	path := strings.Join([]string{filepath.Join(e.client, "src"), e.packages}, string(os.PathListSeparator))
	command.Env = append(os.Environ(), "PYTHONPATH="+path, "PYTHONDONTWRITEBYTECODE=1")
	return command
}

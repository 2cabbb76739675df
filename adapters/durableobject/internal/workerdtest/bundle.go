package workerdtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/nodetest"
)

// sources is the directory of the Worker in the module.
const sources = "worker"

// packages is the copy of the Worker's directory in which npm installs and wrangler bundles.
var packages nodetest.Directory

// Main runs the tests of a package that calls Start, removes what was installed, and exits.
func Main(m *testing.M) { packages.Main(m) }

// A build is what all servers of a test binary share.
type build struct {
	workerd           string // path of the program
	compatibilityDate string
	production        string // path of the bundle that a deployment uploads
	testClock         string // path of the bundle of test/entry.ts
}

// built is the build of the test binary.
var built struct {
	once  sync.Once
	build build
	err   error
}

// bundle returns the build of the test binary. Its first call creates it.
func bundle(t testing.TB) build {
	t.Helper()
	if runtime.GOOS == "windows" {
		nodetest.Skip(t, "this test starts workerd as on Linux and macOS")
	}
	dir := packages.Path(t, func(dir string) {
		root, err := moduleRoot()
		require.NoError(t, err)
		nodetest.CopySources(t, filepath.Join(root, sources), dir)
	})
	built.once.Do(func() { built.build, built.err = compile(dir) })
	if errors.Is(built.err, errCannotRun) {
		nodetest.Skip(t, "%v; it needs glibc 2.35 or macOS 13.5", built.err)
	}
	require.NoError(t, built.err)
	return built.build
}

// Production returns the text of the bundle that a deployment uploads.
func Production(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(bundle(t).production)
	require.NoError(t, err)
	return string(text)
}

// errCannotRun says that the program was installed, but the system is too old for it.
var errCannotRun = errors.New("workerd does not run on this machine")

func compile(dir string) (build, error) {
	b := build{
		production: filepath.Join(dir, "dist", "production", "index.js"),
		testClock:  filepath.Join(dir, "dist", "test", "entry.js"),
	}
	if _, err := run(dir, "node_modules/.bin/tsc"); err != nil {
		return b, err
	}
	if _, err := run(dir, "node_modules/.bin/wrangler", "deploy", "--dry-run", "--outdir", "dist/production"); err != nil {
		return b, err
	}
	if _, err := run(dir, "node_modules/.bin/wrangler", "deploy", "test/entry.ts", "--dry-run", "--outdir", "dist/test"); err != nil {
		return b, err
	}
	// The program in node_modules/.bin is a script that would survive as the parent of workerd.
	path, err := run(dir, "node", "-p", "require('workerd').default")
	if err != nil {
		return b, err
	}
	b.workerd = strings.TrimSpace(path)
	if err := exec.Command(b.workerd, "--version").Run(); err != nil {
		return b, fmt.Errorf("%w: %w", errCannotRun, err)
	}
	b.compatibilityDate, err = compatibilityDate(filepath.Join(dir, "wrangler.toml"))
	return b, err
}

// run runs a program in dir. Wrangler sends no usage data, asks for no newer version, and writes
// its settings below dir.
func run(dir, name string, args ...string) (string, error) {
	if strings.Contains(name, "/") {
		name = filepath.Join(dir, name)
	}
	command := exec.Command(name, args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "WRANGLER_SEND_METRICS=false", "WRANGLER_HIDE_BANNER=true", "CI=true",
		"XDG_CONFIG_HOME="+filepath.Join(dir, "dist", "config"), "NO_COLOR=1")
	out, err := command.Output()
	if err != nil {
		var stderr []byte
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			stderr = exit.Stderr
		}
		return "", fmt.Errorf("workerdtest: %s %q: %w\n%s%s", name, args, err, out, stderr)
	}
	return string(out), nil
}

func compatibilityDate(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	match := regexp.MustCompile(`(?m)^compatibility_date = "([\d-]+)"$`).FindSubmatch(text)
	if match == nil {
		return "", fmt.Errorf("workerdtest: %s has no line with the compatibility_date", path)
	}
	return string(match[1]), nil
}

// moduleRoot returns the directory of the module that contains the working directory.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, sources, "wrangler.toml")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("workerdtest: no directory above the working directory contains %s", sources)
		}
		dir = parent
	}
}

// Package exampletest runs the example programs for tests.
package exampletest

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An Example is a program in a folder of examples/. All tests of a test binary share its build.
type Example struct {
	Name string // of the folder

	once    sync.Once
	dir     string
	problem string
}

// Main runs the tests of a test binary, removes the build, and exits.
func (e *Example) Main(m *testing.M) {
	code := m.Run()
	e.Remove()
	os.Exit(code)
}

// Remove removes the build, where Main does not.
func (e *Example) Remove() {
	if e.dir != "" {
		_ = os.RemoveAll(e.dir)
	}
}

// build returns the path of the program. If the race detector checks the tests, it checks the program
// as well.
func (e *Example) build(t testing.TB) string {
	t.Helper()
	e.once.Do(func() {
		var err error
		e.dir, err = os.MkdirTemp("", "example") //nolint:usetesting // all tests of the binary share it
		require.NoError(t, err)
		arguments := []string{"build", "-C", "../../../examples/" + e.Name, "-o", filepath.Join(e.dir, e.Name)}
		if checksRaces() {
			arguments = append(arguments, "-race")
		}
		command := exec.Command("go", append(arguments, ".")...)
		if out, err := command.CombinedOutput(); err != nil {
			e.problem = fmt.Sprintf("%s%v", out, err)
		}
	})
	require.Empty(t, e.problem, "go build")
	return filepath.Join(e.dir, e.Name)
}

func checksRaces() bool {
	info, _ := debug.ReadBuildInfo()
	return slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// A Program is a running example. It keeps its address when it is started again.
type Program struct {
	Addr    string // host:port
	Metrics string // URL of its metrics, if its flags ask for them

	t      testing.TB
	path   string
	flags  []string
	cmd    *exec.Cmd // nil: it does not run
	stderr *bytes.Buffer
}

// Start starts the program with flags on a free port. The port is below the range that Linux uses for
// outgoing connections, so that no connection takes it while the program is stopped. The program is
// stopped when the test ends.
func (e *Example) Start(t testing.TB, flags ...string) *Program {
	t.Helper()
	p := &Program{t: t, path: e.build(t), flags: flags}
	t.Cleanup(p.Stop)
	for range 10 {
		p.Addr = fmt.Sprint("127.0.0.1:", 20_000+rand.IntN(10_000))
		if p.start() {
			return p
		}
	}
	require.FailNow(t, "the program does not start", "%s", p.stderr)
	return nil
}

// URL returns the address of the page.
func (p *Program) URL() string { return "http://" + p.Addr }

// Forward returns a handler that forwards requests to the program, WebSocket connections included.
func (p *Program) Forward() http.Handler {
	to := &url.URL{Scheme: "http", Host: p.Addr}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host // the server compares it with the origin
		},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // clients see the errors
	}
}

// Restart starts the program on the same port, after Stop or Kill.
func (p *Program) Restart() {
	p.t.Helper()
	require.True(p.t, p.start(), "the program does not start again: %s", p.stderr)
}

// start reports whether the program serves. It does not if its port is taken, for example.
func (p *Program) start() bool {
	p.t.Helper()
	p.stderr = new(bytes.Buffer)
	cmd := exec.Command(p.path, append(slices.Clone(p.flags), "-addr="+p.Addr)...)
	cmd.Stderr = p.stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(p.t, err)
	require.NoError(p.t, cmd.Start())
	p.cmd = cmd
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		_, text, _ := strings.Cut(lines.Text(), ": ")
		if url, ok := strings.CutPrefix(text, "metrics on "); ok {
			p.Metrics = url
		}
		if strings.HasPrefix(text, "open http://") {
			return true
		}
	}
	p.Kill()
	return false
}

// Stop asks the program to end, and waits for it. It fails the test if the program ends with an error.
func (p *Program) Stop() {
	p.t.Helper()
	if p.cmd == nil {
		return
	}
	require.NoError(p.t, p.cmd.Process.Signal(os.Interrupt))
	err := p.cmd.Wait()
	p.cmd = nil
	assert.NoError(p.t, err, "%s", p.stderr)
}

// Kill ends the program at once.
func (p *Program) Kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.cmd = nil
	assert.NotContains(p.t, p.stderr.String(), "DATA RACE")
}

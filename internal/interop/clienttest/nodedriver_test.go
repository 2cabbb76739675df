package clienttest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// nodeScale is how much faster the clock of the TypeScript client runs.
const nodeScale = 5

// A nodeDriver operates the TypeScript client in a process of Node.js, with one line of JSON for each command and event.
type nodeDriver struct {
	t     *testing.T
	log   *inbox[event]
	stdin io.WriteCloser
	ended chan struct{}
	mu    sync.Mutex
	fast  int
}

// startNode starts the program driver.mjs.
func startNode(t *testing.T, scale int) *nodeDriver {
	t.Helper()
	dir := buildNode(t)
	command := exec.CommandContext(t.Context(), "node", filepath.Join(dir, "driver.mjs"))
	command.Env = append(os.Environ(), fmt.Sprintf("PENSTOCK_SCALE=%d", scale))
	command.Cancel = func() error { return command.Process.Kill() }
	command.WaitDelay = time.Second
	stdin, err := command.StdinPipe()
	require.NoError(t, err)
	stdout, err := command.StdoutPipe()
	require.NoError(t, err)
	command.Stderr = os.Stderr
	require.NoError(t, command.Start())
	d := &nodeDriver{t: t, log: newInbox[event](), stdin: stdin, ended: make(chan struct{}), fast: scale}
	go d.read(stdout, command)
	t.Cleanup(func() { _ = stdin.Close(); _ = command.Process.Kill(); <-d.ended })
	return d
}

func (d *nodeDriver) read(stdout io.Reader, command *exec.Cmd) {
	defer close(d.ended)
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			d.t.Errorf("the driver has printed %s", lines.Text())
			continue
		}
		e.At = time.Now()
		d.log.add(e)
	}
	_ = command.Wait()
}

func (d *nodeDriver) events() *inbox[event] { return d.log }
func (d *nodeDriver) scale() int            { return d.fast }

func (d *nodeDriver) do(c *command) {
	line, err := json.Marshal(c)
	require.NoError(d.t, err)
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err = d.stdin.Write(append(line, '\n'))
	require.NoError(d.t, err)
}

// stop closes the input. The process ends by itself, unless the client has a timer or a socket left.
func (d *nodeDriver) stop() bool {
	_ = d.stdin.Close()
	select {
	case <-d.ended:
		return true
	case <-time.After(10 * time.Second):
		return false
	}
}

var nodeBuild struct {
	sync.Once

	dir     string // removed by TestMain
	failure string
}

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "6") // the TypeScript client waits more than it computes
	code := m.Run()
	if nodeBuild.dir != "" {
		_ = os.RemoveAll(nodeBuild.dir)
	}
	os.Exit(code)
}

// buildNode returns a directory with the driver and the TypeScript client. Without Node.js the test is skipped, or fails where it
// is required.
func buildNode(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") == "true" || os.Getenv("PENSTOCK_REQUIRE_NODE") == "1" {
				t.Fatalf("%s is not installed: PENSTOCK_REQUIRE_NODE=1 or CI=true requires it", program)
			}
			t.Skipf("%s is not installed; install Node.js 20 or newer with npm to test the TypeScript client", program)
		}
	}
	nodeBuild.Do(func() { nodeBuild.dir, nodeBuild.failure = installNode() })
	if unreachable.MatchString(nodeBuild.failure) {
		t.Skip("the npm registry cannot be reached, and npm has not cached the packages of clients/ts/package-lock.json")
	}
	require.Empty(t, nodeBuild.failure)
	return nodeBuild.dir
}

// unreachable matches what npm prints if it cannot reach its registry.
var unreachable = regexp.MustCompile(`\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ERR_SOCKET_TIMEOUT|ENETUNREACH|EHOSTUNREACH|ENOTCACHED|E50[0-9])\b`)

// installNode builds the TypeScript client in a copy of its directory.
func installNode() (dir, failure string) {
	dir, err := os.MkdirTemp("", "clienttest") // all tests of the binary share it
	if err != nil {
		return "", err.Error()
	}
	if err := copyClient(dir); err != nil {
		return dir, err.Error()
	}
	for _, args := range [][]string{
		{"npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=1", "--loglevel=error"},
		{"npm", "run", "build"},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		command := exec.CommandContext(ctx, args[0], args[1:]...)
		command.Dir = dir
		out, err := command.CombinedOutput()
		cancel()
		if err != nil {
			return dir, fmt.Sprintf("%v: %s%v", args, out, err)
		}
	}
	return dir, ""
}

func copyClient(dir string) error {
	const source = "../../../clients/ts"
	for _, name := range []string{"package.json", "package-lock.json", "tsconfig.json"} {
		content, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	for _, name := range []string{"src", "scripts"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(source, name))); err != nil {
			return err
		}
	}
	program, err := os.ReadFile("driver.mjs")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "driver.mjs"), program, 0o600)
}

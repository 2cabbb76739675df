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
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/nodetest"
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
	command := exec.CommandContext(t.Context(), "node", filepath.Join(dir, "driver.mjs"), strconv.Itoa(scale))
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
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
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

//go:build unix

package faults_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A process is a node process, as the coordinator sees it.
type process struct {
	name   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr bytes.Buffer
	read   chan struct{} // closed when its output has ended
	ended  bool          // by a fault: it is not a node anymore
}

// startTest starts a process that runs one test, with the JSON of spec in an environment variable.
// The goroutine that reads its output ends with the process.
func startTest(t *testing.T, test, env, name string, spec any, line func(string)) *process {
	t.Helper()
	text, err := json.Marshal(spec)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	p := &process{name: name, read: make(chan struct{})}
	p.cmd = exec.Command(self, "-test.run=^"+test+"$", "-test.timeout=0")
	p.cmd.Env = append(os.Environ(), env+"="+string(text), "GORACE=atexit_sleep_ms=0")
	p.cmd.Stderr = &p.stderr
	// If the coordinator crashes, the system wakes a stopped process of such a group and ends it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.read)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			line(lines.Text())
		}
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // even if the process is stopped
		<-p.read
		_ = p.cmd.Wait()
	})
	return p
}

// command writes a line to the standard input of the process.
func (p *process) command(t *testing.T, line string) {
	t.Helper()
	_, err := fmt.Fprintln(p.stdin, line)
	require.NoError(t, err, "%s: %s", p.name, &p.stderr)
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(s))
}

// kill kills the process and returns when it has ended.
func (p *process) kill(t *testing.T) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	<-p.read
	var exit *exec.ExitError
	require.ErrorAs(t, p.cmd.Wait(), &exit)
	status, _ := exit.Sys().(syscall.WaitStatus)
	require.Equal(t, syscall.SIGKILL, status.Signal())
	p.ended = true
}

// finish ends a process with the end of its standard input.
func (p *process) finish(t *testing.T) {
	t.Helper()
	require.NoError(t, p.stdin.Close())
	p.wait(t)
}

// wait waits for the end of a process that was asked to end.
func (p *process) wait(t *testing.T) {
	t.Helper()
	<-p.read
	assert.NoError(t, p.cmd.Wait(), "%s: %s", p.name, &p.stderr)
	p.ended = true
}

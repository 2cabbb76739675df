//go:build unix

package faults_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A process is a node process, which prints the address at which it listens.
type process struct {
	name, addr string
	cmd        *exec.Cmd
	stdin      io.WriteCloser
	stderr     bytes.Buffer // complete when the process has ended
}

// startProcess starts a process and waits until it listens. It ends with the test.
func startProcess(t *testing.T, name string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{name: name, cmd: cmd}
	cmd.Stderr = &p.stderr
	// If the tests crash, the system wakes a stopped process of such a group and ends it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	p.stdin, err = cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { p.kill() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		p.kill()
		require.NoError(t, err, "%s: %s", name, &p.stderr)
	}
	p.addr = strings.TrimSpace(line)
	return p
}

// startTest starts a process that runs one test, with the JSON of spec in an environment variable.
func startTest(t *testing.T, test, env, name string, spec any) *process {
	t.Helper()
	text, err := json.Marshal(spec)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "-test.run=^"+test+"$", "-test.timeout=0")
	cmd.Env = append(os.Environ(), env+"="+string(text), "GORACE=atexit_sleep_ms=0")
	return startProcess(t, name, cmd)
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(s))
}

// kill kills the process, even if it is stopped, and returns when it has ended.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// wait waits for the end of a process that was asked to end.
func (p *process) wait(t *testing.T) {
	t.Helper()
	assert.NoError(t, p.cmd.Wait(), "%s: %s", p.name, &p.stderr)
}

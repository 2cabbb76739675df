package workerdtest

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// timeout bounds the start of a process.
const timeout = 30 * time.Second

var errExited = errors.New("the process exited")

// A process is a running workerd. It has no goroutine in this package: tests that check for
// goroutine leaks would report it.
type process struct {
	cmd      *exec.Cmd
	watchdog *exec.Cmd    // kills cmd if this process ends before kill is called
	log      bytes.Buffer // output of cmd; read it only after cmd has ended
}

// startProcess starts workerd. When it returns, the process accepts connections.
func startProcess(program, config string) (*process, error) {
	control, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = control.Close() }()
	p := &process{cmd: exec.Command(program, "serve", config, "--control-fd=3")}
	p.cmd.ExtraFiles = []*os.File{theirs}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	err = p.cmd.Start()
	_ = theirs.Close()
	if err != nil {
		return nil, fmt.Errorf("workerdtest: start %s: %w", program, err)
	}
	if p.watchdog, err = startWatchdog(p.cmd.Process.Pid); err == nil {
		err = awaitListen(control)
	}
	if err != nil {
		p.kill()
		return nil, fmt.Errorf("workerdtest: start %s: %w; its output:\n%s", program, err, &p.log)
	}
	return p, nil
}

// awaitListen waits until workerd reports that it listens. It closes the pipe when it exits.
func awaitListen(control *os.File) error {
	if err := control.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	lines := bufio.NewScanner(control)
	for lines.Scan() {
		if bytes.Contains(lines.Bytes(), []byte(`"event":"listen"`)) {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("wait for it to listen: %w", err)
	}
	return errExited
}

// startWatchdog starts a process that kills pid when this process ends, even by a crash. The
// watchdog reads a pipe that this process never writes to; the pipe closes when this process ends.
func startWatchdog(pid int) (*exec.Cmd, error) {
	cmd := exec.Command("sh", "-c", `read -r _; kill -9 "$0"`, strconv.Itoa(pid))
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return cmd, cmd.Start()
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	p.wait()
}

// stop lets requests in progress finish.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	p.wait()
}

// wait ends the watchdog before it waits: after Wait, the system may reuse the process ID, and the
// watchdog would kill another process.
func (p *process) wait() {
	if p.watchdog != nil && p.watchdog.Process != nil {
		_ = p.watchdog.Process.Kill()
		_ = p.watchdog.Wait()
	}
	_ = p.cmd.Wait()
}

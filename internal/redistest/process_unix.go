//go:build unix

package redistest

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// lookup returns why redis-server cannot run, or nil.
func lookup() error {
	_, err := exec.LookPath(program)
	return err
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

func exited(p *os.Process) bool {
	pid, err := syscall.Wait4(p.Pid, nil, syscall.WNOHANG, nil)
	return err == nil && pid == p.Pid
}

// pause stops a running child process. Signal returns before the process has stopped, so pause
// waits for that.
func pause(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	var status syscall.WaitStatus
	_, err := syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil)
	for err == syscall.EINTR {
		_, err = syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil)
	}
	if err == nil && !status.Stopped() {
		return os.ErrProcessDone
	}
	return err
}

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

//go:build unix

package redistest

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// find returns why no redis-server can run here, or nil.
func find() error {
	_, err := exec.LookPath(program)
	return err
}

// guard starts a process that kills pid when this process ends, however it does.
// It learns of that by the end of its input, which nobody writes to.
func guard(pid int) (*exec.Cmd, error) {
	cmd := exec.Command("sh", "-c", `read -r _; kill -9 "$0"`, strconv.Itoa(pid))
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return cmd, cmd.Start()
}

// exited reports whether a child has ended by itself.
func exited(p *os.Process) bool {
	pid, err := syscall.Wait4(p.Pid, nil, syscall.WNOHANG, nil)
	return err == nil && pid == p.Pid
}

// pause stops a child that runs. It returns once the child stands still, which
// the signal alone does not promise.
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

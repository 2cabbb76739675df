//go:build unix

package postgrestest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// A process is a server.
type process struct {
	cmd      *exec.Cmd
	log      *os.File // a pipe would keep Wait from returning while children of the process run
	watchdog *exec.Cmd
	ended    chan struct{}
	once     sync.Once
}

// output returns what the process has written.
func (p *process) output() string {
	text, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// command returns a command of the unprivileged user.
func command(program string, args ...string) (*exec.Cmd, error) {
	path, err := lookup(program)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = "/"
	credential, err := unprivileged()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
	return cmd, err
}

// unprivileged returns the user of the processes; nil is this user.
var unprivileged = sync.OnceValues(func() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // this user
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.ParseUint(u.Uid, 10, 32)
			gid, _ := strconv.ParseUint(u.Gid, 10, 32)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, fmt.Errorf("root cannot run PostgreSQL, and there is no user postgres or nobody")
})

// run runs a program to its end.
func run(program string, args ...string) error {
	cmd, err := command(program, args...)
	if err != nil {
		return err
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %q: %w; its output:\n%s", program, args, err, out)
	}
	return nil
}

// start starts a server, and a watchdog that kills it when this process ends, even by a crash: the
// watchdog reads a pipe that closes then.
func start(program string, args ...string) (*process, error) {
	cmd, err := command(program, args...)
	if err != nil {
		return nil, err
	}
	parent, err := root()
	if err != nil {
		return nil, err
	}
	log, err := os.CreateTemp(parent.path, "log")
	if err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, log: log, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.watchdog = exec.Command("sh", "-c", `read -r _; kill -9 "$0"`, strconv.Itoa(cmd.Process.Pid))
	if _, err := p.watchdog.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.watchdog.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

func (p *process) exited() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// kill ends the process and its watchdog.
func (p *process) kill() {
	p.once.Do(func() {
		_ = p.watchdog.Process.Kill()
		_ = p.watchdog.Wait()
		_ = p.cmd.Process.Kill()
		<-p.ended
		_ = p.log.Close()
		_ = os.Remove(p.log.Name())
	})
}

// childrenOf returns the processes that a process has started.
func childrenOf(parent int) (children []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		fields := statOf(file)
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			children = append(children, pid)
		}
	}
	return children
}

func isZombie(pid int) bool {
	fields := statOf(fmt.Sprintf("/proc/%d/stat", pid))
	return len(fields) == 0 || fields[0] == "Z"
}

// statOf returns the fields of a stat file from the state on.
func statOf(file string) []string {
	stat, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.Fields(rest)
}

// A rootFolder has all files of this package.
type rootFolder struct {
	path    string
	remover *exec.Cmd // it has a pipe, which must stay open
}

// root returns the folder of all files. A process removes it after the end of the test binary, when
// the servers have ended, too.
var root = sync.OnceValues(func() (*rootFolder, error) {
	dir, err := os.MkdirTemp("", "postgrestest")
	if err != nil {
		return nil, err
	}
	r := &rootFolder{dir, exec.Command("sh", "-c", `read -r _; sleep 1; rm -rf "$0"`, dir)}
	if _, err := r.remover.StdinPipe(); err != nil {
		return nil, err
	}
	if err := r.remover.Start(); err != nil {
		return nil, err
	}
	return r, giveAway(dir)
})

// folder returns a new folder that belongs to the user of the servers.
func folder() (string, error) {
	parent, err := root()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(parent.path, "")
	if err != nil {
		return "", err
	}
	return dir, giveAway(dir)
}

// giveAway makes a folder one of the user of the servers.
func giveAway(dir string) error {
	credential, err := unprivileged()
	if err != nil || credential == nil {
		return err
	}
	return os.Chown(dir, int(credential.Uid), int(credential.Gid))
}

// require skips or fails the test if a program of a package cannot run.
func require(t testing.TB, program, debian string) {
	t.Helper()
	_, err := lookup(program)
	if err == nil {
		_, err = unprivileged()
	}
	switch {
	case err == nil:
	case os.Getenv("CI") == "true" || os.Getenv("PENSTOCK_REQUIRE_POSTGRES") == "1":
		t.Fatalf("postgrestest: %v; install Debian's package %s: PENSTOCK_REQUIRE_POSTGRES=1 or CI=true requires it", err, debian)
	default:
		t.Skipf("postgrestest: %v; install Debian's package %s to run this test", err, debian)
	}
}

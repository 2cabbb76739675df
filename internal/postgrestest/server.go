//go:build unix

package postgrestest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock-go/penstock/internal/freeport"
)

const (
	host    = "127.0.0.1"
	timeout = 30 * time.Second // of a start
)

// A Server is a PostgreSQL server. Its methods fail the test if they fail.
type Server struct {
	Port int

	t        testing.TB
	dir      string // the data directory
	settings []string
	process  *process // nil while it is stopped
}

// URL returns a connection string of the superuser.
func (s *Server) URL() string { return url(s.Port, "postgres") }

// Addr returns host and port.
func (s *Server) Addr() string { return net.JoinHostPort(host, strconv.Itoa(s.Port)) }

func url(port int, database string) string {
	return fmt.Sprintf("postgres://postgres@%s:%d/%s?sslmode=disable", host, port, database)
}

// template is a data directory of which servers are copies.
var template = sync.OnceValues(func() (string, error) {
	dir, err := folder()
	if err != nil {
		return "", err
	}
	data := filepath.Join(dir, "data")
	if err := run("initdb", "--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8", "--pgdata="+data); err != nil {
		return "", err
	}
	return data, appendLine(filepath.Join(data, "pg_hba.conf"), "host replication all 127.0.0.1/32 trust")
})

// defaults are the settings of a server. A test that needs others passes them.
var defaults = []string{
	"fsync=off", "max_connections=500", "shared_buffers=32MB", "unix_socket_directories=", "listen_addresses=" + host,
	"max_wal_senders=5", "wal_level=replica", "log_min_messages=fatal", "autovacuum_naptime=1s",
}

// Start starts a server with settings such as "fsync=on". It ends with the test.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	require(t, "initdb", "postgresql")
	data, err := template()
	if err != nil {
		t.Fatalf("postgrestest: create a database: %v", err)
	}
	s := &Server{t: t, settings: settings, Port: freeport.Pick()}
	s.dir = filepath.Join(s.newFolder(), "data")
	if err := run("cp", "-a", data, s.dir); err != nil {
		t.Fatalf("postgrestest: %v", err)
	}
	t.Cleanup(s.Kill)
	s.Restart()
	return s
}

// newFolder returns a folder of the server's user. It ends with the test.
func (s *Server) newFolder() string {
	s.t.Helper()
	dir, err := folder()
	if err != nil {
		s.t.Fatalf("postgrestest: %v", err)
	}
	s.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Restart starts the server again after Stop or Kill, with the same data and port.
func (s *Server) Restart() {
	s.t.Helper()
	args := []string{"-D", s.dir, "-p", strconv.Itoa(s.Port)}
	for _, setting := range append(append([]string{}, defaults...), s.settings...) {
		args = append(args, "-c", setting)
	}
	var err error
	if s.process, err = start("postgres", args...); err != nil {
		s.t.Fatalf("postgrestest: %v", err)
	}
	deadline := time.Now().Add(timeout)
	for run("pg_isready", "-q", "-h", host, "-p", strconv.Itoa(s.Port), "-U", "postgres") != nil {
		if s.process.exited() || time.Now().After(deadline) {
			s.t.Fatalf("postgrestest: the server does not start; its output:\n%s", s.process.output())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Kill kills the postmaster; its children then end at once. After Restart, the server recovers as
// after a crash.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	children := childrenOf(s.process.cmd.Process.Pid)
	s.process.kill()
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	// The address is in use, and the shared memory exists, until the last child has ended.
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		alive := false
		for _, pid := range children {
			alive = alive || syscall.Kill(pid, 0) == nil && !isZombie(pid)
		}
		if !alive {
			break
		}
	}
	s.process = nil
	_ = os.Remove(filepath.Join(s.dir, "postmaster.pid"))
}

// Stop shuts the server down, which closes its connections. Replicas receive everything before.
func (s *Server) Stop() {
	s.t.Helper()
	if err := run("pg_ctl", "stop", "-D", s.dir, "-m", "fast", "-w"); err != nil {
		s.t.Fatalf("postgrestest: %v", err)
	}
	s.process.kill()
	s.process = nil
}

// Pause stops all processes of the server, and Resume continues them.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume ends Pause.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(signal syscall.Signal) {
	pid := s.process.cmd.Process.Pid
	_ = syscall.Kill(pid, signal)
	for _, child := range childrenOf(pid) {
		_ = syscall.Kill(child, signal)
	}
}

// KillBackend kills a process of the server, such as pg_backend_pid() returns, as a crash does: all
// backends end, and the server recovers.
func (s *Server) KillBackend(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) }

// StartReplica starts a streaming replica. It ends with the test.
func (s *Server) StartReplica(name string, settings ...string) *Server {
	s.t.Helper()
	r := &Server{t: s.t, settings: settings, Port: freeport.Pick()}
	r.dir = filepath.Join(s.newFolder(), "data")
	info := fmt.Sprintf("host=%s port=%d user=postgres application_name=%s", host, s.Port, name)
	if err := run("pg_basebackup", "-R", "-D", r.dir, "-d", info, "--checkpoint=fast", "--no-sync"); err != nil {
		s.t.Fatalf("postgrestest: %v", err)
	}
	// pg_basebackup writes its own application_name.
	if err := appendLine(filepath.Join(r.dir, "postgresql.auto.conf"), "primary_conninfo = '"+info+"'"); err != nil {
		s.t.Fatalf("postgrestest: %v", err)
	}
	s.t.Cleanup(r.Kill)
	r.Restart()
	return r
}

// Copy returns a server with a copy of the data, which must not be running. It is not started.
func (s *Server) Copy() *Server {
	s.t.Helper()
	c := &Server{t: s.t, settings: s.settings, Port: freeport.Pick()}
	c.dir = filepath.Join(s.newFolder(), "data")
	if err := run("cp", "-a", s.dir, c.dir); err != nil {
		s.t.Fatalf("postgrestest: %v", err)
	}
	s.t.Cleanup(c.Kill)
	return c
}

// Promote makes a replica the primary.
func (s *Server) Promote() {
	s.t.Helper()
	if err := run("pg_ctl", "promote", "-D", s.dir, "-w"); err != nil {
		s.t.Fatalf("postgrestest: %v", err)
	}
}

// Settings changes settings in the configuration and loads it. Those of Start remain.
func (s *Server) Settings(lines ...string) {
	s.t.Helper()
	if err := appendLine(filepath.Join(s.dir, "postgresql.auto.conf"), strings.Join(lines, "\n")); err != nil {
		s.t.Fatalf("postgrestest: %v", err)
	}
	if err := run("pg_ctl", "reload", "-D", s.dir); err != nil {
		s.t.Fatalf("postgrestest: %v", err)
	}
}

// shared is the server that Shared shares. It ends with the test binary.
var shared = sync.OnceValues(func() (int, error) {
	data, err := template()
	if err != nil {
		return 0, err
	}
	dir, err := folder()
	if err != nil {
		return 0, err
	}
	copied := filepath.Join(dir, "data")
	if err := run("cp", "-a", data, copied); err != nil {
		return 0, err
	}
	port := freeport.Pick()
	args := []string{"-D", copied, "-p", strconv.Itoa(port)}
	for _, setting := range defaults {
		args = append(args, "-c", setting)
	}
	if _, err := start("postgres", args...); err != nil {
		return 0, err
	}
	for deadline := time.Now().Add(timeout); run("pg_isready", "-q", "-h", host, "-p", strconv.Itoa(port)) != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("the server does not start")
		}
	}
	return port, nil
})

// Shared returns a connection string of a server that all tests of this binary share. Each test
// uses a schema of its own.
func Shared(t testing.TB) string {
	t.Helper()
	require(t, "initdb", "postgresql")
	port, err := shared()
	if err != nil {
		t.Fatalf("postgrestest: %v", err)
	}
	return url(port, "postgres")
}

func appendLine(file, line string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// lookup returns the path of a program of PostgreSQL, which Debian does not put into PATH.
func lookup(program string) (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + program)
	if len(found) > 0 {
		return found[len(found)-1], nil
	}
	if found, err := exec.LookPath(program); err == nil {
		return found, nil
	}
	return exec.LookPath("/usr/sbin/" + program)
}

// Addr returns host and port of a connection string.
func Addr(url string) string {
	_, rest, _ := strings.Cut(url, "@")
	addr, _, _ := strings.Cut(rest, "/")
	return addr
}

// Folder returns a new folder of the server's user. It ends with the test.
func (s *Server) Folder() string { return s.newFolder() }

// MakeFolder creates a folder of the server's user.
func (s *Server) MakeFolder(path string) string {
	s.t.Helper()
	if err := run("mkdir", path); err != nil {
		s.t.Fatalf("postgrestest: %v", err)
	}
	return path
}

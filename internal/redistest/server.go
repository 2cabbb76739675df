package redistest

import (
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A Server is a redis-server process. Its methods are for one goroutine at a
// time; its clients are not so bound. Those without a parameter t fail the test
// that started the server if they cannot do what they say.
type Server struct {
	Addr string // host:port, the same for as long as the server lives

	t       testing.TB
	args    []string
	process *process
}

// Start starts a single node on a free port of 127.0.0.1, without persistence.
// Its arguments are those of redis-server, such as "--maxmemory", "1mb", and win
// over the defaults. The server is killed when the test ends.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	need(t)
	dir := t.TempDir()
	return launch(t, func(port int) []string { return append(nodeArgs(port, dir), args...) })
}

// nodeArgs returns the arguments of a node that is not a sentinel.
func nodeArgs(port int, dir string) []string {
	return []string{
		"--bind", host, "--port", strconv.Itoa(port), "--dir", dir,
		"--save", "", "--appendonly", "no",
		"--repl-diskless-sync-delay", "0", // replicas are in sync at once
	}
}

func launch(t testing.TB, args func(port int) []string) *Server {
	t.Helper()
	s := &Server{t: t}
	var err error
	s.process, err = boot(randomPort, func(port int) []string {
		s.args = args(port)
		return s.args
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	s.Addr = s.process.addr()
	return s
}

// Client returns a client of the server with the library's defaults, which edit
// may change. It is closed when t ends.
func (s *Server) Client(t testing.TB, edit ...func(*redis.Options)) *redis.Client {
	opts := &redis.Options{Addr: s.Addr}
	for _, e := range edit {
		e(opts)
	}
	return closed(t, redis.NewClient(opts))
}

// closed closes a client when t ends, if the test has not done so.
func closed[C interface{ Close() error }](t testing.TB, client C) C {
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Stop kills the server: its data is lost and its connections break. It may be
// stopped already.
func (s *Server) Stop() { s.process.kill() }

// Restart starts the server again at the same address and with the same
// arguments, empty; it stops it first if it runs. It answers commands when
// Restart returns. A node of a cluster still knows the cluster; what a sentinel
// made of a node is forgotten.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	port := func() int { return s.process.port }
	p, err := boot(port, func(int) []string { return s.args })
	if err != nil {
		s.t.Fatal(err)
	}
	s.process = p
}

// Pause freezes the server: it keeps its connections, and the system accepts new
// ones for it, but it answers nothing until Resume.
func (s *Server) Pause() {
	s.t.Helper()
	if s.process.paused {
		return
	}
	if err := pause(s.process.cmd.Process); err != nil {
		s.t.Fatalf("redistest: pause of %s: %v; it must be running", s.Addr, err)
	}
	s.process.paused = true
}

// Resume ends a Pause. The server then answers what it was asked meanwhile.
func (s *Server) Resume() {
	s.t.Helper()
	if err := resume(s.process.cmd.Process); err != nil {
		s.t.Fatalf("redistest: resume of %s: %v; it must be running", s.Addr, err)
	}
	s.process.paused = false
}

package redistest

import (
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/freeport"
)

// A Server is a redis-server process. Its methods are not safe for concurrent use; its clients
// are. A method without a parameter t fails the test that started the server if it cannot do its
// work.
type Server struct {
	Addr string // host:port; Restart keeps it

	t       testing.TB
	args    []string
	env     []string
	process *process
}

// Start starts a single node on a free port of 127.0.0.1, without persistence. The arguments of
// redis-server, such as "--maxmemory", "1mb", override the defaults. The server is killed when the
// test ends.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartWithEnv(t, nil, args...)
}

// StartWithEnv is Start with variables for the server's environment.
func StartWithEnv(t testing.TB, env []string, args ...string) *Server {
	t.Helper()
	requireRedis(t)
	dir := t.TempDir()
	return launch(t, env, func(port int) []string { return append(nodeArgs(port, dir), args...) })
}

// nodeArgs returns the arguments of a node that is not a sentinel.
func nodeArgs(port int, dir string) []string {
	return []string{
		"--bind", host, "--port", strconv.Itoa(port), "--dir", dir,
		"--save", "", "--appendonly", "no",
		"--repl-diskless-sync-delay", "0", // replicas are in sync at once
	}
}

func launch(t testing.TB, env []string, args func(port int) []string) *Server {
	t.Helper()
	s := &Server{t: t, env: env}
	var err error
	s.process, err = boot(freeport.Pick, env, func(port int) []string {
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

// Client returns a client of the server with the default options, which edit may change. It is
// closed when t ends.
func (s *Server) Client(t testing.TB, edit ...func(*redis.Options)) *redis.Client {
	opts := &redis.Options{Addr: s.Addr}
	for _, e := range edit {
		e(opts)
	}
	return closeAfter(t, redis.NewClient(opts))
}

// closeAfter closes a client when t ends. The test may close it earlier.
func closeAfter[C interface{ Close() error }](t testing.TB, client C) C {
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Stop kills the server. Its data is lost and its connections break. Stop has no effect on a stopped
// server.
func (s *Server) Stop() { s.process.kill() }

// Restart stops the server if it runs, and starts it with the same address, arguments and environment, and
// without data. When Restart returns, the server answers commands. A cluster node keeps its cluster
// configuration; a node under a sentinel loses its replication role.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	port := func() int { return s.process.port }
	p, err := boot(port, s.env, func(int) []string { return s.args })
	if err != nil {
		s.t.Fatal(err)
	}
	s.process = p
}

// Pause suspends the server. Its connections stay open and the system accepts new ones, but the
// server answers nothing until Resume is called.
func (s *Server) Pause() {
	s.t.Helper()
	if s.process.paused {
		return
	}
	if err := pause(s.process.cmd.Process); err != nil {
		s.t.Fatalf("redistest: pause %s: %v; it must be running", s.Addr, err)
	}
	s.process.paused = true
}

// Resume ends a Pause. The server then answers the commands that arrived during the pause.
func (s *Server) Resume() {
	s.t.Helper()
	if err := resume(s.process.cmd.Process); err != nil {
		s.t.Fatalf("redistest: resume %s: %v; it must be running", s.Addr, err)
	}
	s.process.paused = false
}

package workerdtest

import (
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/freeport"
)

// ClockHeader is the name of a header with the time of a request, in microseconds since 1970, if the
// server has a test clock. Replies then have a tick of 1 microsecond. Requests without the header
// use the real clock.
const ClockHeader = "Penstock-Test-Clock"

// Options of a server.
type Options struct {
	// TestClock selects the bundle that obeys ClockHeader and has the operations of test/entry.ts.
	TestClock bool
	// Variables of the Worker, such as SHARDS. Start sets SECRET and HASH_SEED.
	Variables map[string]string
}

// A Server is a workerd process. Its methods are not safe for concurrent use, requests to it are. They
// fail the test that started the server if they cannot do their work.
type Server struct {
	URL    string // without a path; Restart keeps it
	Secret string // the variable SECRET unless the test has changed it

	t       testing.TB
	build   build
	dir     string
	port    int
	options Options
	process *process
}

// Start starts a server on a free port of 127.0.0.1. It is killed when the test ends.
func Start(t testing.TB, edit ...func(*Options)) *Server {
	t.Helper()
	s := &Server{t: t, Secret: rand.Text(), build: bundle(t), dir: t.TempDir()}
	s.options.Variables = map[string]string{"SECRET": s.Secret, "HASH_SEED": rand.Text()}
	t.Cleanup(s.Kill)
	s.start(edit)
	s.URL = fmt.Sprintf("http://127.0.0.1:%d", s.port)
	return s
}

// Kill kills the process with SIGKILL. The storage stays.
func (s *Server) Kill() {
	if s.process != nil {
		s.process.kill()
		s.process = nil
	}
}

// Stop asks the process to end after the requests in progress, and waits until it has ended.
func (s *Server) Stop() {
	if s.process != nil {
		s.process.stop()
		s.process = nil
	}
}

// Restart kills the process if it runs, and starts another one with the same URL and storage. It may
// change the options.
func (s *Server) Restart(edit ...func(*Options)) {
	s.t.Helper()
	s.Kill()
	s.start(edit)
}

// Clear kills the process, removes the storage, and starts another process with the same URL.
func (s *Server) Clear() {
	s.t.Helper()
	s.Kill()
	require.NoError(s.t, os.RemoveAll(s.storage()))
	s.start(nil)
}

func (s *Server) storage() string { return filepath.Join(s.dir, "storage") }

func (s *Server) start(edit []func(*Options)) {
	s.t.Helper()
	for _, e := range edit {
		e(&s.options)
	}
	bundle := s.build.production
	if s.options.TestClock {
		bundle = s.build.testClock
	}
	text, err := os.ReadFile(bundle)
	require.NoError(s.t, err)
	// The configuration embeds files of its own directory.
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, "worker.js"), text, 0o600))
	require.NoError(s.t, os.MkdirAll(s.storage(), 0o700))
	require.NoError(s.t, s.boot())
}

// attempts is how many ports boot tries. Only an attempt to listen shows whether a port is free.
const attempts = 10

func (s *Server) boot() error {
	var err error
	for range attempts {
		if s.URL == "" {
			s.port = freeport.Pick()
		}
		config := filepath.Join(s.dir, "config.capnp")
		if err := os.WriteFile(config, []byte(s.config()), 0o600); err != nil {
			return err
		}
		if s.process, err = startProcess(s.build.workerd, config); !errors.Is(err, errExited) {
			return err
		}
	}
	return err
}

// config returns the configuration of workerd.
func (s *Server) config() string {
	var bindings strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.options.Variables)) {
		fmt.Fprintf(&bindings, "    (name = %q, text = %q),\n", name, s.options.Variables[name])
	}
	return fmt.Sprintf(`using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = .worker), (name = "storage", disk = (path = %q, writable = true))],
  sockets = [(name = "http", address = "127.0.0.1:%d", http = (), service = "main")],
);
const worker :Workerd.Worker = (
  modules = [(name = "worker.js", esModule = embed "worker.js")],
  compatibilityDate = %q,
  durableObjectNamespaces = [(className = "LimiterObject", uniqueKey = "penstock", enableSql = true)],
  durableObjectStorage = (localDisk = "storage"),
  bindings = [
    (name = "LIMITER", durableObjectNamespace = "LimiterObject"),
%s  ],
);
`, s.storage(), s.port, s.build.compatibilityDate, &bindings)
}

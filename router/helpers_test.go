package router_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// discard reads r until io.EOF and drops the data.
func discard(r io.Reader) error {
	var buf [1024]byte
	for {
		if _, err := r.Read(buf[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// discardLogs returns opts with a logger that discards everything.
func discardLogs(opts router.Options) *router.Options {
	opts.Logger = slog.New(slog.DiscardHandler)
	return &opts
}

// runSynctest runs a subtest inside a synctest bubble, where time is virtual.
func runSynctest(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// A recorder is a slice that is safe for concurrent use.
type recorder[T any] struct {
	mu   sync.Mutex
	list []T
}

func (r *recorder[T]) add(v T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, v)
}

func (r *recorder[T]) all() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]T(nil), r.list...)
}

// take returns all, and forgets them.
func (r *recorder[T]) take() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.list
	r.list = nil
	return all
}

// collect returns the open connections.
func collect(r *router.Router) []*router.Conn {
	var conns []*router.Conn
	for c := range r.Conns() {
		conns = append(conns, c)
	}
	return conns
}

// newTestServer serves a router on loopback until the test ends.
func newTestServer(t *testing.T, r *router.Router) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	return server
}

// withoutRates is for tests with more messages and connections than the defaults permit one client.
func withoutRates(l router.Limits) router.Limits {
	unlimited := router.Rate{PerSecond: router.Unlimited}
	l.ConnsPerIP, l.HandshakesPerIP, l.MessagesPerConn, l.MessagesPerIP = router.Unlimited, unlimited, unlimited, unlimited
	return l
}

// rarelyReached is for benchmarks: rates that are checked like the default ones.
func rarelyReached() router.Limits {
	rate := router.Rate{PerSecond: 1_000_000_000, Burst: 1_000_000_000}
	return router.Limits{ConnsPerIP: router.Unlimited, HandshakesPerIP: rate, MessagesPerConn: rate, MessagesPerIP: rate}
}

// TestMain fails if a goroutine of this module outlives the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	if stacks := leaked(); code == 0 && stacks != "" {
		fmt.Fprintf(os.Stderr, "goroutines are still running:\n%s\n", stacks)
		code = 1
	}
	os.Exit(code)
}

// leaked returns the stacks of the goroutines that run code of this module and do not end within
// thirty seconds, which a busy machine may need.
func leaked() string {
	var ours []string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		ours = nil
		for i, stack := range strings.Split(string(buf), "\n\n") {
			if i > 0 && strings.Contains(stack, "penstock-go/penstock") {
				ours = append(ours, stack)
			}
		}
		if len(ours) == 0 {
			return ""
		}
	}
	return strings.Join(ours, "\n\n")
}

// byUser authenticates the user that is the token.
func byUser(r *http.Request) (router.Identity, error) {
	return router.Identity{UserID: router.Token(r)}, nil
}

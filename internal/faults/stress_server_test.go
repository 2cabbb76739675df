//go:build linux

package faults_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/testcert"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
)

// Event is handled in order. Call is answered concurrently, Serial in order. Each carries the
// number of its connection.
type (
	Event  struct{ numbered }
	Call   struct{ numbered }
	Serial struct{ numbered }
	Reply  struct{ numbered }

	SerialReply struct{ numbered }
)

type numbered struct {
	Conn int    `json:"conn"`
	Seq  int    `json:"seq"`
	Pad  string `json:"pad,omitempty"`
}

func (Event) MessageType() string  { return "EVENT" }
func (Call) MessageType() string   { return "CALL" }
func (Serial) MessageType() string { return "SERIAL" }
func (Reply) MessageType() string  { return "REPLY" }

func (SerialReply) MessageType() string { return "SERIAL_REPLY" }

// A record holds what the server has handled for one connection.
type record struct {
	number int
	conn   net.Conn // set before OnOpen

	mu      sync.Mutex
	ordered []int       // events and serial calls, in the order of handling
	calls   map[int]int // how often each concurrent call was handled
	wrong   error
}

func (r *record) handled(m numbered, inOrder bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.Conn != r.number {
		r.wrong = fmt.Errorf("connection %d got message %d of connection %d", r.number, m.Seq, m.Conn)
	}
	if inOrder {
		r.ordered = append(r.ordered, m.Seq)
	} else {
		r.calls[m.Seq]++
	}
}

// A server is a router that listens on TCP, on TLS and on a Unix socket.
type server struct {
	router  *router.Router
	servers []*httptest.Server
	records []*record

	opened, closed             atomic.Int64 // calls of OnOpen and OnClose
	eventsOpened, eventsClosed atomic.Int64
}

// patientTimeouts never expire, however busy the machine is.
var patientTimeouts = router.Timeouts{
	Call: 5 * time.Minute, Message: 5 * time.Minute, Ping: 5 * time.Minute, Pong: 5 * time.Minute,
}

const (
	overTCP = iota
	overTLS
	overUnix
	networks
)

// newServer returns a server for clients with numbers below n.
func newServer(t *testing.T, n int) *server {
	s := &server{records: make([]*record, n)}
	for i := range s.records {
		s.records[i] = &record{number: i, calls: map[int]int{}}
	}
	unlimited := router.Rate{PerSecond: router.Unlimited}
	s.router = router.New(&router.Options{
		Authenticate: s.authenticate,
		OnOpen:       s.onOpen,
		OnClose:      func(*router.Conn, router.CloseError) { s.closed.Add(1) },
		Limits: router.Limits{
			Concurrency: 1 << 20, QueueBytes: 4 << 20, QueueMessages: 1 << 20,
			HandshakesPerIP: unlimited, MessagesPerConn: unlimited, MessagesPerIP: unlimited, ConnsPerIP: router.Unlimited,
		},
		Timeouts:         patientTimeouts,
		CompressMinBytes: 512,
		Logger:           slog.New(slog.DiscardHandler),
	})
	s.router.Observe(func(e observe.Event) {
		switch e.Kind {
		case observe.Opened:
			s.eventsOpened.Add(1)
		case observe.Closed:
			s.eventsClosed.Add(1)
		}
	})
	router.On(s.router, func(ctx *router.Context, m Event) error {
		recordOf(ctx).handled(m.numbered, true)
		return nil
	})
	router.RPC(s.router, func(ctx *router.Context, m Call) (Reply, error) {
		recordOf(ctx).handled(m.numbered, false)
		return Reply(m), nil
	})
	router.RPC(s.router, func(ctx *router.Context, m Serial) (SerialReply, error) {
		recordOf(ctx).handled(m.numbered, true)
		return SerialReply(m), nil
	}).Serial()
	s.listen(t)
	return s
}

func recordOf(ctx *router.Context) *record { return ctx.Identity().Data.(*record) }

func (s *server) authenticate(r *http.Request) (router.Identity, error) {
	n, err := strconv.Atoi(r.URL.Query().Get("n"))
	if err != nil || n < 0 || n >= len(s.records) {
		return router.Identity{}, errors.Errorf(errors.Unauthenticated, "unknown number")
	}
	s.records[n].conn, _ = r.Context().Value(connKey{}).(net.Conn)
	return router.Identity{Data: s.records[n]}, nil
}

func (s *server) onOpen(_ context.Context, c *router.Conn) error {
	s.opened.Add(1)
	shareDescriptor(c.Identity().Data.(*record))
	return nil
}

func (s *server) listen(t *testing.T) {
	unix, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
	require.NoError(t, err)
	for network := range networks {
		h := httptest.NewUnstartedServer(s.router)
		h.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		h.Config.ConnContext = withConn
		switch network {
		case overTCP:
			h.Start()
		case overTLS:
			h.TLS = testcert.ServerConfig()
			h.StartTLS()
		case overUnix:
			_ = h.Listener.Close()
			h.Listener = unix
			h.Start()
		}
		s.servers = append(s.servers, h)
	}
}

func (s *server) close() {
	for _, h := range s.servers {
		h.Close()
	}
}

// connKey is the key of the connection in the context of its request.
type connKey struct{}

func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// shareDescriptor makes the descriptor of each fourth connection blocking, as a child process
// does that has inherited it: the flag belongs to the open file, not to the descriptor. It must
// not run before the handshake, because net/http depends on the flag.
func shareDescriptor(rec *record) {
	conn, ok := rec.conn.(syscall.Conn)
	if !ok || rec.number%4 != 0 {
		return
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		if inherited, err := syscall.Dup(int(fd)); err == nil {
			_ = syscall.SetNonblock(inherited, false)
			_ = syscall.Close(inherited)
		}
	})
}

package rawclient_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/simtest/rawclient"
	"github.com/penstock-go/penstock/router"
)

// violations collects what a client reports.
type violations struct {
	mu  sync.Mutex
	all []string
}

func (v *violations) report(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all = append(v.all, fmt.Sprintf(format, args...))
}

func (v *violations) list() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]string(nil), v.all...)
}

// dialer returns the Dial of a client whose connections the handler serves over pipes.
func dialer(handler func() http.Handler) func(context.Context) (net.Conn, error) {
	return func(context.Context) (net.Conn, error) {
		client, server := net.Pipe()
		go serve(server, handler())
		return client, nil
	}
}

// serve handles the one request of a connection, as an HTTP server does.
func serve(conn net.Conn, handler http.Handler) {
	r := bufio.NewReader(conn)
	req, err := http.ReadRequest(r)
	if err != nil {
		_ = conn.Close()
		return
	}
	req.RemoteAddr = "192.0.2.1:1234"
	w := &hijackable{ResponseRecorder: httptest.NewRecorder(), conn: conn, r: r}
	handler.ServeHTTP(w, req)
	if !w.hijacked {
		_ = w.Result().Write(conn)
		_ = conn.Close()
	}
}

type hijackable struct {
	*httptest.ResponseRecorder

	conn     net.Conn
	r        *bufio.Reader
	hijacked bool
}

func (w *hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.hijacked = true
	return w.conn, bufio.NewReadWriter(w.r, bufio.NewWriter(w.conn)), nil
}

// newRouter returns a router with sessions whose clients may subscribe to room/…, and to feed/…, which
// has a history.
func newRouter(t *testing.T, change func(*router.Options)) *router.Router {
	t.Helper()
	opts := &router.Options{
		Logger: slog.New(slog.DiscardHandler),
		Resume: router.ResumeOptions{Within: 120e9},
		Authenticate: func(r *http.Request) (router.Identity, error) {
			return router.Identity{TenantID: "t", UserID: router.Token(r)}, nil
		},
	}
	if change != nil {
		change(opts)
	}
	r := router.New(opts)
	allow := func(*router.Context, router.TopicMatch) error { return nil }
	router.Topic(r, "room/{name}", &router.TopicOptions{Authorize: allow, Presence: true})
	router.Topic(r, "feed/{name}", &router.TopicOptions{Authorize: allow, History: router.History{Messages: 10}})
	router.Topic(r, "private/{name}", &router.TopicOptions{History: router.History{Messages: 10}})
	handlers(r)
	t.Cleanup(func() { _ = r.Shutdown(context.Background()) })
	return r
}

// newClient returns a client of the user, whose violations fail the test.
func newClient(t *testing.T, r http.Handler, user string, change func(*rawclient.Config)) *rawclient.Client {
	t.Helper()
	var v violations
	cfg := rawclient.Config{
		Dial: dialer(func() http.Handler { return r }), Token: func() string { return user },
		Rand: rand.New(rand.NewPCG(1, 2)), Greet: true, Session: true, Report: v.report, //nolint:gosec // a test
	}
	if change != nil {
		change(&cfg)
	}
	c := rawclient.New(cfg)
	t.Cleanup(func() {
		c.Close(1000)
		require.Empty(t, v.list())
	})
	return c
}

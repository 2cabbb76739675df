package fallback_test

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/clientip"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
)

type (
	// number is an event with the next number of a page, whose handler publishes it as an echo.
	number struct {
		Page string `json:"page"`
		N    int    `json:"n"`
	}
	echo struct {
		N int `json:"n"`
	}
	// ask is a call with a number. Calls run concurrently, so that their order is not defined.
	ask struct {
		Page string `json:"page"`
		N    int    `json:"n"`
	}
	answer struct {
		N int `json:"n"`
	}
)

func (number) MessageType() string { return "NUMBER" }
func (echo) MessageType() string   { return "ECHO" }
func (ask) MessageType() string    { return "ASK" }
func (answer) MessageType() string { return "ANSWER" }

// A site is nodes that serve the page, WebSockets and the HTTP fallback, and what they have handled.
type site struct {
	nodes []string // URLs
	opts  router.Options
	files string

	resumed atomic.Int64 // sessions

	mu      sync.Mutex
	handled map[string]*handled // by page
}

// handled is what the nodes have handled for a page.
type handled struct {
	numbers    []int
	asked      map[int]int // how often each call was handled
	transports map[router.Transport]bool
	users      map[string]bool
}

// startSite starts nodes that share a broker, until the test ends, with the page.
func startSite(t *testing.T, nodes int, origins ...string) *site {
	t.Helper()
	return newSite(t, nodes, buildPage(t), origins...)
}

// newSite is startSite with the files in a directory.
func newSite(t *testing.T, nodes int, files string, origins ...string) *site {
	t.Helper()
	s := &site{
		opts: router.Options{
			Broker: memory.NewBroker(), Logger: slog.New(slog.DiscardHandler), Origins: origins, Authenticate: readCookie,
			Resume:         router.ResumeOptions{Within: time.Minute},
			TrustedProxies: clientip.TrustedProxies{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}},
		},
		files:   files,
		handled: map[string]*handled{},
	}
	for range nodes {
		s.start(t)
	}
	return s
}

// readCookie accepts all clients, whether they have a cookie or not.
func readCookie(req *http.Request) (router.Identity, error) {
	cookie, err := req.Cookie("user")
	if err != nil {
		return router.Identity{}, nil //nolint:nilerr // a client without a cookie has no user
	}
	return router.Identity{UserID: cookie.Value}, nil
}

func (s *site) start(t *testing.T) {
	opts := s.opts
	r := router.New(&opts)
	r.Observe(func(e observe.Event) {
		if e.Kind == observe.SessionResumed && e.Code == "" {
			s.resumed.Add(1)
		}
	})
	router.Topic(r, "page/{id}", &router.TopicOptions{
		Authorize: func(*router.Context, router.TopicMatch) error { return nil },
		History:   router.History{Messages: 100_000},
	})
	router.On(r, func(ctx *router.Context, m number) error {
		s.handle(ctx.Conn(), m.Page, func(h *handled) { h.numbers = append(h.numbers, m.N) })
		return r.Publish("page/"+m.Page, echo{m.N}, router.Stored(ctx, nil))
	})
	router.RPC(r, func(ctx *router.Context, m ask) (answer, error) {
		s.handle(ctx.Conn(), m.Page, func(h *handled) { h.asked[m.N]++ })
		return answer{m.N}, nil
	})
	mux := http.NewServeMux()
	mux.Handle("GET /ws", r)
	mux.Handle("/ws/http", r.HTTPFallback(nil))
	mux.Handle("/", http.FileServer(http.Dir(s.files)))
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		_ = r.Shutdown(context.Background())
		server.CloseClientConnections()
		server.Close()
	})
	s.nodes = append(s.nodes, server.URL)
}

// handle counts a message of a page.
func (s *site) handle(conn *router.Conn, page string, count func(*handled)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.handled[page]
	if h == nil {
		h = &handled{asked: map[int]int{}, transports: map[router.Transport]bool{}, users: map[string]bool{}}
		s.handled[page] = h
	}
	h.transports[conn.Transport()] = true
	h.users[conn.Identity().UserID] = true
	count(h)
}

// of returns a copy of what was handled for a page.
func (s *site) of(page string) handled {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.handled[page]
	if h == nil {
		return handled{}
	}
	return handled{slices.Clone(h.numbers), maps.Clone(h.asked), maps.Clone(h.transports), maps.Clone(h.users)}
}

// by returns the transports by which the numbers of a page have come.
func (s *site) by(page string) []router.Transport {
	return slices.Sorted(maps.Keys(s.of(page).transports))
}

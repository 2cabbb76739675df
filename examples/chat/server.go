package main

import (
	"context"
	"embed"
	"io/fs"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/metrics"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

//go:embed page
var files embed.FS

// A server is the chat: the page, the socket, the health check and the metrics.
type server struct {
	http.Handler

	router   *router.Router
	metrics  http.Handler
	draining atomic.Bool
}

func newServer(cfg config) *server {
	rooms := newRooms()
	opts := router.Options{
		Authenticate:    authenticate,
		OnPresence:        rooms.onMember,
		LimitAction:      cfg.reaction,
		OnLimitExceeded: onLimitExceeded(cfg.reaction),
		Limits:          cfg.limits,
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m := metrics.New(reg, nil)
	if cfg.redis != nil { // many nodes, one chat
		opts.Broker = redis.NewBroker(cfg.redis)
	}
	r := router.New(&opts)
	rooms.router = r
	m.Router(r)

	if cfg.try != nil {
		r.UseIngress(rateLimit(cfg, *cfg.try, m, true))
	}
	r.UseIngress(rateLimit(cfg, cfg.policy, m, false))
	router.RPC(r, rooms.join).Serial() // what follows it may be said in the room
	router.On(r, rooms.leave)
	router.On(r, rooms.say)
	router.RPC(r, rooms.who)
	router.RPC(r, rooms.search)

	s := &server{router: r, metrics: promhttp.HandlerFor(reg, promhttp.HandlerOpts{})}
	mux := http.NewServeMux()
	if cfg.metrics == cfg.addr {
		mux.Handle("GET /metrics", s.metrics)
	}
	mux.Handle("GET /ws", r)
	mux.HandleFunc("GET /healthz", s.health)
	mux.Handle("GET /", page())
	s.Handler = mux
	return s
}

// rateLimit enforces a policy on this node, or with Redis on all nodes. A dry run only reports to
// the metrics.
func rateLimit(cfg config, policy limit.Policy, m *metrics.Metrics, dryRun bool) router.IngressFunc {
	local := memory.NewLimiter(policy)
	m.Limiter(policy.Name, local)
	opts := ratelimit.Options{Name: policy.Name, Key: cfg.key, Cost: cost, Observe: m.Limit, DryRun: dryRun}
	if cfg.redis == nil {
		return ratelimit.New(local, &opts)
	}
	opts.Fallback = local // what a node can do on its own
	return ratelimit.New(redis.NewLimiter(cfg.redis, policy), &opts)
}

// cost makes a search as dear as five other messages.
func cost(in router.IngressContext) int64 {
	if in.Type == (SearchHistory{}).MessageType() {
		return 5
	}
	return 1
}

// onLimitExceeded is what -on-exceeded=custom does in place of an error.
func onLimitExceeded(reaction router.LimitAction) func(router.LimitExceeded) {
	if reaction != router.ActionCustom {
		return nil
	}
	return func(l router.LimitExceeded) {
		if l.Conn == nil || l.RetryAfter == errors.Never {
			return
		}
		_ = l.Conn.Send(SlowDown{l.Type, int64((l.RetryAfter + time.Millisecond - 1) / time.Millisecond)}) // it may have gone
	}
}

func (s *server) health(w http.ResponseWriter, _ *http.Request) {
	if s.draining.Load() {
		http.Error(w, "draining", http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// drain fails the health check, so that no new client is sent here, and ends
// every connection.
func (s *server) drain(ctx context.Context) error {
	s.draining.Store(true)
	return s.router.Shutdown(ctx)
}

func page() http.Handler {
	root, err := fs.Sub(files, "page")
	if err != nil {
		panic(err) // the folder is in the binary
	}
	serve := http.FileServerFS(root)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'; connect-src 'self' ws: wss:; frame-ancestors 'none'")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-cache")
		serve.ServeHTTP(w, r)
	})
}

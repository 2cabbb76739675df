package chat

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/examples/chat/page"
	"github.com/penstock-go/penstock/middleware/metrics"
	"github.com/penstock-go/penstock/router"
)

// A server serves the page, the WebSocket endpoint, the health check and, if configured, the metrics.
type server struct {
	http.Handler

	router  *router.Router
	limits  *limits
	metrics http.Handler
}

func newServer(cfg config) *server {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m := metrics.New(reg, nil)
	s := &server{limits: newLimits(cfg, m), metrics: promhttp.HandlerFor(reg, promhttp.HandlerOpts{})}
	s.router = newRouter(cfg, s.limits, m)
	s.Handler = s.routes(cfg)
	return s
}

// newRouter returns the WebSocket endpoint: its options, rate limits and message handlers.
func newRouter(cfg config, l *limits, m *metrics.Metrics) *router.Router {
	rooms := newRooms()
	r := router.New(&router.Options{
		Broker:             cfg.broker,
		Authenticate:       authenticate,
		RefuseAfterUpgrade: true, // the page shows the reason
		OnRefused:          logRefusal,
		OnPresence:         rooms.onPresence,
		AnnounceLimits:     l.announce, // the page sends as fast as the limit allows
		LimitAction:        cfg.limitAction,
		OnLimitExceeded:    onLimitExceeded(cfg.limitAction),
		Limits:             cfg.limits,
		Timeouts:           router.Timeouts{LameDuck: cfg.lameDuck},
	})
	rooms.router = r
	m.Router(r)

	if cfg.recorder != nil {
		r.UseIngress(cfg.recorder.Record) // before the limits, to record what they refuse
	}
	for _, admit := range l.ingress {
		r.UseIngress(admit)
	}
	router.Topic(r, roomPattern, &router.TopicOptions{
		History:    router.History{Messages: maxHistory, Age: 24 * time.Hour, Bytes: 256 << 10},
		MaxPerConn: maxRoomsPerConn,
		Messages:   []router.Message{Said{}, UserJoined{}, UserLeft{}},
	})
	router.DeclareMessage[SlowDown](r)
	router.RPC(r, rooms.join).Timeout(storeTimeout).Serial() // a SAY that follows JOIN_ROOM waits until the client has joined
	router.On(r, rooms.leave)
	router.RPC(r, rooms.say).Serial() // messages are stored in the order in which they were sent
	router.RPC(r, rooms.who)
	router.RPC(r, rooms.search).Timeout(storeTimeout)
	return r
}

// logRefusal logs who was refused, what was refused, and why.
func logRefusal(r router.Refusal) {
	slog.Info("client refused", "tenant", r.Identity.TenantID, "user", r.Identity.UserID, "ip", r.IP,
		"type", r.Type, "code", r.Code, "reason", r.Reason, "err", r.Err, "unreported", r.Unreported)
}

func (s *server) routes(cfg config) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /ws", s.router)
	mux.HandleFunc("GET /healthz", s.router.ServeHealth)
	mux.Handle("GET /", pageHandler())
	if cfg.metricsAddr == cfg.addr {
		mux.Handle("GET /metrics", s.metrics)
	}
	return mux
}

// searchCost is as much as five other messages: a search reads the whole history.
const searchCost = 5

func cost(in router.IngressContext) int64 {
	if in.Type == (SearchHistory{}).MessageType() {
		return searchCost
	}
	return 1
}

// onLimitExceeded returns the hook for -on-exceeded=custom, which sends SlowDown in place of an
// error. For the other actions it returns nil.
func onLimitExceeded(action router.LimitAction) func(router.LimitExceeded) {
	if action != router.ActionCustom {
		return nil
	}
	return func(l router.LimitExceeded) {
		if l.DryRun || l.Conn == nil || l.RetryAfter == errors.Never {
			return
		}
		retryAfterMs := int64((l.RetryAfter + time.Millisecond - 1) / time.Millisecond) // rounded up: an earlier retry would be refused
		_ = l.Conn.Send(SlowDown{l.Type, retryAfterMs})                                 // fails only if the connection is closed
	}
}

func pageHandler() http.Handler {
	fileServer := http.FileServerFS(page.Files)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'; connect-src 'self' ws: wss:; frame-ancestors 'none'")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-cache")
		fileServer.ServeHTTP(w, r)
	})
}

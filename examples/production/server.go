package main

import (
	"context"
	_ "embed"
	"net/http"
	"net/netip"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/clientip"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limitfile"
	"github.com/penstock-go/penstock/middleware/metrics"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/tracing"
)

//go:embed index.html
var page []byte

const limitName = "additions" // also in the file of limits

// A server is the router and the handlers of both ports.
type server struct {
	router  *router.Router
	public  http.Handler
	private http.Handler // metrics, and the inspector
}

// newServer follows the file of limits until ctx ends.
func newServer(ctx context.Context, cfg config, tracer tracing.Tracer) (*server, error) {
	redisOptions, err := goredis.ParseURL(cfg.redis)
	if err != nil {
		return nil, err
	}
	client := redis.WithNamespace(goredis.NewClient(redisOptions), "counter")
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m := metrics.New(reg, nil)

	additions := redis.NewLimiter(client, limit.PerSecond(5).Named(limitName))
	limits, err := limitfile.Load(cfg.limits, nil, additions)
	if err != nil {
		return nil, err
	}
	m.LimitsFile(limits)
	go limits.Run(ctx)

	node, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	c := counter{redis: client, node: node}
	r := router.New(&router.Options{
		Broker:         redis.NewBroker(client),
		TrustedProxies: clientip.TrustedProxies{Networks: []netip.Prefix{cfg.proxies}},
		OnOpen:         c.open,
		Tracer:         tracer,
		Timeouts:       router.Timeouts{LameDuck: lameDuck},
	})
	m.Router(r)
	private := http.NewServeMux()
	private.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	if password := os.Getenv("INSPECTOR_PASSWORD"); password != "" {
		private.Handle("/inspect/", newInspector(r, additions, password)) // before the limits, so that traces have what these refuse
	}
	r.UseIngress(ratelimit.New(additions, &ratelimit.Options{Name: limitName, Key: ratelimit.KeyPerIP, Observe: m.Limit}))
	router.On(r, c.add)
	router.DeclareMessage[Count](r)
	return &server{router: r, public: routes(r), private: private}, nil
}

func routes(r *router.Router) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /ws", r)
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", r.ServeHealth)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page)
	})
	return mux
}

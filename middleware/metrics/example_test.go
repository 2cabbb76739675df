package metrics_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/metrics"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

func Example() {
	registry := prometheus.NewRegistry()
	m := metrics.New(registry, nil)

	limiter := memory.NewLimiter(limit.PerSecond(10).Burst(20))
	m.Limiter("chat", limiter) // the number of its keys
	r := router.New(nil)
	m.Router(r)
	r.UseIngress(ratelimit.New(limiter, &ratelimit.Options{Name: "chat", Observe: m.Limit}))

	mux := http.NewServeMux()
	mux.Handle("/ws", r)
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	// Scrape the metrics as Prometheus does.
	page := httptest.NewRecorder()
	mux.ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if strings.Contains(line, "penstock_connections_open") || strings.Contains(line, "penstock_limiter_keys") {
			fmt.Print(line)
		}
	}
	// Output:
	// # HELP penstock_connections_open Open connections.
	// # TYPE penstock_connections_open gauge
	// penstock_connections_open 0
	// # HELP penstock_limiter_keys Keys that a limiter stores in this process.
	// # TYPE penstock_limiter_keys gauge
	// penstock_limiter_keys{limit="chat"} 0
}

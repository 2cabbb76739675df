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

func ExampleNew() {
	reg := prometheus.NewRegistry()
	m := metrics.New(reg, nil)
	limiter := memory.NewLimiter(limit.PerSecond(10).Burst(20))
	r := router.New(nil)
	m.Router(r)
	m.Limiter("chat", limiter)
	r.UseIngress(ratelimit.New(limiter, &ratelimit.Options{Name: "chat", Observe: m.Limit}))

	page := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		if strings.HasPrefix(line, "penstock_limiter_keys") || strings.HasPrefix(line, "penstock_connections_open") {
			fmt.Print(line)
		}
	}
	// Output:
	// penstock_connections_open 0
	// penstock_limiter_keys{limit="chat"} 0
}

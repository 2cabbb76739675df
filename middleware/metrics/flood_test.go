package metrics_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/metrics"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestMetrics_ClientsCannotCreateSeries varies every value that clients choose. The first flood
// creates all series that exist; a second one with new values must not add any.
func TestMetrics_ClientsCannotCreateSeries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		m := metrics.New(reg, nil)
		limiter := memory.NewLimiter(limit.PerSecond(3))
		r := router.New(&router.Options{
			Authenticate: func(req *http.Request) (router.Identity, error) {
				return router.Identity{TenantID: router.Token(req), UserID: router.Token(req)}, nil
			},
		})
		m.Router(r)
		m.Limiter("chat", limiter)
		r.UseIngress(ratelimit.New(limiter, &ratelimit.Options{Name: "chat", Observe: m.Limit}))
		router.RPC(r, echo)
		router.On(r, say)
		router.On(r, func(_ *router.Context, m Fail) error { // like an application that copies client input into codes
			return errors.Errorf(errors.Code(fmt.Sprint("CODE", rand.Int())), "no")
		})
		flood := func(from, to int) int {
			for n := from; n < to; n++ {
				conn := routertest.Dial(t, r, routertest.Token(fmt.Sprint("user", n)), routertest.RemoteAddr(fmt.Sprintf("10.0.%d.%d:1", n/256, n%256)))
				conn.SendText(fmt.Sprintf(`{"type":"TYPE%d","meta":{"correlationId":"c%d"},"payload":{"n":%d}}`, n, n, n))
				conn.SendText(`{"type":"FAIL"}`)
				conn.SendText(fmt.Sprintf(`{"type":"ECHO","meta":{"correlationId":"c%d"},"payload":{"n":%d}}`, n, n))
				conn.SendText(fmt.Sprintf(`{"type":"SAY","payload":{"text":"%d"}}`, n))
				synctest.Wait()
				conn.CloseWith(closeCode(n), fmt.Sprint("reason", n))
				synctest.Wait()
			}
			count, err := testutil.GatherAndCount(reg)
			require.NoError(t, err)
			return count
		}
		first := flood(0, 70)
		require.Equal(t, first, flood(70, 210), "new values of clients create no series")
		for name := range scrape(t, reg) {
			for _, chosen := range []string{"TYPE", "CODE", "user", "reason", "10.0."} {
				assert.NotContains(t, name, "="+chosen)
			}
		}
		check(t, reg, "messages_total{code=other,type=FAIL} 210", "connections_open 0")
		problems, err := testutil.GatherAndLint(reg)
		require.NoError(t, err)
		assert.Empty(t, problems)
	})
}

// closeCode returns the nth code that a client may send. All are different up to 2000.
func closeCode(n int) router.StatusCode {
	standard := []router.StatusCode{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014}
	if n < len(standard) {
		return standard[n]
	}
	return router.StatusCode(3000 + 37*n%2000)
}

func TestNew_ApplicationCodesGetLabelValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		r := router.New(nil)
		metrics.New(reg, &metrics.Options{Codes: []errors.Code{"TEAPOT"}}).Router(r)
		router.On(r, fail)
		routertest.Dial(t, r).Send(Fail{})
		synctest.Wait()
		check(t, reg, "messages_total{code=TEAPOT,type=FAIL} 1")
	})
}

func TestRouter_SeveralRoutersShareMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reg := newMetrics()
		for range 2 {
			r := router.New(nil)
			m.Router(r)
			routertest.Dial(t, r)
		}
		check(t, reg, "connections_accepted_total{transport=websocket} 2", "connections_open 2")

		assert.PanicsWithValue(t, "metrics: duplicate metrics collector registration attempted; several routers can share one Metrics, "+
			"or each have one with a registerer from prometheus.WrapRegistererWith", func() { metrics.New(reg, nil) })
		separate := router.New(nil)
		shared := prometheus.NewPedanticRegistry()
		metrics.New(prometheus.WrapRegistererWith(prometheus.Labels{"router": "a"}, shared), nil).Router(separate)
		metrics.New(prometheus.WrapRegistererWith(prometheus.Labels{"router": "b"}, shared), nil).Router(router.New(nil))
		routertest.Dial(t, separate)
		check(t, shared, "connections_accepted_total{router=a,transport=websocket} 1", "connections_accepted_total{router=b,transport=websocket} 0")
	})
}

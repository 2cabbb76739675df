package outbound_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/httplimit"
	"github.com/penstock-go/penstock/outbound"
)

// A policyAPI counts requests in fixed windows of several policies and reports them in RateLimit
// fields. It takes a while to answer.
type policyAPI struct {
	policies []*fixedWindow

	mu       sync.Mutex
	served   []time.Time
	rejected int
}

type fixedWindow struct {
	name  string
	quota int
	per   time.Duration
	start time.Time
	used  int
}

func (a *policyAPI) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(5 * time.Millisecond)
	defer time.Sleep(5 * time.Millisecond) // after the mutex is released
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	code := http.StatusOK
	var announced, state []string
	for _, w := range a.policies {
		if now.Sub(w.start) >= w.per {
			w.start, w.used = now, 0
		}
		if w.used++; w.used > w.quota {
			code = http.StatusTooManyRequests
		}
		reset := (w.per - now.Sub(w.start) + time.Second - 1) / time.Second
		announced = append(announced, fmt.Sprintf("%q;q=%d;w=%d", w.name, w.quota, w.per/time.Second))
		state = append(state, fmt.Sprintf("%q;r=%d;t=%d", w.name, max(w.quota-w.used, 0), reset))
	}
	if code == http.StatusOK {
		a.served = append(a.served, now)
	} else {
		a.rejected++
	}
	return respond(code, "RateLimit-Policy: "+strings.Join(announced, ", "), "RateLimit: "+strings.Join(state, ", "))
}

// TestTransport_ObeysEveryPolicy sends forty requests to an API that permits five a second and
// twelve an hour.
func TestTransport_ObeysEveryPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &policyAPI{policies: []*fixedWindow{
			{name: "hour", quota: 12, per: time.Hour},
			{name: "second", quota: 5, per: time.Second},
		}}
		tr := outbound.NewTransport(outbound.NewMemoryBudget(&outbound.BudgetOptions{GlobalLimit: 12}), &outbound.Options{Base: api})
		start := time.Now()
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() { assert.Equal(t, 200, request(t.Context(), tr)) })
		}
		wg.Wait()
		assert.Zero(t, api.rejected)
		require.Len(t, api.served, 40)
		assert.Less(t, api.served[11].Sub(start), 10*time.Second, "the window of the hour must not delay the first twelve")
		assert.Less(t, api.served[39].Sub(start), 3*time.Hour+time.Minute)
	})
}

// TestTransport_RoutesShareABucket sends to two routes, whose requests to one channel count
// together, and to another channel.
func TestTransport_RoutesShareABucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		channels := map[string]*fixedWindow{}
		rejected := 0
		api := roundTripFunc(func(req *http.Request) (*http.Response, error) {
			time.Sleep(5 * time.Millisecond)
			defer time.Sleep(5 * time.Millisecond) // after the mutex is released
			mu.Lock()
			defer mu.Unlock()
			channel := strings.Split(req.URL.Path, "/")[2]
			w := channels[channel]
			if w == nil || time.Since(w.start) >= 10*time.Second {
				w = &fixedWindow{start: time.Now()}
				channels[channel] = w
			}
			code := http.StatusOK
			if w.used++; w.used > 5 {
				code = http.StatusTooManyRequests
				rejected++
			}
			return respond(code, "X-RateLimit-Bucket: abcd1234", "X-RateLimit-Limit: 5",
				fmt.Sprint("X-RateLimit-Remaining: ", max(5-w.used, 0)),
				fmt.Sprint("X-RateLimit-Reset-After: ", (10*time.Second-time.Since(w.start)).Seconds()))
		})
		tr := outbound.NewTransport(outbound.NewMemoryBudget(nil), &outbound.Options{Base: api})
		send := func(method, path string) {
			req, err := http.NewRequestWithContext(t.Context(), method, "http://api.test"+path, http.NoBody)
			require.NoError(t, err)
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			assert.Equal(t, 200, resp.StatusCode)
		}
		for _, method := range []string{"GET", "POST", "PATCH"} {
			send(method, "/channels/41/messages")
		}
		start := time.Now()
		send("GET", "/channels/42/messages") // has its own limit
		assert.Less(t, time.Since(start), time.Second)
		var wg sync.WaitGroup
		for range 10 {
			for _, method := range []string{"GET", "POST", "PATCH"} {
				wg.Go(func() { send(method, "/channels/41/messages") })
			}
		}
		wg.Wait()
		assert.Zero(t, rejected)
		assert.Less(t, time.Since(start), 80*time.Second)
	})
}

// TestTransport_CooperatesWithHTTPLimit sends from many goroutines to a server that limits its
// clients with package httplimit.
func TestTransport_CooperatesWithHTTPLimit(t *testing.T) {
	var served, rejected atomic.Int64
	limiter := memory.NewLimiter(limit.PerSecond(80).Burst(40))
	limited := httplimit.New(limiter, nil)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	server := httptest.NewServer(limited)
	defer server.Close()
	tr := outbound.NewTransport(outbound.NewMemoryBudget(nil), &outbound.Options{
		OnRateLimited: func(string, outbound.Status) { rejected.Add(1) },
	})
	client := &http.Client{Transport: tr}
	defer client.CloseIdleConnections()
	requests := testscale.Pick(70, 150)
	var wg sync.WaitGroup
	for range requests {
		wg.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
			if !assert.NoError(t, err) {
				return
			}
			resp, err := client.Do(req)
			if !assert.NoError(t, err) {
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			assert.Equal(t, http.StatusOK, resp.StatusCode)
		})
	}
	wg.Wait()
	assert.EqualValues(t, requests, served.Load())
	assert.Zero(t, rejected.Load(), "no request after the first response may be rejected")
}

// TestHTTPLimit_FieldsAreStructured parses the fields of package httplimit as RFC 9651 defines them.
func TestHTTPLimit_FieldsAreStructured(t *testing.T) {
	for name, limiter := range map[string]limit.Limiter{
		"a policy":         memory.NewLimiter(limit.PerSecond(10).Named("second")),
		"an unusual name":  memory.NewLimiter(limit.PerSecond(10).Named(`tages"budget ü`)),
		"several policies": limit.AllOf(memory.NewLimiter(limit.PerSecond(10)), memory.NewLimiter(limit.PerHour(100).Named("hour"))),
	} {
		t.Run(name, func(t *testing.T) {
			resp := httptest.NewRecorder()
			httplimit.New(limiter, nil)(http.NotFoundHandler()).ServeHTTP(resp, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
			for _, field := range []string{"RateLimit-Policy", "RateLimit"} {
				list, err := httpsfv.UnmarshalList(resp.Header().Values(field))
				assert.NoError(t, err, field)
				assert.NotEmpty(t, list, field)
			}
		})
	}
}

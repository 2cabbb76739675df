package redisbudget_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/outbound"
)

type apiOptions struct {
	limit     int // per path and window; a window begins when its first request arrives
	per       time.Duration
	global    int // of all paths together in any globalPer; 0 if there is none
	globalPer time.Duration
	latency   time.Duration // maximum per direction; one in twenty takes up to ten times as long
}

// A fakeAPI is a server that has limits like Discord's and counts violations.
type fakeAPI struct {
	*httptest.Server

	options apiOptions
	hung    chan struct{} // receives a value for each request to /hang, which gets no response

	mu       sync.Mutex
	routes   map[string]*apiWindow
	recent   []time.Time // arrivals in the last globalPer
	served   int
	rejected int
	violated []string // names of the exceeded limits
}

type apiWindow struct {
	start time.Time
	used  int
}

func newAPI(t *testing.T, options apiOptions) *fakeAPI {
	a := &fakeAPI{options: options, routes: map[string]*apiWindow{}, hung: make(chan struct{}, 100)}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

func (a *fakeAPI) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/hang" && req.Header.Get("Answer") == "" {
		a.hung <- struct{}{}
		<-req.Context().Done()
		return
	}
	a.delay()
	code := a.accept(req.URL.Path, w.Header())
	a.delay()
	w.WriteHeader(code)
}

func (a *fakeAPI) delay() {
	switch {
	case a.options.latency == 0:
	case rand.IntN(20) == 0:
		time.Sleep(rand.N(10 * a.options.latency))
	default:
		time.Sleep(rand.N(a.options.latency))
	}
}

func (a *fakeAPI) accept(path string, h http.Header) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if a.exceedsGlobal(now) {
		h.Set("X-RateLimit-Global", "true")
		return a.reject(h, a.options.globalPer, "global")
	}
	r := a.routes[path]
	if r == nil || now.Sub(r.start) >= a.options.per {
		r = &apiWindow{start: now}
		a.routes[path] = r
	}
	left := a.options.per - now.Sub(r.start)
	h.Set("X-RateLimit-Limit", strconv.Itoa(a.options.limit))
	h.Set("X-RateLimit-Reset-After", fmt.Sprintf("%.3f", (left+time.Millisecond).Seconds()))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(max(a.options.limit-r.used-1, 0)))
	if r.used == a.options.limit {
		return a.reject(h, left, path)
	}
	r.used++
	a.served++
	return http.StatusOK
}

func (a *fakeAPI) exceedsGlobal(now time.Time) bool {
	if a.options.global == 0 {
		return false
	}
	for len(a.recent) > 0 && now.Sub(a.recent[0]) >= a.options.globalPer {
		a.recent = a.recent[1:]
	}
	if len(a.recent) == a.options.global {
		return true
	}
	a.recent = append(a.recent, now)
	return false
}

func (a *fakeAPI) reject(h http.Header, left time.Duration, name string) int {
	a.rejected++
	a.violated = append(a.violated, name)
	h.Set("Retry-After", strconv.Itoa(int(left/time.Second)+1))
	return http.StatusTooManyRequests
}

func (a *fakeAPI) check(t *testing.T, served int) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	assert.GreaterOrEqual(t, a.served, served)
	assert.Zero(t, a.rejected, "%v", a.violated)
}

// send sends requests to one path from concurrent workers.
func (a *fakeAPI) send(t *testing.T, budget outbound.Budget, requests, workers int) {
	t.Helper()
	n := node{URL: a.URL, Requests: requests, Workers: workers, Paths: 1}
	require.Equal(t, requests, n.run(t.Context(), budget))
}

// A countingBudget counts the calls of TryAcquire.
type countingBudget struct {
	outbound.Budget

	attempts atomic.Int64
}

func (c *countingBudget) TryAcquire(ctx context.Context, route string) (outbound.Grant, error) {
	c.attempts.Add(1)
	return c.Budget.TryAcquire(ctx, route)
}

// A node is a process that sends requests.
type node struct {
	Redis, URL string
	Options    outbound.BudgetOptions
	Requests   int
	Workers    int
	Paths      int
	Hang       bool // send one request to /hang
}

// run returns how many requests got status 200.
func (n *node) run(ctx context.Context, budget outbound.Budget) int {
	base := &http.Transport{MaxIdleConnsPerHost: n.Workers, MaxIdleConns: n.Workers}
	defer base.CloseIdleConnections()
	client := &http.Client{Transport: outbound.NewTransport(budget, &outbound.Options{Base: base})}
	var left, answered atomic.Int64
	left.Store(int64(n.Requests))
	var wg sync.WaitGroup
	for worker := range n.Workers {
		wg.Go(func() {
			number := worker % n.Paths
			path := fmt.Sprint("/", number)
			if n.Hang {
				path = "/hang"
			}
			for sent := 1; left.Add(-1) >= 0; sent++ {
				if get(ctx, client, n.URL+path) == http.StatusOK {
					answered.Add(1)
				}
				// Some paths get more requests than their limits allow, others get bursts. Requests
				// in flight at the end of a window matter only if the next window becomes full.
				if sent%5 == 0 {
					time.Sleep(time.Duration(number%5) * rand.N(800*time.Millisecond))
				}
			}
		})
	}
	wg.Wait()
	return int(answered.Load())
}

// get returns the status code, or 0 after an error.
func get(ctx context.Context, client *http.Client, url string) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func headersOf(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

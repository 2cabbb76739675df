package outbound_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/outbound"
)

// A fakeAPI is a model of a server and of the network to it. It accepts limit requests in a
// window, which begins when the first request arrives. Each direction has its own latency.
type fakeAPI struct {
	limit   int
	per     time.Duration
	latency func() time.Duration // of one direction

	mu          sync.Mutex
	windowStart time.Time
	used        int
	arrived     int
	rejected    int
}

func (a *fakeAPI) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := sleep(req.Context(), a.latency()); err != nil {
		return nil, err // the request does not reach the API
	}
	resp := a.serve()
	return resp, sleep(req.Context(), a.latency())
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *fakeAPI) serve() *http.Response {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if now.Sub(a.windowStart) >= a.per {
		a.windowStart, a.used = now, 0
	}
	a.arrived++
	h := http.Header{}
	left := a.per - now.Sub(a.windowStart)
	h.Set("X-RateLimit-Limit", strconv.Itoa(a.limit))
	h.Set("X-RateLimit-Reset-After", fmt.Sprintf("%.9f", left.Seconds()))
	if a.used == a.limit {
		a.rejected++
		h.Set("X-RateLimit-Remaining", "0")
		h.Set("Retry-After", strconv.Itoa(int(left/time.Second)+1))
		return &http.Response{StatusCode: http.StatusTooManyRequests, Header: h, Body: http.NoBody}
	}
	a.used++
	h.Set("X-RateLimit-Remaining", strconv.Itoa(a.limit-a.used))
	return &http.Response{StatusCode: http.StatusOK, Header: h, Body: http.NoBody}
}

// TestTransport_NeverExceedsALimitWhateverTheLatency runs random APIs, loads and networks in virtual time.
// Some callers give up while their requests are in flight.
func TestTransport_NeverExceedsALimitWhateverTheLatency(t *testing.T) {
	for seed := range testscale.Tiers[uint64](30, 100, 300) {
		synctest.Test(t, func(t *testing.T) {
			const callers = 300
			random := rand.New(rand.NewPCG(seed, 0))
			server := randomAPI(random)
			transport := outbound.NewTransport(outbound.NewMemoryBudget(nil), &outbound.Options{Base: server})
			windows := 1 + int64(2*callers/server.limit)
			var wg sync.WaitGroup
			for range callers {
				start, timeout := time.Duration(random.Int64N(windows*int64(server.per))), time.Hour
				if random.IntN(10) == 0 {
					timeout = time.Duration(random.Int64N(int64(server.per)))
				}
				wg.Go(func() {
					time.Sleep(start)
					ctx, cancel := context.WithTimeout(t.Context(), timeout)
					defer cancel()
					request(ctx, transport)
				})
			}
			wg.Wait()
			assert.Zero(t, server.rejected, "seed %d: %d requests to an API that accepts %d per %v", seed, server.arrived, server.limit, server.per)
		})
	}
}

// randomAPI returns an API that is fast most of the time and always answers within the lease.
func randomAPI(random *rand.Rand) *fakeAPI {
	per := time.Duration(1+random.Int64N(1000)) * time.Millisecond
	fast := 1 + random.Int64N(int64(per)/2)
	slow := 1 + random.Int64N(int64(2*per))
	slowEvery := 2 + random.IntN(20)
	limit := 1 + random.IntN(20)
	var mu sync.Mutex
	random = rand.New(rand.NewPCG(random.Uint64(), 0))
	return &fakeAPI{
		limit: limit,
		per:   per,
		latency: func() time.Duration {
			mu.Lock()
			defer mu.Unlock()
			if random.IntN(slowEvery) == 0 {
				return time.Duration(random.Int64N(slow))
			}
			return time.Duration(random.Int64N(fast))
		},
	}
}

// request returns the status code, or 0 after an error.
func request(ctx context.Context, transport http.RoundTripper) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/users", http.NoBody)
	if err != nil {
		panic(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// A countingBudget counts the calls of TryAcquire.
type countingBudget struct {
	outbound.Budget

	attempts atomic.Int64
}

func (b *countingBudget) TryAcquire(ctx context.Context, route string) (outbound.Grant, error) {
	b.attempts.Add(1)
	return b.Budget.TryAcquire(ctx, route)
}

// TestTransport_WaitersDoNotStampede counts how often callers ask a budget, which may be a round trip: each request
// needs one attempt, and the first waiter asks while a response may arrive, and once per window.
func TestTransport_WaitersDoNotStampede(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const requests = 60
		budget := &countingBudget{Budget: outbound.NewMemoryBudget(nil)}
		api := &fakeAPI{limit: 5, per: 200 * time.Millisecond, latency: func() time.Duration { return time.Millisecond }}
		transport := outbound.NewTransport(budget, &outbound.Options{Base: api, MaxRetries: -1})
		var wg sync.WaitGroup
		for range requests {
			wg.Go(func() { assert.Equal(t, http.StatusOK, request(t.Context(), transport)) })
		}
		wg.Wait()
		assert.Less(t, budget.attempts.Load(), int64(3*requests))
	})
}

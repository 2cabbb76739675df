package durableobject_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/durableobject"
	"github.com/penstock-go/penstock/adapters/durableobject/internal/workerdtest"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limittest"
)

func user(name string) limit.Key { return limit.Key{"user", "acme", name, "SAY"} }

func newClient(s *workerdtest.Server) *durableobject.Client {
	return durableobject.NewClient(s.URL, s.Secret, nil)
}

func consume(t testing.TB, l limit.Limiter, key limit.Key, cost int64) limit.Decision {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	d, err := limit.Consume(ctx, l, key, cost)
	require.NoError(t, err)
	return d
}

// newCountingClient returns a client and the number of its requests.
func newCountingClient(s *workerdtest.Server) (*durableobject.Client, *atomic.Int64) {
	var requests atomic.Int64
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		requests.Add(1)
		return http.DefaultTransport.RoundTrip(r)
	})
	return durableobject.NewClient(s.URL, s.Secret, &durableobject.Options{HTTPClient: &http.Client{Transport: transport}}), &requests
}

// TestLimiter_IntervalBound has a capacity that is smaller by a millisecond's refill, which an
// object may grant early.
func TestLimiter_IntervalBound(t *testing.T) {
	s := startServer(t)
	p := limittest.IntervalBoundPolicy().Named("one")
	p = p.Burst(p.Capacity - p.Refill/1000)
	limittest.IntervalBound(t, durableobject.NewLimiter(newClient(s), p), durableobject.NewLimiter(newClient(s), p))
}

// An outcome counts calls. On a machine with much other load, a request may take longer than its
// time: the call has failed, and may have been charged.
type outcome struct{ granted, failed atomic.Int64 }

func (o *outcome) call(l limit.Limiter, key limit.Key) (allowed bool) {
	d, err := limit.Consume(context.Background(), l, key, 1)
	switch {
	case err != nil:
		o.failed.Add(1)
	case d.Allowed:
		o.granted.Add(1)
	}
	return d.Allowed
}

// assertCharged compares the counts with the tokens that are missing.
func (o *outcome) assertCharged(t *testing.T, tokens int64) {
	t.Helper()
	assert.LessOrEqual(t, o.granted.Load(), tokens)
	assert.GreaterOrEqual(t, o.granted.Load()+o.failed.Load(), tokens)
	assert.Positive(t, o.granted.Load())
}

func TestLimiter_ConcurrentCallsShareRequests(t *testing.T) {
	s := startServer(t, func(o *workerdtest.Options) { o.Variables["SHARDS"] = "8" })
	client, requests := newCountingClient(s)
	l := durableobject.NewLimiter(client, limit.PerHour(1).Burst(1000)) // returns no token during the test
	const callers, calls = 200, 5
	var wg sync.WaitGroup
	for n := range callers {
		wg.Go(func() {
			for range calls {
				assert.True(t, consume(t, l, user(strings.Repeat("x", n)), 1).Allowed)
			}
		})
	}
	wg.Wait()
	for n := range callers {
		assert.EqualValues(t, 1000-calls, consume(t, l, user(strings.Repeat("x", n)), 0).Remaining)
	}
	assert.Less(t, requests.Load()-callers, int64(callers*calls/4))
}

func TestLimiter_FloodCausesFewRequests(t *testing.T) {
	client, requests := newCountingClient(startServer(t))
	l := durableobject.NewLimiter(client, limit.PerSecond(10))
	consume(t, l, user("warm up"), 1)
	requests.Store(0)
	began := time.Now()
	var o outcome
	calls := 0
	var took, paused float64 // until the last call; of that, in which a slow machine made no call
	for last := true; took < 2 || last; calls++ {
		now := time.Since(began).Seconds()
		if now-took > 0.1 {
			paused += now - took
		}
		took = now
		last = o.call(l, user("ann"))
	}
	assert.Greater(t, calls, 20*int(o.granted.Load()))
	assert.LessOrEqual(t, float64(o.granted.Load()), 12+10*took)
	assert.GreaterOrEqual(t, float64(o.granted.Load()+11*o.failed.Load()), 8+10*(took-paused), "every token was granted, unless a request failed")
	// One request per token, one per second for the cache, and some in the millisecond before a
	// token returns, when only the object can decide.
	assert.LessOrEqual(t, float64(requests.Load()), 10+2*11*took)
}

// TestLimiter_NeverChargesTwice closes connections when the Worker has executed their requests.
func TestLimiter_NeverChargesTwice(t *testing.T) {
	s := startServer(t)
	var executed, aborted atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reply := forward(t, s, r)
		if executed.Add(1)%3 != 0 {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(reply)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if assert.NoError(t, err) {
			_ = conn.Close()
			aborted.Add(1)
		}
	}))
	t.Cleanup(proxy.Close)
	const capacity = 1_000_000
	p := limit.PerMinute(1).Burst(capacity)
	l := durableobject.NewLimiter(durableobject.NewClient(proxy.URL, s.Secret, nil), p)
	var attempts, failed atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				attempts.Add(1)
				if _, err := limit.Consume(t.Context(), l, user("ann"), 1); err != nil {
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	assert.Greater(t, aborted.Load(), int64(50))
	assert.GreaterOrEqual(t, failed.Load(), aborted.Load())
	left := consume(t, durableobject.NewLimiter(newClient(s), p), user("ann"), 0).Remaining
	assert.Equal(t, attempts.Load(), capacity-left)
}

// forward sends a request to the Worker and returns the body of the reply.
func forward(t *testing.T, s *workerdtest.Server, r *http.Request) []byte {
	request := r.Clone(context.WithoutCancel(r.Context()))
	target, err := url.Parse(s.URL + r.URL.Path)
	assert.NoError(t, err)
	request.URL, request.RequestURI = target, ""
	response, err := http.DefaultTransport.RoundTrip(request)
	if !assert.NoError(t, err) {
		return nil
	}
	body, err := io.ReadAll(response.Body)
	assert.NoError(t, err)
	assert.NoError(t, response.Body.Close())
	return body
}

// TestLimiter_ProcessesWithDifferentNumbersKeepOneLimit runs limiters as the processes of a rolling
// deployment do, for a second: one of 10 per second and one of 1 per second.
func TestLimiter_ProcessesWithDifferentNumbersKeepOneLimit(t *testing.T) {
	s := startServer(t)
	limiters := []limit.Limiter{
		durableobject.NewLimiter(newClient(s), limit.PerSecond(10).Named("p")),
		durableobject.NewLimiter(newClient(s), limit.PerSecond(1).Burst(10).Named("p")),
	}
	granted := 0
	start := time.Now()
	for n := 0; time.Since(start) < time.Second; n++ {
		if consume(t, limiters[n%2], user("ann"), 1).Allowed {
			granted++
		}
	}
	took := time.Since(start).Seconds() + 0.001 // the clock of the object
	assert.GreaterOrEqual(t, granted, 10)
	assert.LessOrEqual(t, float64(granted), 10+10*took)
}

// TestLimiter_SetPolicyWhileCallsShareRequests changes the policy while calls with both policies wait
// for the same round trip.
func TestLimiter_SetPolicyWhileCallsShareRequests(t *testing.T) {
	s := startServer(t)
	large, small := limit.PerHour(1).Burst(1000).Named("p"), limit.PerHour(2).Burst(500).Named("p")
	l := durableobject.NewLimiter(newClient(s), large)
	var calls outcome
	var setter, callers sync.WaitGroup
	stop := make(chan struct{})
	changes := 0
	setter.Go(func() {
		for ; ; changes++ {
			select {
			case <-stop:
				return
			default:
				assert.NoError(t, l.SetPolicy([]limit.Policy{large, small}[changes%2]))
			}
		}
	})
	for range 8 {
		callers.Go(func() {
			for range 200 {
				calls.call(l, user("ann"))
			}
		})
	}
	callers.Wait()
	close(stop)
	setter.Wait()
	require.Greater(t, changes, 1000)
	require.NoError(t, l.SetPolicy(large))
	left := consume(t, l, user("ann"), 0).Remaining
	calls.assertCharged(t, 1000-left)
}

// TestClient_NamespacesAreSeparate has a policy without a namespace whose keys would otherwise be those
// of a namespace.
func TestClient_NamespacesAreSeparate(t *testing.T) {
	s := startServer(t)
	withNamespace := func(name string) *durableobject.Client {
		return durableobject.NewClient(s.URL, s.Secret, &durableobject.Options{Namespace: name})
	}
	for client, key := range map[*durableobject.Client]limit.Key{
		withNamespace("shop"):         {"ann"},
		withNamespace("shop-staging"): {"ann"},
		newClient(s):                  {"ann"},
	} {
		l, permits := durableobject.NewLimiter(client, limit.PerHour(3).Named("calls")), durableobject.NewSemaphore(client, "calls", 1)
		assert.EqualValues(t, 0, consume(t, l, key, 3).Remaining)
		permit, err := permits.Acquire(t.Context(), key)
		require.NoError(t, err)
		assert.NotNil(t, permit.Release)
	}
	other := durableobject.NewLimiter(newClient(s), limit.PerHour(3).Named("shop"))
	assert.True(t, consume(t, other, limit.Key{"calls", "ann"}, 3).Allowed)
	assert.PanicsWithValue(t, `durableobject: Options.Namespace: the namespace is "a b"; it must have 1 to 64 letters, digits, dots, hyphens and underscores`,
		func() { withNamespace("a b") })
}

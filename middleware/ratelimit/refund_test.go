package ratelimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/fakelimiter"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/mode"
	"github.com/penstock-go/penstock/limit/observe"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// perHour has a bucket that refills too slowly to be seen in a test.
var perHour = limit.PerHour(100).Named("refunds")

// A busyServer handles one call, which does not end before the test does, and rejects all others.
type busyServer struct {
	client *routertest.Conn
	errs   []error // of router.Options.OnError
}

// concurrencyLimits are the limits that reject a message after it has been charged.
var concurrencyLimits = map[string]struct {
	opts router.Options
	use  func(*router.Router)
}{
	"Limits.Concurrency": {router.Options{Limits: router.Limits{Concurrency: 1}}, func(*router.Router) {}},
	"Concurrency": {router.Options{}, func(r *router.Router) {
		r.Use(ratelimit.Concurrency(memory.NewSemaphore(1), nil))
	}},
}

// dialBusy returns a server whose calls cost 10 tokens each, and which has started the first.
func dialBusy(t *testing.T, limitName string, ingress func(*ratelimit.Options) router.IngressFunc) *busyServer {
	s, started, done := &busyServer{}, make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(done) })
	kind := concurrencyLimits[limitName]
	opts := kind.opts
	opts.OnError = func(e router.ErrorReport) { s.errs = append(s.errs, e.Err) }
	r := router.New(&opts)
	r.UseIngress(ingress(&ratelimit.Options{Key: ratelimit.KeyPerType, Refund: true}))
	kind.use(r)
	router.RPC(r, func(*router.Context, Render) (Rendered, error) {
		close(started)
		<-done
		return Rendered{}, nil
	})
	s.client = routertest.Dial(t, r)
	s.client.Send(Render{"first"})
	<-started
	return s
}

func (s *busyServer) reject(t *testing.T, n int) {
	t.Helper()
	for range n {
		assert.Equal(t, "in_flight", errors.DetailsOf[errors.LimitDetails](routertest.CallError(s.client, Render{})).Kind)
	}
}

func costTen(router.IngressContext) int64 { return 10 }

var renderKey = ratelimit.KeyPerType(router.IngressContext{Type: "RENDER"})

// TestRefund_RejectedMessageCostsNothing has exact counts, in memory and on Redis.
func TestRefund_RejectedMessageCostsNothing(t *testing.T) {
	client := redistest.Start(t).Client(t)
	for store, newLimiter := range map[string]func(string) limit.Limiter{
		"memory": func(name string) limit.Limiter { return memory.NewLimiter(perHour.Named(name)) },
		"redis":  func(name string) limit.Limiter { return redis.NewLimiter(client, perHour.Named(name)) },
	} {
		for name := range concurrencyLimits {
			t.Run(store+"/"+name, func(t *testing.T) {
				limiter := newLimiter(t.Name())
				s := dialBusy(t, name, func(opts *ratelimit.Options) router.IngressFunc {
					opts.Cost, opts.Timeout = costTen, 10*time.Second
					return ratelimit.New(limiter, opts)
				})
				s.reject(t, 25) // charged, they would cost 250 tokens
				assert.EqualValues(t, 90, remaining(t, limiter, renderKey))
				assert.Empty(t, s.errs)
			})
			t.Run(store+"/"+name+"/joint", func(t *testing.T) {
				one, two := newLimiter(t.Name()+"1"), newLimiter(t.Name()+"2")
				s := dialBusy(t, name, func(opts *ratelimit.Options) router.IngressFunc {
					opts.Key, opts.Timeout = nil, 10*time.Second
					return ratelimit.NewAll([]ratelimit.Rule{
						{Limiter: one, Key: ratelimit.KeyPerType, Cost: costTen}, {Limiter: two, Key: ratelimit.KeyPerType},
					}, opts)
				})
				s.reject(t, 25)
				assert.EqualValues(t, 90, remaining(t, one, renderKey))
				assert.EqualValues(t, 99, remaining(t, two, renderKey))
			})
		}
	}
}

// TestRefund_OfOtherRejectionsIsNone has messages that a handler rejects, and the default.
func TestRefund_OfOtherRejectionsIsNone(t *testing.T) {
	for refund, kind := range map[bool]router.LimitKind{true: router.LimitTopics, false: router.LimitConcurrency} {
		t.Run(fmt.Sprint(refund, kind), func(t *testing.T) {
			limiter, r := memory.NewLimiter(perHour), router.New(nil)
			r.UseIngress(ratelimit.New(limiter, &ratelimit.Options{
				Key: ratelimit.KeyPerType, Refund: refund, Observe: func(observe.Observation) {},
			}))
			router.RPC(r, func(*router.Context, Render) (Rendered, error) { return Rendered{}, &router.LimitExceeded{Kind: kind} })
			client := routertest.Dial(t, r)
			for range 7 {
				assert.Equal(t, string(kind), errors.DetailsOf[errors.LimitDetails](routertest.CallError(client, Render{})).Kind)
			}
			assert.EqualValues(t, 93, remaining(t, limiter, renderKey))
		})
	}
}

// TestRefund_ReturnsOnlyWhatWasCharged has messages that the limiter did not charge, and a bucket
// that would accept more tokens.
func TestRefund_ReturnsOnlyWhatWasCharged(t *testing.T) {
	for name, tt := range map[string]struct {
		set                func(*ratelimit.Options, limit.Limiter)
		primary, secondary int64 // tokens left, where 50 have been taken before
	}{
		"fail open": {func(o *ratelimit.Options, _ limit.Limiter) { o.FailOpen = true }, 50, 100},
		"fallback":  {func(o *ratelimit.Options, fallback limit.Limiter) { o.Fallback = fallback }, 50, 99},
		"charge only": {func(o *ratelimit.Options, fallback limit.Limiter) {
			o.Fallback, o.ChargeOnly = fallback, func(router.IngressContext) bool { return true }
		}, 50, 99},
	} {
		t.Run(name, func(t *testing.T) {
			limiter, fallback := &fakelimiter.Limiter{Do: memory.NewLimiter(perHour).Take}, memory.NewLimiter(perHour)
			_, err := limit.Consume(t.Context(), limiter, renderKey, 50)
			require.NoError(t, err)
			s := dialBusy(t, "Concurrency", func(opts *ratelimit.Options) router.IngressFunc {
				tt.set(opts, fallback)
				limiter.Err = errors.New("down")
				return ratelimit.New(limiter, opts)
			})
			s.reject(t, 9)
			limiter.Err = nil
			assert.Equal(t, tt.primary, remaining(t, limiter, renderKey))
			assert.Equal(t, tt.secondary, remaining(t, fallback, renderKey))
		})
	}
}

func TestRefund_FailureIsReported(t *testing.T) {
	s := dialBusy(t, "Concurrency", func(opts *ratelimit.Options) router.IngressFunc {
		return ratelimit.New(&fakelimiter.Limiter{
			Do: memory.NewLimiter(perHour).Take, Err: errors.New("lost"),
			Fails: func(take limit.Take) bool { return take.Mode == mode.Undoing },
		}, opts)
	})
	s.reject(t, 1)
	require.Len(t, s.errs, 1)
	assert.EqualError(t, s.errs[0], "lost")
}

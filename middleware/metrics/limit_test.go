package metrics_test

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/middleware/metrics"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A store is a limiter that is not in this process.
type store struct {
	takes time.Duration
	err   error
	limit *memory.Limiter
}

func (s *store) Consume(ctx context.Context, key ratelimit.Key, cost int64) (ratelimit.Decision, error) {
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return ratelimit.Decision{}, ctx.Err()
	}
	if s.err != nil {
		return ratelimit.Decision{}, s.err
	}
	return s.limit.Consume(ctx, key, cost)
}

func newMetrics() (*metrics.Metrics, *prometheus.Registry) {
	reg := prometheus.NewPedanticRegistry()
	return metrics.New(reg, nil), reg
}

func from(user string) router.IngressContext {
	return router.IngressContext{Type: "SAY", ConnID: "c1", Identity: router.Identity{UserID: user}}
}

func TestDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reg := newMetrics()
		limit := func(opts ratelimit.Options) router.IngressFunc {
			opts.Observe = m.Limit
			return ratelimit.New(memory.NewLimiter(ratelimit.PerSecond(1).Burst(2)), &opts)
		}
		three := func(router.IngressContext) int64 { return 3 }
		free := func(router.IngressContext) int64 { return 0 }
		all := func(router.IngressContext) bool { return true }
		tolerate := func(router.IngressContext, *router.LimitExceeded) {}
		for _, f := range []router.IngressFunc{
			limit(ratelimit.Options{Name: "plain"}),
			limit(ratelimit.Options{Name: "dear", Cost: three}),
			limit(ratelimit.Options{Name: "free", Cost: free}),
			limit(ratelimit.Options{Name: "charge", ChargeOnly: all}),
			limit(ratelimit.Options{Name: "wait", MaxWait: time.Second}),
			limit(ratelimit.Options{Name: "dry", OnDryRun: tolerate}),
			limit(ratelimit.Options{}),
		} {
			for range 3 {
				_ = f(t.Context(), from("ann"))
			}
		}
		check(t, reg,
			"limit_decisions_total{kind=rate,mode=enforced,outcome=admitted,policy=plain} 2",
			"limit_decisions_total{kind=rate,mode=enforced,outcome=refused,policy=plain} 1",
			"limit_decisions_total{kind=rate,mode=enforced,outcome=refused_forever,policy=dear} 3",
			"limit_decisions_total{kind=rate,mode=enforced,outcome=charged,policy=charge} 1",
			"limit_decisions_total{kind=rate,mode=enforced,outcome=admitted_later,policy=wait} 1",
			"limit_decisions_total{kind=rate,mode=dry_run,outcome=refused,policy=dry} 1",
			"limit_decisions_total{kind=rate,mode=dry_run,outcome=admitted,policy=dry} 2",
			"limit_decisions_total{kind=rate,mode=enforced,outcome=refused,policy=unnamed} 1",
			"limiter_call_duration_seconds{policy=plain} count 3",
		)
		for name := range scrape(t, reg) {
			assert.NotContains(t, name, "policy=free", "what costs nothing is not decided about")
		}
	})
}

func TestAStoreThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reg := newMetrics()
		s := &store{takes: 10 * time.Millisecond, err: io.ErrUnexpectedEOF, limit: memory.NewLimiter(ratelimit.PerSecond(100))}
		deny := ratelimit.New(s, &ratelimit.Options{Name: "deny", Observe: m.Limit})
		admit := ratelimit.New(s, &ratelimit.Options{Name: "admit", Observe: m.Limit, OnUnavailable: ratelimit.Admit})
		fallback := ratelimit.New(s, &ratelimit.Options{Name: "fallback", Observe: m.Limit, Fallback: memory.NewLimiter(ratelimit.PerSecond(2))})
		for range 7 { // the fifth error opens the breakers
			require.Error(t, deny(t.Context(), from("ann")))
			require.NoError(t, admit(t.Context(), from("ann")))
			_ = fallback(t.Context(), from("ann"))
		}
		check(t, reg,
			"limit_decisions_total{kind=rate,mode=enforced,outcome=undecided,policy=deny} 7",
			"limit_decisions_total{kind=rate,mode=enforced,outcome=undecided_enters,policy=admit} 7",
			"limit_decisions_total{kind=rate,mode=enforced,outcome=admitted,policy=fallback} 2",
			"limit_decisions_total{kind=rate,mode=enforced,outcome=refused,policy=fallback} 5",
			"limiter_errors_total{policy=deny} 5", "limiter_errors_total{policy=fallback} 5",
			"limiter_fallbacks_total{policy=deny} 0", "limiter_fallbacks_total{policy=fallback} 7",
			"limiter_call_duration_seconds{policy=deny} count 5", "limiter_call_duration_seconds{policy=deny} sum 0.05",
			"limiter_breaker_open{policy=deny} 1",
		)
		time.Sleep(time.Second)
		require.Error(t, deny(t.Context(), from("ann")))
		check(t, reg, "limiter_errors_total{policy=deny} 6", "limiter_breaker_open{policy=deny} 1")
		s.err = nil
		time.Sleep(time.Second)
		require.NoError(t, deny(t.Context(), from("ann")))
		check(t, reg, "limiter_breaker_open{policy=deny} 0", "limiter_breaker_open{policy=admit} 1")

		s.takes = time.Minute
		ctx, leave := context.WithTimeout(t.Context(), time.Millisecond)
		defer leave()
		require.Error(t, deny(ctx, from("ann")))
		check(t, reg, "limit_decisions_total{kind=rate,mode=enforced,outcome=cancelled,policy=deny} 1")
	})
}

func TestTiersAndHandshakesHaveNames(t *testing.T) {
	m, reg := newMetrics()
	plan := func(in router.IngressContext) string { return in.Identity.UserID }
	limiters := map[string]ratelimit.Limiter{"free": memory.NewLimiter(ratelimit.PerSecond(1)), "pro": memory.NewLimiter(ratelimit.PerSecond(1))}
	tiers := ratelimit.Tiers(plan, limiters, &ratelimit.Options{Name: "chat", Observe: m.Limit})
	require.NoError(t, tiers(t.Context(), from("free")))
	require.NoError(t, ratelimit.Tiers(plan, limiters, &ratelimit.Options{Observe: m.Limit})(t.Context(), from("pro")))
	r := router.New(nil)
	h := ratelimit.Handshake(memory.NewLimiter(ratelimit.PerSecond(1)), &ratelimit.HandshakeOptions{Options: ratelimit.Options{Observe: m.Limit}})(r)
	routertest.Dial(t, h)
	check(t, reg,
		"limit_decisions_total{kind=rate,mode=enforced,outcome=admitted,policy=chat/free} 1",
		"limit_decisions_total{kind=rate,mode=enforced,outcome=admitted,policy=pro} 1",
		"limit_decisions_total{kind=rate,mode=enforced,outcome=admitted,policy=handshake} 1",
	)
}

// A slotsFunc is slots of one function.
type slotsFunc func() (ratelimit.Slot, error)

func (f slotsFunc) Acquire(context.Context, ratelimit.Key) (ratelimit.Slot, error) { return f() }

func TestCallsInFlightOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reg := newMetrics()
		var err error
		slot := ratelimit.Slot{Release: func() {}, Taken: 1, Limit: 1}
		r := router.New(&router.Options{Logger: slog.New(slog.DiscardHandler)})
		r.Use(ratelimit.InFlight(slotsFunc(func() (ratelimit.Slot, error) { return slot, err }), &ratelimit.InFlightOptions{Name: "calls", Observe: m.Limit}))
		router.RPC(r, echo)
		ann := routertest.Dial(t, r)
		routertest.Call[Echo](ann, Echo{1})
		slot = ratelimit.Slot{Taken: 1, Limit: 1}
		assert.Equal(t, errors.ResourceExhausted, routertest.CallError(ann, Echo{1}).Code)
		slot, err = ratelimit.Slot{}, io.ErrUnexpectedEOF
		assert.Equal(t, errors.Unavailable, routertest.CallError(ann, Echo{1}).Code)
		check(t, reg,
			"limit_decisions_total{kind=in_flight,mode=enforced,outcome=admitted,policy=calls} 1",
			"limit_decisions_total{kind=in_flight,mode=enforced,outcome=refused,policy=calls} 1",
			"limit_decisions_total{kind=in_flight,mode=enforced,outcome=undecided,policy=calls} 1",
			"limiter_errors_total{policy=calls} 1",
		)
	})
}

func TestKeysOfALimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reg := newMetrics()
		limiter := memory.NewLimiterMaxKeys(ratelimit.PerSecond(1), 10)
		m.Limiter("chat", limiter)
		consume := func(n int) {
			for i := range n {
				_, err := limiter.Consume(t.Context(), ratelimit.Key{string(rune('a' + i))}, 1)
				require.NoError(t, err)
			}
		}
		time.Sleep(time.Second) // lest the full buckets look as old as the limiter
		consume(13)
		check(t, reg, "limiter_keys{policy=chat} 10", "limiter_evictions_total{policy=chat} 0", "limiter_crowded_total{policy=chat} 3")
		time.Sleep(2 * time.Second)
		_, err := limiter.Consume(t.Context(), ratelimit.Key{"new"}, 1)
		require.NoError(t, err)
		check(t, reg, "limiter_keys{policy=chat} 1", "limiter_evictions_total{policy=chat} 10")
		assert.Panics(t, func() { m.Limiter("chat", limiter) })
	})
}

package metrics_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/fakelimiter"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/access"
	"github.com/penstock-go/penstock/limit/limitfile"
	"github.com/penstock-go/penstock/middleware/httplimit"
	"github.com/penstock-go/penstock/middleware/metrics"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func newMetrics() (*metrics.Metrics, *prometheus.Registry) {
	reg := prometheus.NewPedanticRegistry()
	return metrics.New(reg, nil), reg
}

func from(user string) router.IngressContext {
	return router.IngressContext{Type: "SAY", ConnID: "c1", Identity: router.Identity{UserID: user}}
}

func TestLimit_CountsDecisionsByOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reg := newMetrics()
		newLimit := func(opts ratelimit.Options) router.IngressFunc {
			opts.Observe = m.Limit
			return ratelimit.New(memory.NewLimiter(limit.PerSecond(1).Burst(2)), &opts)
		}
		spam := memory.NewCooldown(limit.CooldownPolicy{Max: 1, Window: time.Minute, Penalty: time.Minute}, nil)
		list := &access.List{}
		require.NoError(t, list.Replace(access.Rules{AllowKeys: []limit.Key{{"user", "", "ann"}}, DenyKeys: []limit.Key{{"user", "", "eve"}}}))
		access := newLimit(ratelimit.Options{Name: "access", Access: list})
		require.NoError(t, access(t.Context(), from("ann")))
		require.Error(t, access(t.Context(), from("eve")))
		three := func(router.IngressContext) int64 { return 3 }
		free := func(router.IngressContext) int64 { return 0 }
		all := func(router.IngressContext) bool { return true }
		for _, f := range []router.IngressFunc{
			newLimit(ratelimit.Options{Name: "plain"}),
			newLimit(ratelimit.Options{Name: "expensive", Cost: three}),
			newLimit(ratelimit.Options{Name: "free", Cost: free}),
			newLimit(ratelimit.Options{Name: "charge", ChargeOnly: all}),
			newLimit(ratelimit.Options{Name: "wait", MaxWait: time.Second}),
			newLimit(ratelimit.Options{Name: "dry", DryRun: true}),
			newLimit(ratelimit.Options{}),
			ratelimit.New(spam, &ratelimit.Options{Name: "spam", Observe: m.Limit}),
		} {
			for range 3 {
				_ = f(t.Context(), from("ann"))
			}
		}
		check(t, reg,
			"limit_decisions_total{kind=rate,limit=plain,mode=enforced,outcome=admitted} 2",
			"limit_decisions_total{kind=rate,limit=plain,mode=enforced,outcome=rejected} 1",
			"limit_decisions_total{kind=rate,limit=expensive,mode=enforced,outcome=never_allowed} 3",
			"limit_decisions_total{kind=rate,limit=charge,mode=enforced,outcome=charged_over_limit} 1",
			"limit_decisions_total{kind=rate,limit=wait,mode=enforced,outcome=delayed} 1",
			"limit_decisions_total{kind=rate,limit=dry,mode=dry_run,outcome=rejected} 1",
			"limit_decisions_total{kind=rate,limit=dry,mode=dry_run,outcome=admitted} 2",
			"limit_decisions_total{kind=rate,limit=unnamed,mode=enforced,outcome=rejected} 1",
			"limit_decisions_total{kind=rate,limit=spam,mode=enforced,outcome=admitted} 1",
			"limit_decisions_total{kind=rate,limit=spam,mode=enforced,outcome=rejected,reason=burst} 1",
			"limit_decisions_total{kind=rate,limit=spam,mode=enforced,outcome=rejected,reason=cooldown} 1",
			"limit_decisions_total{kind=rate,limit=access,mode=enforced,outcome=exempt} 1",
			"limit_decisions_total{kind=rate,limit=access,mode=enforced,outcome=denied} 1",
			"limiter_call_duration_seconds{limit=plain} count 3",
		)
		for name := range scrape(t, reg) {
			assert.NotContains(t, name, "limit=free", "a message that costs 0 needs no decision")
		}
	})
}

func TestLimit_CountsErrorsFallbacksAndOpenBreakers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reg := newMetrics()
		s := &fakelimiter.Limiter{Delay: 10 * time.Millisecond, Err: io.ErrUnexpectedEOF, Decision: limit.Decision{Allowed: true}}
		failClosed := ratelimit.New(s, &ratelimit.Options{Name: "closed", Observe: m.Limit})
		failOpen := ratelimit.New(s, &ratelimit.Options{Name: "open", Observe: m.Limit, FailOpen: true})
		fallback := ratelimit.New(s, &ratelimit.Options{Name: "fallback", Observe: m.Limit, Fallback: memory.NewLimiter(limit.PerSecond(2))})
		for range 7 { // the fifth error opens the breakers
			require.Error(t, failClosed(t.Context(), from("ann")))
			require.NoError(t, failOpen(t.Context(), from("ann")))
			_ = fallback(t.Context(), from("ann"))
		}
		check(t, reg,
			"limit_decisions_total{kind=rate,limit=closed,mode=enforced,outcome=failed} 7",
			"limit_decisions_total{kind=rate,limit=open,mode=enforced,outcome=failed_open} 7",
			"limit_decisions_total{kind=rate,limit=fallback,mode=enforced,outcome=admitted} 2",
			"limit_decisions_total{kind=rate,limit=fallback,mode=enforced,outcome=rejected} 5",
			"limiter_errors_total{limit=closed} 5", "limiter_errors_total{limit=fallback} 5",
			"limiter_fallbacks_total{limit=closed} 0", "limiter_fallbacks_total{limit=fallback} 7",
			"limiter_call_duration_seconds{limit=closed} count 5", "limiter_call_duration_seconds{limit=closed} sum 0.05",
			"limiter_breaker_open{limit=closed} 1",
		)
		time.Sleep(time.Second)
		require.Error(t, failClosed(t.Context(), from("ann")))
		check(t, reg, "limiter_errors_total{limit=closed} 6", "limiter_breaker_open{limit=closed} 1")
		s.Err = nil
		time.Sleep(time.Second)
		require.NoError(t, failClosed(t.Context(), from("ann")))
		check(t, reg, "limiter_breaker_open{limit=closed} 0", "limiter_breaker_open{limit=open} 1")

		s.Delay = time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.Error(t, failClosed(ctx, from("ann")))
		check(t, reg, "limit_decisions_total{kind=rate,limit=closed,mode=enforced,outcome=canceled} 1")
	})
}

func TestLimit_TiersAndHTTPHaveNames(t *testing.T) {
	m, reg := newMetrics()
	plan := func(in router.IngressContext) string { return in.Identity.UserID }
	limiters := map[string]limit.Limiter{"free": memory.NewLimiter(limit.PerSecond(1)), "pro": memory.NewLimiter(limit.PerSecond(1))}
	tiers := ratelimit.Tiers(plan, limiters, &ratelimit.Options{Name: "chat", Observe: m.Limit})
	require.NoError(t, tiers(t.Context(), from("free")))
	require.NoError(t, ratelimit.Tiers(plan, limiters, &ratelimit.Options{Observe: m.Limit})(t.Context(), from("pro")))
	r := router.New(nil)
	h := httplimit.New(memory.NewLimiter(limit.PerSecond(1)), &httplimit.Options{Observe: m.Limit})(r)
	routertest.Dial(t, h)
	check(t, reg,
		"limit_decisions_total{kind=rate,limit=chat/free,mode=enforced,outcome=admitted} 1",
		"limit_decisions_total{kind=rate,limit=pro,mode=enforced,outcome=admitted} 1",
		"limit_decisions_total{kind=rate,limit=http,mode=enforced,outcome=admitted} 1",
	)
}

// A semaphoreFunc is a function that implements limit.Semaphore.
type semaphoreFunc func() (limit.Permit, error)

func (f semaphoreFunc) Acquire(context.Context, limit.Key) (limit.Permit, error) { return f() }

func TestLimit_CountsConcurrencyDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reg := newMetrics()
		var err error
		permit := limit.Permit{Release: func() {}, InUse: 1, Limit: 1}
		r := router.New(&router.Options{Logger: slog.New(slog.DiscardHandler)})
		r.Use(ratelimit.Concurrency(semaphoreFunc(func() (limit.Permit, error) { return permit, err }), &ratelimit.ConcurrencyOptions{Name: "calls", Observe: m.Limit}))
		router.RPC(r, echo)
		ann := routertest.Dial(t, r)
		routertest.Call[Echo](ann, Echo{1})
		permit = limit.Permit{InUse: 1, Limit: 1}
		assert.Equal(t, errors.ResourceExhausted, routertest.CallError(ann, Echo{1}).Code)
		permit, err = limit.Permit{}, io.ErrUnexpectedEOF
		assert.Equal(t, errors.Unavailable, routertest.CallError(ann, Echo{1}).Code)
		check(t, reg,
			"limit_decisions_total{kind=in_flight,limit=calls,mode=enforced,outcome=admitted} 1",
			"limit_decisions_total{kind=in_flight,limit=calls,mode=enforced,outcome=rejected} 1",
			"limit_decisions_total{kind=in_flight,limit=calls,mode=enforced,outcome=failed} 1",
			"limiter_errors_total{limit=calls} 1",
		)
	})
}

func TestLimiter_CountsKeysEvictionsAndOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reg := newMetrics()
		limiter := memory.NewLimiterMaxKeys(limit.PerSecond(1), 10)
		m.Limiter("chat", limiter)
		consume := func(n int) {
			for i := range n {
				_, err := limit.Consume(t.Context(), limiter, limit.Key{string(rune('a' + i))}, 1)
				require.NoError(t, err)
			}
		}
		time.Sleep(time.Second) // otherwise full buckets look like new ones
		consume(13)
		check(t, reg, "limiter_keys{limit=chat} 10", "limiter_evictions_total{limit=chat} 0", "limiter_overflow_total{limit=chat} 3")
		time.Sleep(2 * time.Second)
		_, err := limit.Consume(t.Context(), limiter, limit.Key{"new"}, 1)
		require.NoError(t, err)
		stats := limiter.Stats() // one bucket or all ten are evicted
		assert.Positive(t, stats.Evicted)
		check(t, reg, fmt.Sprint("limiter_keys{limit=chat} ", 11-stats.Evicted), fmt.Sprint("limiter_evictions_total{limit=chat} ", stats.Evicted))
		assert.Panics(t, func() { m.Limiter("chat", limiter) })
	})
}

func TestLimitsFile_ShowsWhetherItApplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, reg := newMetrics()
		for name := range scrape(t, reg) {
			assert.NotContains(t, name, "limits_file", "there is no file")
		}
		path := filepath.Join(t.TempDir(), "limits.txt")
		require.NoError(t, os.WriteFile(path, []byte("chat: 1/s\n"), 0o600))
		file, err := limitfile.Load(path, nil, memory.NewLimiter(limit.PerSecond(1).Named("chat")))
		require.NoError(t, err)
		m.LimitsFile(file)
		loaded := fmt.Sprint("limits_file_last_reload_success_timestamp_seconds ", float64(time.Now().Unix()))
		check(t, reg, "limits_file_last_reload_successful 1", loaded)

		time.Sleep(time.Minute)
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.Error(t, file.Reload())
		check(t, reg, "limits_file_last_reload_successful 0", loaded)
		assert.Panics(t, func() { m.LimitsFile(file) }, "all limits of a process are in one file")
	})
}

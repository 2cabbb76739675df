package httplimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/fakelimiter"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/access"
	"github.com/penstock-go/penstock/limit/observe"
	"github.com/penstock-go/penstock/middleware/httplimit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// scripted returns a limiter that repeats its answers. An answer is a limit.Decision, an error, or nil,
// which is none in time.
func scripted(answers []any) *fakelimiter.Limiter {
	n := -1
	return &fakelimiter.Limiter{Do: func(ctx context.Context, _ limit.Key, _ limit.Take) (limit.Decision, error) {
		n++
		switch answer := answers[n%len(answers)].(type) {
		case limit.Decision:
			return answer, nil
		case error:
			return limit.Decision{}, answer
		default:
			<-ctx.Done()
			return limit.Decision{}, ctx.Err()
		}
	}}
}

// A trace is what a limit does with a sequence of messages or requests.
type trace struct {
	answers  []string
	dry      []string
	observed []observe.Observation
	calls    [2][]fakelimiter.Call // of the limiter and the fallback
}

// An arrival is a message or a request.
type arrival struct {
	addr       netip.Addr
	cost       int64
	chargeOnly bool
	pause      time.Duration // after it
}

// A scenario is a limit and what arrives.
type scenario struct {
	limiter, fallback []any // fallback is nil without one
	opts              httplimit.Options
	arrivals          []arrival
}

func randomScenario(rng *rand.Rand) (s scenario) {
	answers := func() (some []any) {
		all := []any{
			limit.Decision{Allowed: true, Limit: 5, Remaining: 2},
			limit.Decision{Limit: 5, RetryAfter: 1500 * time.Millisecond, Reason: limit.Blocked},
			limit.Decision{Limit: 5, RetryAfter: limit.Never, Policy: "p"},
			limit.Decision{Allowed: true, Limit: 5, RetryAfter: time.Second},
			errors.New("down"), nil,
		}
		for range 1 + rng.IntN(4) {
			some = append(some, slices.Repeat(all[rng.IntN(len(all)):][:1], 1+rng.IntN(6))...) // five failures open a breaker
		}
		return some
	}
	s.limiter = answers()
	if rng.IntN(2) == 0 {
		s.fallback = answers()
	}
	s.opts = httplimit.Options{
		Name: "chat", Timeout: []time.Duration{time.Millisecond, time.Second}[rng.IntN(2)],
		FailOpen: rng.IntN(2) == 1, DryRun: rng.IntN(3) == 0,
	}
	switch rng.IntN(3) {
	case 0:
		s.opts.MaxWait = time.Second
	case 1:
		s.opts.Keep = func(*http.Request) int64 { return 2 }
	}
	for range 20 {
		s.arrivals = append(s.arrivals, arrival{
			addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(rng.IntN(5))}), cost: rng.Int64N(4), chargeOnly: rng.IntN(5) == 0,
			// Calls and pauses together are much shorter than the random pause of a breaker, or longer.
			pause: time.Duration(rng.IntN(2)) * time.Second,
		})
	}
	return s
}

// traceOf runs a scenario. limits makes a limit, and returns a function that answers an arrival
// with a status and a time to wait.
func traceOf(t *testing.T, s scenario, limits func(*testing.T, limit.Limiter, httplimit.Options, *trace) func(arrival) string) (tr trace) {
	limiter, fallback := scripted(s.limiter), scripted(s.fallback)
	if s.fallback != nil {
		s.opts.Fallback = fallback
	}
	s.opts.Access = &access.List{}
	require.NoError(t, s.opts.Access.Replace(access.Rules{
		Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}, DenyKeys: []limit.Key{{"ip", "192.0.2.2"}},
	}))
	s.opts.Observe = func(o observe.Observation) { tr.observed = append(tr.observed, o) }
	answer := limits(t, limiter, s.opts, &tr)
	for _, a := range s.arrivals {
		start := time.Now()
		tr.answers = append(tr.answers, answer(a)+" after "+time.Since(start).String())
		time.Sleep(a.pause)
	}
	tr.calls = [2][]fakelimiter.Call{limiter.Calls, fallback.Calls}
	return tr
}

func limitRequests(_ *testing.T, limiter limit.Limiter, opts httplimit.Options, tr *trace) func(arrival) string {
	var now arrival
	opts.Cost = func(*http.Request) int64 { return now.cost }
	opts.ChargeOnly = func(*http.Request) bool { return now.chargeOnly }
	if opts.DryRun {
		opts.OnDryRun = func(_ *http.Request, d limit.Decision) {
			tr.dry = append(tr.dry, fmt.Sprintln(d.Limit, d.Policy, d.Reason, d.RetryAfter))
		}
	}
	h := httplimit.New(limiter, &opts)(ok)
	return func(a arrival) string {
		now = a
		resp := attempt(h, a.addr.String()+":1", nil)
		return fmt.Sprint(resp.StatusCode, resp.Header.Get("Retry-After"))
	}
}

func limitMessages(t *testing.T, limiter limit.Limiter, o httplimit.Options, tr *trace) func(arrival) string {
	var now arrival
	opts := &ratelimit.Options{
		Name: o.Name, Key: ratelimit.KeyPerIP, Access: o.Access, AccessKey: ratelimit.KeyPerIP, MaxWait: o.MaxWait, DryRun: o.DryRun,
		FailOpen: o.FailOpen, Fallback: o.Fallback, Observe: o.Observe, Timeout: o.Timeout,
		Cost:       func(router.IngressContext) int64 { return now.cost },
		ChargeOnly: func(router.IngressContext) bool { return now.chargeOnly },
	}
	if o.Keep != nil {
		opts.Keep = func(router.IngressContext) int64 { return o.Keep(nil) }
	}
	r := router.New(&router.Options{
		OnError: func(router.ErrorReport) {},
		OnLimitExceeded: func(l router.LimitExceeded) {
			tr.dry = append(tr.dry, fmt.Sprintln(l.Limit, l.Policy, l.Reason, l.RetryAfter))
		},
	})
	routertest.Dial(t, r)
	var in router.IngressContext
	for c := range r.Conns() {
		in = c.Ingress()
	}
	admit := ratelimit.New(limiter, opts)
	return func(a arrival) string {
		now = a
		in.Type, in.IP = "SAY", a.addr
		err := admit(context.Background(), in)
		synctest.Wait()
		exceeded, _ := errors.AsType[*router.LimitExceeded](err)
		switch {
		case err == nil:
			return "200"
		case exceeded != nil && exceeded.RetryAfter == limit.Never:
			return "429"
		case exceeded != nil:
			seconds := (exceeded.RetryAfter + time.Second - 1) / time.Second
			return "429" + strconv.Itoa(int(seconds))
		case errors.CodeOf(err) == errors.PermissionDenied:
			return "403"
		default:
			return "503"
		}
	}
}

// TestNew_DecidesAsMessagesAreDecided runs random scenarios with both middlewares: their answers,
// observations and calls of the limiters are the same, and at the same times.
func TestNew_DecidesAsMessagesAreDecided(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	outcomes := map[observe.Outcome]int{}
	for range 300 {
		s := randomScenario(rng)
		synctest.Test(t, func(t *testing.T) {
			requests := traceOf(t, s, limitRequests)
			require.Equal(t, traceOf(t, s, limitMessages), requests, "%+v", s)
			for _, o := range requests.observed {
				outcomes[o.Outcome]++
			}
		})
	}
	for outcome := observe.Admitted; outcome <= observe.BreakerClosed; outcome++ {
		require.Equal(t, outcome != observe.Canceled, outcomes[outcome] > 0, "outcome %d", outcome)
	}
}

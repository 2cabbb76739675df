package internal_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/enforce"
	"github.com/penstock-go/penstock/internal/fakelimiter"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/observe"
)

var errStore = errors.New("the store is unavailable")

func decide(t *testing.T, l *enforce.Limit) (limit.Decision, error) {
	return l.Decide(t.Context(), &enforce.Request{Key: limit.Key{"ann"}, Take: limit.Take{Cost: 1}})
}

func TestLimit_FailurePolicies(t *testing.T) {
	for name, tt := range map[string]struct {
		opts    enforce.Options
		allowed bool
		code    errors.Code
		outcome observe.Outcome
	}{
		"fail closed":         {enforce.Options{}, false, errors.Unavailable, observe.Failed},
		"fail open":           {enforce.Options{FailOpen: true}, true, "", observe.FailedOpen},
		"dry run":             {enforce.Options{DryRun: true}, false, "", observe.Failed},
		"fallback":            {enforce.Options{Fallback: memory.NewLimiter(limit.PerSecond(1))}, true, "", observe.Admitted},
		"fallback that fails": {enforce.Options{Fallback: &fakelimiter.Limiter{Err: errStore}}, false, errors.Unavailable, observe.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			var seen []observe.Observation
			tt.opts.Observe = func(o observe.Observation) { seen = append(seen, o) }
			q := &enforce.Request{Key: limit.Key{"ann"}, Take: limit.Take{Cost: 1}}
			d, err := enforce.New(&fakelimiter.Limiter{Err: errStore}, tt.opts).Decide(t.Context(), q)
			assert.Equal(t, tt.allowed, d.Allowed)
			if tt.code == "" {
				assert.NoError(t, err)
			} else {
				assert.Equal(t, tt.code, errors.CodeOf(err))
				assert.ErrorIs(t, err, errStore)
			}
			assert.Equal(t, errStore, q.Failure)
			require.Len(t, seen, 1)
			assert.Equal(t, tt.outcome, seen[0].Outcome)
		})
	}
}

func TestLimit_FallbackNeverOverridesADenial(t *testing.T) {
	denies := &fakelimiter.Limiter{Decision: limit.Decision{Limit: 1, RetryAfter: time.Second}}
	fallback := &fakelimiter.Limiter{Decision: limit.Decision{Allowed: true}}
	d, err := decide(t, enforce.New(denies, enforce.Options{Fallback: fallback}))
	assert.NoError(t, err)
	assert.False(t, d.Allowed)
	assert.Empty(t, fallback.Calls)
}

// TestLimit_ChargesWithoutALimiter admits what was served already.
func TestLimit_ChargesWithoutALimiter(t *testing.T) {
	l := enforce.New(&fakelimiter.Limiter{Err: errStore}, enforce.Options{})
	d, err := l.Decide(t.Context(), &enforce.Request{Take: limit.Take{Cost: 1}, ChargeOnly: true})
	assert.NoError(t, err)
	assert.True(t, d.Allowed)
}

func TestLimit_JitterIsAboveTheWait(t *testing.T) {
	for _, wait := range []time.Duration{time.Second, limit.Never - 1} {
		l := enforce.New(&fakelimiter.Limiter{Decision: limit.Decision{RetryAfter: wait}}, enforce.Options{Jitter: time.Minute})
		for range 100 {
			d, err := decide(t, l)
			require.NoError(t, err)
			require.GreaterOrEqual(t, d.RetryAfter, wait)
			require.Less(t, d.RetryAfter, limit.Never)
			require.Less(t, d.RetryAfter-wait, time.Minute)
		}
	}
	for _, wait := range []time.Duration{0, limit.Never} {
		d, err := decide(t, enforce.New(&fakelimiter.Limiter{Decision: limit.Decision{RetryAfter: wait}}, enforce.Options{Jitter: time.Minute}))
		require.NoError(t, err)
		assert.Equal(t, wait, d.RetryAfter)
	}
}

func TestBreaker_OpensAndProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []observe.Outcome
		store := &fakelimiter.Limiter{Hangs: true}
		l := enforce.New(store, enforce.Options{Timeout: time.Second, Observe: func(o observe.Observation) {
			if o.Outcome == observe.BreakerOpened || o.Outcome == observe.BreakerClosed {
				changes = append(changes, o.Outcome)
			}
		}})
		for n := range 5 {
			assert.Empty(t, changes, n)
			begin := time.Now()
			_, err := decide(t, l)
			assert.Equal(t, errors.Unavailable, errors.CodeOf(err))
			assert.Equal(t, time.Second, time.Since(begin))
		}
		assert.Equal(t, []observe.Outcome{observe.BreakerOpened}, changes)

		begin := time.Now()
		for range 100 { // none of them waits
			_, err := decide(t, l)
			assert.Equal(t, errors.Unavailable, errors.CodeOf(err))
		}
		assert.Zero(t, time.Since(begin))
		assert.Len(t, store.Calls, 5)

		time.Sleep(400 * time.Millisecond)
		store.Hangs, store.Err = false, errStore
		_, err := decide(t, l)
		assert.ErrorIs(t, err, errStore, "the probe")
		_, err = decide(t, l)
		assert.NotErrorIs(t, err, errStore, "the next probe is later")

		time.Sleep(400 * time.Millisecond)
		store.Err, store.Decision = nil, limit.Decision{Allowed: true}
		for range 3 {
			d, err := decide(t, l)
			assert.NoError(t, err)
			assert.True(t, d.Allowed)
		}
		assert.Equal(t, []observe.Outcome{observe.BreakerOpened, observe.BreakerClosed}, changes)
	})
}

// TestBreaker_ClientsThatLeaveAreNoFailures cancels calls of a slow store.
func TestBreaker_ClientsThatLeaveAreNoFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakelimiter.Limiter{Hangs: true}
		l := enforce.New(store, enforce.Options{Timeout: time.Second})
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			q := &enforce.Request{Take: limit.Take{Cost: 1}}
			_, err := l.Decide(ctx, q)
			assert.NoError(t, q.Failure)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
		assert.Len(t, store.Calls, 20)
	})
}

func TestNew_InvalidOptionsPanic(t *testing.T) {
	bucket := memory.NewLimiter(limit.PerSecond(1))
	for want, f := range map[string]func(){
		"ratelimit: New needs a limiter":                                          func() { enforce.New(nil, enforce.Options{Package: "ratelimit"}) },
		"p: Jitter is -1ns; it must not be negative":                              func() { enforce.New(bucket, enforce.Options{Package: "p", Jitter: -1}) },
		"p: Keep and MaxWait are set; set one of them":                            func() { enforce.New(bucket, enforce.Options{Package: "p", Keeps: true, MaxWait: 1}) },
		"p: Timeout is -1ns; it must not be negative":                             func() { enforce.New(bucket, enforce.Options{Package: "p", Timeout: -1}) },
		"p: MaxWait is -1ns; it must be from 0 to " + adapter.MaxReserve.String(): func() { enforce.New(bucket, enforce.Options{Package: "p", MaxWait: -1}) },
	} {
		assert.PanicsWithValue(t, want, f)
	}
}

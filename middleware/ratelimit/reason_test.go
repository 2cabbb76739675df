package ratelimit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/observe"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestReason_ReachesClientHookAndObserver sends messages over three limits through a router.
func TestReason_ReachesClientHookAndObserver(t *testing.T) {
	bucket := func() limit.Limiter { return memory.NewLimiter(limit.PerHour(1)) }
	cooldown := func() limit.Limiter {
		return memory.NewCooldown(limit.CooldownPolicy{Max: 1, Window: time.Second, Penalty: time.Minute}, nil)
	}
	blocked := func() limit.Limiter {
		limiter := memory.NewLimiter(limit.PerHour(9))
		require.NoError(t, limiter.Block(t.Context(), limit.Key{}, time.Minute))
		return limiter
	}
	for _, tt := range []struct {
		name    string
		limiter func() limit.Limiter
		want    []string       // details.reason of the answers; "" without a reason
		reasons []limit.Reason // observed, including the admission of the first message
	}{
		{"bucket", bucket, []string{"", ""}, []limit.Reason{limit.NoTokens, limit.NoTokens, limit.NoTokens}},
		{"cooldown", cooldown, []string{"burst", "cooldown"}, []limit.Reason{limit.NoTokens, limit.BurstExceeded, limit.InCooldown}},
		{"blocked", blocked, []string{"blocked", "blocked", "blocked"}, []limit.Reason{limit.Blocked, limit.Blocked, limit.Blocked}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reported []router.LimitExceeded
				var observed []limit.Reason
				r := router.New(&router.Options{OnLimitExceeded: func(l router.LimitExceeded) { reported = append(reported, l) }})
				r.UseIngress(ratelimit.New(tt.limiter(), &ratelimit.Options{
					Key:     func(router.IngressContext) limit.Key { return limit.Key{} },
					Observe: func(o observe.Observation) { observed = append(observed, o.Reason) },
				}))
				router.RPC(r, func(*router.Context, Render) (Rendered, error) { return Rendered{}, nil })
				client := routertest.Dial(t, r)
				for range 3 - len(tt.want) {
					routertest.Call[Rendered](client, Render{})
				}
				for _, want := range tt.want {
					assert.Equal(t, want, errors.DetailsOf[errors.LimitDetails](routertest.CallError(client, Render{})).Reason)
				}
				synctest.Wait()
				assert.Equal(t, tt.reasons, observed)
				require.Len(t, reported, len(tt.want))
				for i, want := range tt.want {
					assert.Equal(t, want, reported[i].Reason)
				}
			})
		})
	}
}

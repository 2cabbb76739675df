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
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

// keepHalf leaves four of eight tokens to messages other than PREVIEW.
func keepHalf(in router.IngressContext) int64 {
	if in.Type == "PREVIEW" {
		return 4
	}
	return 0
}

func TestKeep_LeavesAShareToImportantMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		admit := ratelimit.New(memory.NewLimiter(limit.PerSecond(1).Burst(8)), &ratelimit.Options{
			Key: ratelimit.KeyPerUser, Keep: keepHalf, ChargeOnly: func(in router.IngressContext) bool { return in.Type == "LEAVE" },
		})
		send := func(typ string, n int) (admitted int, last error) {
			in := from("ann")
			in.Type = typ
			for range n {
				if last = admit(t.Context(), in); last == nil {
					admitted++
				}
			}
			return admitted, last
		}
		previews, err := send("PREVIEW", 10)
		assert.Equal(t, 4, previews)
		assert.Equal(t, &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 8, RetryAfter: time.Second}, err)
		says, _ := send("SAY", 10)
		assert.Equal(t, 4, says, "the share that PREVIEW left")
		previews, err = send("PREVIEW", 1)
		assert.Zero(t, previews)
		assert.Equal(t, 5*time.Second, err.(*router.LimitExceeded).RetryAfter, "until the bucket holds the cost and the share") //nolint:errorlint // never wrapped
		time.Sleep(5*time.Second - time.Millisecond)
		previews, _ = send("PREVIEW", 1)
		assert.Zero(t, previews)
		time.Sleep(time.Millisecond)
		previews, _ = send("PREVIEW", 2)
		assert.Equal(t, 1, previews)
	})
}

// TestKeep_DoesNotApplyToChargeOnlyMessages charges messages down to an empty bucket.
func TestKeep_DoesNotApplyToChargeOnlyMessages(t *testing.T) {
	limiter := memory.NewLimiter(limit.PerHour(8))
	admit := ratelimit.New(limiter, &ratelimit.Options{
		Key: ratelimit.KeyPerUser, Keep: func(router.IngressContext) int64 { return 4 },
		ChargeOnly: func(router.IngressContext) bool { return true },
	})
	for range 8 {
		require.NoError(t, admit(t.Context(), from("ann")))
	}
	d, err := limit.Consume(t.Context(), limiter, user("ann"), 0)
	require.NoError(t, err)
	assert.Zero(t, d.Remaining)
}

func TestKeep_ShareAboveCapacityIsNeverAdmitted(t *testing.T) {
	keep := int64(8)
	admit := ratelimit.New(memory.NewLimiter(limit.PerHour(8)), &ratelimit.Options{
		Keep: func(router.IngressContext) int64 { return keep },
	})
	exceeded, ok := errors.AsType[*router.LimitExceeded](admit(t.Context(), from("ann")))
	require.True(t, ok)
	assert.Equal(t, limit.Never, exceeded.RetryAfter)
	keep = -1
	err := admit(t.Context(), from("ann"))
	assert.Equal(t, errors.InvalidArgument, errors.CodeOf(err))
	assert.ErrorContains(t, errors.Unwrap(err), `ratelimit: Keep returned -1 for "SAY"; it must not be negative`)
}

func TestKeep_InvalidOptionsPanic(t *testing.T) {
	keeper := memory.NewLimiter(limit.PerHour(8))
	spam := memory.NewCooldown(limit.CooldownPolicy{Max: 2, Window: time.Second, Penalty: time.Second}, nil)
	assert.PanicsWithValue(t, "ratelimit: Keep is set, which a *memory.Cooldown cannot do: cooldowns cannot keep tokens, wait or charge a deficit; use a token bucket",
		func() { ratelimit.New(spam, &ratelimit.Options{Keep: keepHalf}) })
	assert.PanicsWithValue(t, "ratelimit: Keep is set, which a *memory.Cooldown cannot do: cooldowns cannot keep tokens, wait or charge a deficit; use a token bucket",
		func() { ratelimit.New(keeper, &ratelimit.Options{Keep: keepHalf, Fallback: spam}) })
	assert.PanicsWithValue(t, "ratelimit: Keep and MaxWait are set; set one of them",
		func() { ratelimit.New(keeper, &ratelimit.Options{Keep: keepHalf, MaxWait: time.Second}) })
}

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

func TestKeep_LeavesAShareToImportantMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := memory.NewLimiter(limit.PerSecond(1).Burst(8))
		admit := ratelimit.New(limiter, &ratelimit.Options{
			Key: ratelimit.KeyPerUser,
			Keep: func(in router.IngressContext) int64 {
				if in.Type == "SAY" {
					return 0
				}
				return 4
			},
			ChargeOnly: func(in router.IngressContext) bool { return in.Type == "LEAVE" },
		})
		send := func(typ string) error {
			in := from("ann")
			in.Type = typ
			return admit(t.Context(), in)
		}
		for range 4 {
			require.NoError(t, send("PREVIEW"))
		}
		assert.Equal(t, &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 8, RetryAfter: time.Second}, send("PREVIEW"))
		require.NoError(t, send("SAY"), "of the share that PREVIEW left")
		assert.Equal(t, 2*time.Second, send("PREVIEW").(*router.LimitExceeded).RetryAfter, "until the bucket holds the cost and the share") //nolint:errorlint // never wrapped
		for range 3 {
			require.NoError(t, send("LEAVE"))
		}
		assert.Zero(t, remaining(t, limiter, user("ann")), "Keep does not apply to messages that are only charged")
	})
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

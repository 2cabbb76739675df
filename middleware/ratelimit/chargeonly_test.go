package ratelimit_test

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/fakelimiter"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/observe"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

// TestNew_ChargeOnlyTakesWhatTheBucketHolds has messages that cost more than the rest of their bucket.
func TestNew_ChargeOnlyTakesWhatTheBucketHolds(t *testing.T) {
	leave := from("ann")
	leave.Type = "LEAVE"
	one, two := memory.NewLimiter(limit.PerHour(10).Named("one")), memory.NewLimiter(limit.PerHour(10).Named("two"))
	for _, tt := range []struct {
		name    string
		limiter limit.Limiter
		left    []int64
	}{
		{"a bucket", memory.NewLimiter(limit.PerHour(10)), []int64{3, 0, 0}},
		{"a window", memory.NewSlidingCounter(limit.WindowPolicy{Max: 10, Window: time.Hour}), []int64{3, 0, 0}},
		{"a limiter that takes no part", limit.AllOf(one, two), []int64{3, 3, 3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var outcomes []observe.Outcome
			admit := ratelimit.New(tt.limiter, &ratelimit.Options{
				Key:        ratelimit.KeyPerUser,
				Cost:       func(router.IngressContext) int64 { return 7 },
				ChargeOnly: func(in router.IngressContext) bool { return in.Type == "LEAVE" },
				Observe:    func(o observe.Observation) { outcomes = append(outcomes, o.Outcome) },
			})
			for _, left := range tt.left {
				require.NoError(t, admit(t.Context(), leave))
				assert.Equal(t, left, remaining(t, tt.limiter, ratelimit.KeyPerUser(leave)))
			}
			assert.Equal(t, []observe.Outcome{observe.Admitted, observe.ChargedOverLimit, observe.ChargedOverLimit}, outcomes)
		})
	}
}

func TestNew_ChargeOnlyAdmitsWhileTheLimiterIsUnavailable(t *testing.T) {
	var outcomes []observe.Outcome
	admit := ratelimit.New(&fakelimiter.Limiter{Err: io.ErrUnexpectedEOF}, &ratelimit.Options{
		ChargeOnly: func(in router.IngressContext) bool { return in.Type == "LEAVE" },
		Observe:    func(o observe.Observation) { outcomes = append(outcomes, o.Outcome) },
	})
	leave := from("ann")
	leave.Type = "LEAVE"
	assert.NoError(t, admit(t.Context(), leave))
	assert.Equal(t, errors.Unavailable, errors.CodeOf(admit(t.Context(), from("ann"))))
	assert.Equal(t, []observe.Outcome{observe.FailedOpen, observe.Failed}, outcomes)
}

package ratelimit_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/observe"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

func TestNew_ChargeOnlyAdmitsAndCharges(t *testing.T) {
	limiter := memory.NewLimiter(limit.PerHour(2))
	admit := ratelimit.New(limiter, &ratelimit.Options{
		Key:        ratelimit.KeyPerUser,
		ChargeOnly: func(in router.IngressContext) bool { return in.Type == "LEAVE" },
	})
	leave := from("ann")
	leave.Type = "LEAVE"
	for range 5 {
		assert.NoError(t, admit(t.Context(), leave))
	}
	assert.Error(t, admit(t.Context(), from("ann")), "the LEAVE messages have emptied the bucket")
}

func TestNew_ChargeOnlyAdmitsWhileTheLimiterIsUnavailable(t *testing.T) {
	var outcomes []observe.Outcome
	admit := ratelimit.New(limiterFunc(func(context.Context, limit.Key, int64) (limit.Decision, error) {
		return limit.Decision{}, io.ErrUnexpectedEOF
	}), &ratelimit.Options{
		ChargeOnly: func(in router.IngressContext) bool { return in.Type == "LEAVE" },
		Observe:    func(o observe.Observation) { outcomes = append(outcomes, o.Outcome) },
	})
	leave := from("ann")
	leave.Type = "LEAVE"
	assert.NoError(t, admit(t.Context(), leave))
	assert.Equal(t, errors.Unavailable, errors.CodeOf(admit(t.Context(), from("ann"))))
	assert.Equal(t, []observe.Outcome{observe.FailedOpen, observe.Failed}, outcomes)
}

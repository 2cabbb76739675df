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

func TestNew_DryRunReportsAndAdmits(t *testing.T) {
	var rejected []*router.LimitExceeded
	admit := ratelimit.New(memory.NewLimiter(limit.PerHour(1)), &ratelimit.Options{
		DryRun: true,
		OnDryRun: func(in router.IngressContext, l *router.LimitExceeded) {
			assert.Equal(t, "ann", in.Identity.UserID)
			rejected = append(rejected, l)
		},
	})
	for range 3 {
		assert.NoError(t, admit(t.Context(), from("ann")))
	}
	assert.Len(t, rejected, 2)
	assert.EqualValues(t, 1, rejected[0].Limit)
	down := ratelimit.New(limiterFunc(func(context.Context, limit.Key, int64) (limit.Decision, error) {
		return limit.Decision{}, io.ErrUnexpectedEOF
	}), &ratelimit.Options{DryRun: true, OnDryRun: func(router.IngressContext, *router.LimitExceeded) { t.Error("the limiter decided nothing") }})
	assert.NoError(t, down(t.Context(), from("ann")), "a dry run rejects no message")
}

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

// TestKeyFunctions_KeyOfIngressContextRefunds computes the key as a handler does for a refund.
func TestKeyFunctions_KeyOfIngressContextRefunds(t *testing.T) {
	limiter := memory.NewLimiter(limit.PerHour(1))
	in := from("ann")
	admit := ratelimit.New(limiter, nil)
	assert.NoError(t, admit(t.Context(), in))
	assert.Error(t, admit(t.Context(), in))
	assert.NoError(t, limit.Refund(t.Context(), limiter, ratelimit.KeyPerUserOrIPPerType(in), 1))
	assert.NoError(t, admit(t.Context(), in))
}

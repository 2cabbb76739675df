package limit

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/limit/mode"
)

// Wait takes cost tokens from key's bucket as soon as it holds them, and returns nil when the
// caller may proceed. It is for workers and clients that would rather be late than rejected.
//
// If the limiter can do a [Take] with MaxWait, callers proceed in the order of their calls, as far
// as it reserves; otherwise it is asked again after each RetryAfter. Wait returns at once with
// RESOURCE_EXHAUSTED if the wait would end after ctx's deadline, and with FAILED_PRECONDITION if
// the cost is never allowed. It returns ctx's error if ctx ends first, and the limiter's errors.
// What was reserved is undone then.
func Wait(ctx context.Context, l Limiter, key Key, cost int64) error {
	reserves := check(l, Take{MaxWait: maxReserve, Receipt: true}) == nil && check(l, Take{Mode: mode.Looking}) == nil
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		take := Take{Cost: cost}
		if reserves {
			take.MaxWait, take.Receipt = maxWait(ctx), true
		}
		d, err := l.Take(ctx, key, take)
		switch {
		case err != nil:
			return err
		case d.Allowed && d.RetryAfter == 0:
			return nil
		case d.RetryAfter == Never:
			return errors.Errorf(errors.FailedPrecondition, "a cost of %d is above the limit of %d and never allowed", cost, d.Limit)
		case !d.Allowed:
			if err := checkDeadline(ctx, l, key, take, d); err != nil {
				return err
			}
		}
		if err = rules.Sleep(ctx, d.RetryAfter); err != nil {
			undoEach(ctx, []Request{{Limiter: l, Key: key}}, []Decision{d})
		}
		if err != nil || d.Allowed {
			return err
		}
	}
}

// checkDeadline returns an error if a cost that was denied can only be spent after ctx's deadline.
// A reservation may have been denied although it can be spent before: windows reserve no more than
// the next one.
func checkDeadline(ctx context.Context, l Limiter, key Key, take Take, denial Decision) error {
	spent := denial
	if take.MaxWait > 0 {
		var err error
		if spent, err = l.Take(ctx, key, Take{Cost: take.Cost, Mode: mode.Looking}); err != nil {
			return err
		}
	}
	if spent.Allowed || !endsWithin(ctx, spent.RetryAfter) {
		return nil
	}
	return &errors.Error{
		Code:       errors.ResourceExhausted,
		Message:    "the tokens return after the deadline",
		RetryAfter: denial.RetryAfter,
	}
}

// maxWait returns for how long a limiter can reserve before ctx ends.
func maxWait(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return max(min(maxReserve, time.Until(deadline)), 0)
	}
	return maxReserve
}

// endsWithin reports whether ctx has a deadline before d has passed.
func endsWithin(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < d
}

package limit

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// Wait takes cost tokens from key's bucket as soon as it holds them, and returns nil when the
// caller may proceed. It is for workers and clients that would rather be late than rejected.
//
// If the limiter can do a [Take] with MaxWait, callers proceed in the order of their calls; other
// limiters are asked again after each RetryAfter. Wait returns at once with RESOURCE_EXHAUSTED if the
// wait would end after ctx's deadline, and with FAILED_PRECONDITION if the cost is never
// allowed. It returns ctx's error if ctx ends first, and the limiter's errors. What was reserved is
// undone then.
func Wait(ctx context.Context, l Limiter, key Key, cost int64) error {
	reserves := Check(l, Take{MaxWait: MaxReserve, Receipt: true}) == nil
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
		case !d.Allowed && endsWithin(ctx, take.MaxWait+d.RetryAfter):
			return &errors.Error{
				Code:       errors.ResourceExhausted,
				Message:    "the tokens return after the deadline",
				RetryAfter: d.RetryAfter,
			}
		}
		if err = sleep(ctx, d.RetryAfter); err != nil {
			undoEach(ctx, []Request{{Limiter: l, Key: key}}, []Decision{d})
		}
		if err != nil || d.Allowed {
			return err
		}
	}
}

// maxWait returns for how long a limiter can reserve before ctx ends.
func maxWait(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return max(min(MaxReserve, time.Until(deadline)), 0)
	}
	return MaxReserve
}

// endsWithin reports whether ctx has a deadline before d has passed.
func endsWithin(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < d
}

// sleep returns after d, or with ctx's error.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

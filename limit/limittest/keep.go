package limittest

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
)

// keeping runs check if the limiter can keep tokens. Its argument keep consumes and compares the
// Decision.
func keeping(h Harness, p limit.Policy, check func(b bench, keep func(cost, keep int64, want limit.Decision) error) error) error {
	l := h.New(p)
	if !can(l, limit.Take{Keep: 1}) {
		return nil
	}
	return check(bench{l}, func(cost, keep int64, want limit.Decision) error {
		got, err := l.Take(context.Background(), key("ann"), limit.Take{Cost: cost, Keep: keep, Receipt: true})
		if err != nil {
			return fmt.Errorf("ConsumeKeeping(%d, %d): %w", cost, keep, err)
		}
		got.Receipt = limit.Receipt{}
		if got != want {
			return fmt.Errorf("ConsumeKeeping(%d, %d) is %+v, want %+v", cost, keep, got, want)
		}
		return nil
	})
}

func keepLeavesTokens(h Harness) error {
	return keeping(h, limit.PerMinute(3).Burst(5).Named("keep"), func(b bench, keep func(cost, keep int64, want limit.Decision) error) error {
		if err := errors.Join(
			keep(1, 4, limit.Decision{Allowed: true, Limit: 5, Remaining: 4, ResetAfter: 20 * time.Second}),
			keep(1, 4, limit.Decision{Limit: 5, Remaining: 4, RetryAfter: 20 * time.Second, ResetAfter: 20 * time.Second}),
			keep(2, 3, limit.Decision{Limit: 5, Remaining: 4, RetryAfter: 20 * time.Second, ResetAfter: 20 * time.Second}),
			keep(0, 5, limit.Decision{Limit: 5, Remaining: 4, RetryAfter: 20 * time.Second, ResetAfter: 20 * time.Second}),
			keep(0, 4, limit.Decision{Allowed: true, Limit: 5, Remaining: 4, ResetAfter: 20 * time.Second}),
		); err != nil {
			return err
		}
		h.Sleep(20*time.Second - time.Millisecond)
		if err := keep(1, 4, limit.Decision{Limit: 5, Remaining: 4, RetryAfter: time.Millisecond, ResetAfter: time.Millisecond}); err != nil {
			return err
		}
		h.Sleep(time.Millisecond)
		return errors.Join(
			keep(1, 4, limit.Decision{Allowed: true, Limit: 5, Remaining: 4, ResetAfter: 20 * time.Second}),
			b.want(key("ann"), 4, limit.Decision{Allowed: true, Limit: 5, ResetAfter: 100 * time.Second}),
		)
	})
}

func keepNothing(h Harness) error {
	return keeping(h, limit.PerMinute(3).Burst(5).Named("keep-nothing"), func(_ bench, keep func(cost, keep int64, want limit.Decision) error) error {
		return errors.Join(
			keep(0, 0, limit.Decision{Allowed: true, Limit: 5, Remaining: 5}),
			keep(5, 0, limit.Decision{Allowed: true, Limit: 5, ResetAfter: 100 * time.Second}),
			keep(0, 0, limit.Decision{Allowed: true, Limit: 5, ResetAfter: 100 * time.Second}),
			keep(2, 0, limit.Decision{Limit: 5, RetryAfter: 40 * time.Second, ResetAfter: 100 * time.Second}),
		)
	})
}

func keepAboveCapacity(h Harness) error {
	return keeping(h, limit.PerMinute(3).Burst(5).Named("keep-above"), func(b bench, keep func(cost, keep int64, want limit.Decision) error) error {
		never := limit.Decision{Limit: 5, Remaining: 5, RetryAfter: limit.Never}
		for _, c := range [][2]int64{{1, 5}, {0, 6}, {6, 0}, {5, 1}, {1, math.MaxInt64}, {math.MaxInt64, math.MaxInt64}} {
			if err := keep(c[0], c[1], never); err != nil {
				return err
			}
		}
		for _, c := range [][2]int64{{-1, 0}, {1, -1}, {0, math.MinInt64}} {
			d, err := limit.ConsumeKeeping(context.Background(), b, key("ann"), c[0], c[1])
			if err == nil || d != (limit.Decision{}) {
				return fmt.Errorf("ConsumeKeeping(%d, %d) is %+v with error %q; want the zero Decision and an error", c[0], c[1], d, fmt.Sprint(err))
			}
		}
		return b.want(key("ann"), 0, limit.Decision{Allowed: true, Limit: 5, Remaining: 5})
	})
}

package limittest

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/mode"
)

// partially runs check if the limiter can take a part. Its argument take consumes and
// compares the result.
func partially(h Harness, p limit.Policy, check func(b bench, take func(most, granted int64, want limit.Decision) error) error) error {
	l := h.New(p)
	if !can(l, limit.Take{Mode: mode.Partial}) {
		return nil
	}
	return check(bench{l}, func(most, granted int64, want limit.Decision) error {
		n, got, err := limit.ConsumeUpTo(context.Background(), l, key("ann"), most)
		if err != nil {
			return fmt.Errorf("ConsumeUpTo(%d): %w", most, err)
		}
		if n != granted || got != want {
			return fmt.Errorf("ConsumeUpTo(%d) is %d with %+v, want %d with %+v", most, n, got, granted, want)
		}
		return nil
	})
}

func partIsGranted(h Harness) error {
	return partially(h, limit.PerMinute(3).Burst(5).Named("partial"), func(b bench, take func(most, granted int64, want limit.Decision) error) error {
		empty := limit.Decision{Allowed: true, Limit: 5, ResetAfter: 100 * time.Second}
		denied := limit.Decision{Limit: 5, RetryAfter: 20 * time.Second, ResetAfter: 100 * time.Second}
		if err := errors.Join(
			take(2, 2, limit.Decision{Allowed: true, Limit: 5, Remaining: 3, ResetAfter: 40 * time.Second}),
			take(500, 3, empty),
			take(500, 0, denied),
			take(1, 0, denied),
			take(0, 0, empty),
		); err != nil {
			return err
		}
		h.Sleep(50 * time.Second) // two tokens and a half
		if err := take(math.MaxInt64, 2, limit.Decision{Allowed: true, Limit: 5, ResetAfter: 90 * time.Second}); err != nil {
			return err
		}
		return b.want(key("ann"), 1, limit.Decision{Limit: 5, RetryAfter: 10 * time.Second, ResetAfter: 90 * time.Second})
	})
}

func negativePart(h Harness) error {
	return partially(h, limit.PerHour(5).Named("partial-negative"), func(b bench, take func(most, granted int64, want limit.Decision) error) error {
		for _, most := range []int64{-1, math.MinInt64} {
			n, d, err := limit.ConsumeUpTo(context.Background(), b, key("ann"), most)
			if err == nil || n != 0 || d != (limit.Decision{}) {
				return fmt.Errorf("ConsumeUpTo(%d) is %d with %+v and error %q; want 0, the zero Decision and an error", most, n, d, fmt.Sprint(err))
			}
		}
		full := limit.Decision{Allowed: true, Limit: 5, Remaining: 5}
		return errors.Join(take(0, 0, full), b.want(key("ann"), 0, full))
	})
}

package limittest

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/penstock-go/penstock/limit"
)

// chargeable runs check if the limiter can charge. Its argument charge charges.
func chargeable(h Harness, p limit.Policy, check func(b bench, charge func(cost int64) error) error) error {
	l := h.New(p)
	if !can(l, limit.Take{Mode: limit.Charging}) {
		return nil
	}
	return check(bench{l}, func(cost int64) error { return limit.Charge(context.Background(), l, key("ann"), cost) })
}

func chargeTakesDeficit(h Harness) error {
	return chargeable(h, limit.PerMinute(3).Burst(5).Named("charge"), func(b bench, charge func(cost int64) error) error {
		for _, step := range []struct {
			charge int64
			lacks  int64 // tokens that the bucket lacks afterwards
		}{
			{3, 3},
			{0, 3},
			{1, 4},
			{3, 7}, // a deficit of 2
			{2, 7}, // it may not be larger than the charge
			{1, 7},
			{3, 8},
			{5, 10},
			{5, 10},
		} {
			if err := charge(step.charge); err != nil {
				return fmt.Errorf("a charge of %d: %w", step.charge, err)
			}
			want := limit.Decision{
				Allowed:    true,
				Limit:      5,
				Remaining:  max(0, 5-step.lacks),
				ResetAfter: time.Duration(step.lacks) * 20 * time.Second,
			}
			if err := b.want(key("ann"), 0, want); err != nil {
				return fmt.Errorf("after a charge of %d: %w", step.charge, err)
			}
		}
		h.Sleep(6*20*time.Second - time.Millisecond)
		if _, err := b.allowed(key("ann"), 1, false); err != nil {
			return err
		}
		h.Sleep(time.Millisecond)
		if err := b.want(key("ann"), 1, limit.Decision{Allowed: true, Limit: 5, ResetAfter: 100 * time.Second}); err != nil {
			return err
		}
		return b.want(key("bob"), 5, limit.Decision{Allowed: true, Limit: 5, ResetAfter: 100 * time.Second})
	})
}

func chargeOfNothing(h Harness) error {
	ctx := context.Background()
	return chargeable(h, limit.PerHour(5).Named("charge-nothing"), func(b bench, charge func(cost int64) error) error {
		for _, cost := range []int64{-1, math.MinInt64, 6, math.MaxInt64} {
			if charge(cost) == nil {
				return fmt.Errorf("a charge of %d is no error", cost)
			}
		}
		if err := charge(0); err != nil {
			return fmt.Errorf("a charge of 0: %w", err)
		}
		full := limit.Decision{Allowed: true, Limit: 5, Remaining: 5}
		if err := b.want(key("ann"), 0, full); err != nil {
			return err
		}
		l, ok := b.Limiter.(limit.Blocker)
		if !ok {
			return nil
		}
		if err := l.Block(ctx, key("ann"), time.Minute); err != nil {
			return fmt.Errorf("a block: %w", err)
		}
		if err := charge(5); err != nil {
			return fmt.Errorf("a charge of a blocked key: %w", err)
		}
		h.Sleep(time.Minute)
		return b.want(key("ann"), 0, full)
	})
}

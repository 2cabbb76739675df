package limittest

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
)

// chargeable runs check if the limiter can charge. Its argument charge charges.
func chargeable(h Harness, p limit.Policy, check func(b bench, charge func(cost int64) error) error) error {
	l := h.New(p)
	if !can(l, limit.Take{Mode: mode.Charging}) {
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
			{1, 8},
			{2, 10},
			{350, 360}, // more than the capacity
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
		h.Sleep(356*20*time.Second - time.Millisecond)
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

func chargeOfEverything(h Harness) error {
	policy := limit.PerSecond(1000).Burst(5).Named("charge-everything")
	return chargeable(h, policy, func(b bench, charge func(cost int64) error) error {
		for range 2 {
			if err := charge(math.MaxInt64); err != nil {
				return fmt.Errorf("a charge of everything: %w", err)
			}
		}
		units := adapter.UnitsOf(policy)
		missing := adapter.MaxDeficit / units.PerToken() * units.PerToken()
		got, err := limit.Consume(context.Background(), b, key("ann"), 0)
		if err != nil {
			return err
		}
		if least, most := time.Duration(missing)*time.Microsecond, adapter.MaxDeficit*time.Microsecond; got.ResetAfter < least || got.ResetAfter > most {
			return fmt.Errorf("after a charge of everything, the bucket is full after %v, want from %v to %v", got.ResetAfter, least, most)
		}
		_, err = b.allowed(key("ann"), 1, false)
		return err
	})
}

func chargeOfNothing(h Harness) error {
	ctx := context.Background()
	return chargeable(h, limit.PerHour(5).Named("charge-nothing"), func(b bench, charge func(cost int64) error) error {
		for _, cost := range []int64{-1, math.MinInt64} {
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

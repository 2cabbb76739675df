package limittest

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
)

// refundable runs check if the limiter can return tokens.
func refundable(h Harness, p limit.Policy, check func(bench) error) error {
	l := h.New(p)
	if !can(l, limit.Take{Mode: mode.Returning}) {
		return nil
	}
	return check(bench{l})
}

func refundReturnsTokens(h Harness) error {
	ctx := context.Background()
	return refundable(h, limit.PerMinute(3).Burst(5).Named("refund"), func(b bench) error {
		if err := b.want(key("ann"), 5, limit.Decision{Allowed: true, Limit: 5, ResetAfter: 100 * time.Second}); err != nil {
			return err
		}
		h.Sleep(10 * time.Second) // half a token
		if _, err := b.allowed(key("ann"), 1, false); err != nil {
			return err
		}
		if err := limit.Refund(ctx, b, key("ann"), 2); err != nil {
			return fmt.Errorf("a refund: %w", err)
		}
		return errors.Join(
			b.want(key("ann"), 2, limit.Decision{Allowed: true, Limit: 5, ResetAfter: 90 * time.Second}),
			b.want(key("ann"), 1, limit.Decision{Limit: 5, RetryAfter: 10 * time.Second, ResetAfter: 90 * time.Second}),
			b.want(key("bob"), 0, limit.Decision{Allowed: true, Limit: 5, Remaining: 5}),
		)
	})
}

func refundStopsAtCapacity(h Harness) error {
	ctx := context.Background()
	full := limit.Decision{Allowed: true, Limit: 5, Remaining: 5}
	return refundable(h, limit.PerMinute(3).Burst(5).Named("refund-full"), func(b bench) error {
		for _, tokens := range []int64{1, 3, 5, 6, 1 << 40, math.MaxInt64} {
			if err := limit.Refund(ctx, b, key("ann"), tokens); err != nil {
				return fmt.Errorf("a refund of %d to a full bucket: %w", tokens, err)
			}
			if err := b.want(key("ann"), 0, full); err != nil {
				return err
			}
			if _, err := b.allowed(key("ann"), 1, true); err != nil {
				return err
			}
			if err := limit.Refund(ctx, b, key("ann"), tokens); err != nil {
				return fmt.Errorf("a refund of %d: %w", tokens, err)
			}
			if err := b.want(key("ann"), 0, full); err != nil {
				return err
			}
		}
		return nil
	})
}

func refundOfNothing(h Harness) error {
	ctx := context.Background()
	return refundable(h, limit.PerMinute(3).Named("refund-nothing"), func(b bench) error {
		if _, err := b.allowed(key("ann"), 3, true); err != nil {
			return err
		}
		if err := limit.Refund(ctx, b, key("ann"), 0); err != nil {
			return fmt.Errorf("a refund of 0: %w", err)
		}
		for _, tokens := range []int64{-1, math.MinInt64} {
			if limit.Refund(ctx, b, key("ann"), tokens) == nil {
				return fmt.Errorf("a refund of %d is no error", tokens)
			}
		}
		_, err := b.allowed(key("ann"), 1, false)
		return err
	})
}

func resetFills(h Harness) error {
	ctx := context.Background()
	return refundable(h, limit.PerHour(3).Named("reset"), func(b bench) error {
		a, ok := b.Limiter.(adapter.Resetter)
		if !ok {
			return nil
		}
		for _, k := range []limit.Key{key("ann"), key("bob")} {
			if _, err := b.allowed(k, 3, true); err != nil {
				return err
			}
			if _, err := b.allowed(k, 1, false); err != nil {
				return err
			}
		}
		if err := a.Reset(ctx, key("ann")); err != nil {
			return fmt.Errorf("a reset: %w", err)
		}
		if err := a.Reset(ctx, key("unused")); err != nil {
			return fmt.Errorf("a reset of an unused key: %w", err)
		}
		if _, err := b.allowed(key("ann"), 3, true); err != nil {
			return err
		}
		_, err := b.allowed(key("bob"), 1, false)
		return err
	})
}

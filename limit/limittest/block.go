package limittest

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
)

// blockable runs check if the limiter is a Blocker.
func blockable(h Harness, p limit.Policy, check func(bench, limit.Blocker) error) error {
	l := h.New(p)
	if b, ok := l.(limit.Blocker); ok {
		return check(bench{l}, b)
	}
	return nil
}

func blockDenies(h Harness) error {
	ctx := context.Background()
	p := limit.PerMinute(7).Burst(5)
	denied := func(left time.Duration) limit.Decision {
		return limit.Decision{Limit: 5, RetryAfter: left, ResetAfter: left, Reason: limit.Blocked}
	}
	for i, taken := range []int64{0, 5} { // an unused bucket and an empty one
		err := blockable(h, p.Named(fmt.Sprint("block-", i)), func(b bench, l limit.Blocker) error {
			never := denied(time.Hour)
			never.RetryAfter = limit.Never
			if _, err := b.allowed(key("ann"), taken, true); err != nil {
				return err
			}
			if err := l.Block(ctx, key("ann"), time.Hour); err != nil {
				return fmt.Errorf("a block: %w", err)
			}
			if err := errors.Join(
				b.want(key("ann"), 1, denied(time.Hour)),
				b.want(key("ann"), 0, denied(time.Hour)),
				b.want(key("ann"), 6, never),
				b.want(key("bob"), 0, limit.Decision{Allowed: true, Limit: 5, Remaining: 5}),
			); err != nil {
				return err
			}
			h.Sleep(time.Hour - time.Microsecond)
			if err := b.want(key("ann"), 5, denied(time.Microsecond)); err != nil {
				return err
			}
			h.Sleep(time.Microsecond)
			if err := b.want(key("ann"), 0, limit.Decision{Allowed: true, Limit: 5, Remaining: 5}); err != nil {
				return err
			}
			if _, err := b.allowed(key("ann"), 5, true); err != nil {
				return err
			}
			_, err := b.allowed(key("ann"), 1, false)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func blockCanBeChanged(h Harness) error {
	ctx := context.Background()
	return blockable(h, limit.PerHour(5).Named("block-changes"), func(b bench, l limit.Blocker) error {
		denied := func(left time.Duration) limit.Decision {
			return limit.Decision{Limit: 5, RetryAfter: left, ResetAfter: left, Reason: limit.Blocked}
		}
		for _, d := range []time.Duration{time.Minute, time.Hour, time.Second} {
			if err := l.Block(ctx, key("ann"), d); err != nil {
				return fmt.Errorf("a block: %w", err)
			}
			// An adapter may cache denials for up to a second; the cache must follow the block.
			h.Sleep(100 * time.Millisecond)
			if err := b.want(key("ann"), 1, denied(d-100*time.Millisecond)); err != nil {
				return err
			}
			if err := limit.Refund(ctx, l, key("ann"), 5); err != nil {
				return fmt.Errorf("a refund: %w", err)
			}
			if err := b.want(key("ann"), 1, denied(d-100*time.Millisecond)); err != nil {
				return err
			}
		}
		if err := l.Reset(ctx, key("ann")); err != nil {
			return fmt.Errorf("a reset: %w", err)
		}
		_, err := b.allowed(key("ann"), 5, true)
		return err
	})
}

func blockOfInvalidDuration(h Harness) error {
	return blockable(h, limit.PerHour(5).Named("block-nothing"), func(b bench, l limit.Blocker) error {
		for _, d := range []time.Duration{-time.Second, 0, time.Nanosecond, 366 * 24 * time.Hour, limit.Never} {
			if l.Block(context.Background(), key("ann"), d) == nil {
				return fmt.Errorf("a block of %v is no error", d)
			}
		}
		if err := l.Block(context.Background(), key("bob"), 365*24*time.Hour); err != nil {
			return fmt.Errorf("a block of a year: %w", err)
		}
		_, err := b.allowed(key("ann"), 5, true)
		return err
	})
}

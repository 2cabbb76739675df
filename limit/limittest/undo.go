package limittest

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/mode"
)

// undoable runs check if the limiter can undo a Take.
func undoable(h Harness, p limit.Policy, check func(undoBench) error) error {
	l := h.New(p)
	if !can(l, limit.Take{Mode: mode.Undoing}) {
		return nil
	}
	return check(undoBench{bench{l}})
}

// An undoBench is a limiter under test that can undo a Take.
type undoBench struct{ bench }

// take takes from ann's bucket and returns the receipt.
func (b undoBench) take(take limit.Take) (limit.Receipt, error) {
	take.Receipt = true
	d, err := b.Take(context.Background(), key("ann"), take)
	if err == nil && !d.Allowed {
		err = fmt.Errorf("%+v is denied: %+v", take, d)
	}
	return d.Receipt, err
}

// undo undoes a Take and compares what ann's bucket holds then.
func (b undoBench) undo(r limit.Receipt, remaining int64, resetAfter time.Duration) error {
	if err := r.Undo(context.Background(), b, key("ann")); err != nil {
		return fmt.Errorf("undoing %+v: %w", r, err)
	}
	return b.holds(remaining, resetAfter)
}

func (b undoBench) holds(remaining int64, resetAfter time.Duration) error {
	d, err := limit.Inspect(context.Background(), b, key("ann"))
	if err == nil && (d.Remaining != remaining || d.ResetAfter != resetAfter) {
		err = fmt.Errorf("the bucket is %+v, want Remaining %d and ResetAfter %v", d, remaining, resetAfter)
	}
	return err
}

func undoOfRefunded(h Harness) error {
	return undoable(h, limit.PerMinute(6).Burst(10).Named("undo-refunded"), func(b undoBench) error {
		four, err := b.take(limit.Take{Cost: 4})
		_, refunded := b.Take(context.Background(), key("ann"), limit.Take{Cost: 4, Mode: mode.Returning})
		_, three := b.allowed(key("ann"), 3, true)
		if err := cmp.Or(err, refunded, three); err != nil {
			return err
		}
		return b.undo(four, 7, 30*time.Second)
	})
}

func undoReturnsWhatWasTaken(h Harness) error {
	return undoable(h, limit.PerMinute(6).Burst(10).Named("undo"), func(b undoBench) error {
		four, err := b.take(limit.Take{Cost: 4})
		if err != nil {
			return err
		}
		if err := b.undo(four, 10, 0); err != nil {
			return fmt.Errorf("at once: %w", err)
		}
		if four, err = b.take(limit.Take{Cost: 4}); err != nil {
			return err
		}
		h.Sleep(15 * time.Second) // one token and a half
		if err := b.undo(four, 10, 0); err != nil {
			return fmt.Errorf("after a time: %w", err)
		}
		if four, err = b.take(limit.Take{Cost: 4}); err != nil {
			return err
		}
		h.Sleep(40 * time.Second) // all of them
		if _, err := b.take(limit.Take{Cost: 10}); err != nil {
			return err
		}
		if err := b.undo(four, 0, 100*time.Second); err != nil {
			return fmt.Errorf("of tokens that have returned: %w", err)
		}
		h.Sleep(100 * time.Second)
		return undosOverlap(h, b)
	})
}

// undosOverlap undoes two Takes, between which tokens return and others are taken. The bucket is full.
func undosOverlap(h Harness, b undoBench) error {
	var receipts [2]limit.Receipt
	for i := range receipts {
		var err error
		if receipts[i], err = b.take(limit.Take{Cost: 5}); err != nil {
			return err
		}
	}
	if err := b.undo(receipts[0], 5, 50*time.Second); err != nil {
		return fmt.Errorf("the first of two: %w", err)
	}
	h.Sleep(30 * time.Second) // three tokens
	if _, err := b.take(limit.Take{Cost: 5}); err != nil {
		return err
	}
	// Without the calls that are undone, the bucket would lack 5 tokens.
	if err := b.undo(receipts[1], 5, 50*time.Second); err != nil {
		return fmt.Errorf("the second of two: %w", err)
	}
	return nil
}

func undoOfReservation(h Harness) error {
	return undoable(h, limit.PerSecond(1).Burst(5).Named("undo-reserve"), func(b undoBench) error {
		if !can(b.Limiter, limit.Take{MaxWait: time.Minute, Receipt: true}) {
			return nil
		}
		if _, err := b.take(limit.Take{Cost: 5}); err != nil {
			return err
		}
		three, err := b.take(limit.Take{Cost: 3, MaxWait: time.Minute})
		if err != nil {
			return err
		}
		h.Sleep(2500 * time.Millisecond)
		if err := b.undo(three, 2, 2500*time.Millisecond); err != nil {
			return fmt.Errorf("before its time: %w", err)
		}
		if three, err = b.take(limit.Take{Cost: 3, MaxWait: time.Minute}); err != nil {
			return err
		}
		h.Sleep(1500 * time.Millisecond) // a second after the bucket held three
		return b.undo(three, 4, time.Second)
	})
}

func undoAfterChange(h Harness) error {
	return undoable(h, limit.PerHour(10).Named("undo-change"), func(b undoBench) error {
		l, ok := b.Limiter.(limit.PolicySetter[limit.Policy])
		if !ok {
			return nil
		}
		four, err := b.take(limit.Take{Cost: 4})
		if err != nil {
			return err
		}
		if err := errors.Join(l.SetPolicy(limit.PerHour(10).Named("undo-change")), b.undo(four, 10, 0)); err != nil {
			return fmt.Errorf("no change: %w", err)
		}
		if four, err = b.take(limit.Take{Cost: 4}); err != nil {
			return err
		}
		if err := l.SetPolicy(limit.PerHour(20).Named("undo-change")); err != nil {
			return fmt.Errorf("a change: %w", err)
		}
		if err := b.undo(four, 16, 12*time.Minute); err != nil {
			return err
		}
		if four, err = b.take(limit.Take{Cost: 4}); err != nil {
			return err
		}
		return b.undo(four, 16, 12*time.Minute)
	})
}

func undoOfPart(h Harness) error {
	return undoable(h, limit.PerHour(10).Named("undo-part"), func(b undoBench) error {
		if !can(b.Limiter, limit.Take{Mode: mode.Partial, Receipt: true}) {
			return nil
		}
		if _, err := b.take(limit.Take{Cost: 7}); err != nil {
			return err
		}
		three, err := b.take(limit.Take{Cost: 5, Mode: mode.Partial})
		if err != nil {
			return err
		}
		return errors.Join(b.holds(0, time.Hour), b.undo(three, 3, 42*time.Minute))
	})
}

func noReceiptOfNothing(h Harness) error {
	return undoable(h, limit.PerHour(10).Named("undo-nothing"), func(b undoBench) error {
		for _, take := range []limit.Take{{}, {Cost: 11}, {Cost: 5, Mode: mode.Looking}} {
			take.Receipt = true
			d, err := b.Take(context.Background(), key("ann"), take)
			if err != nil {
				return fmt.Errorf("%+v: %w", take, err)
			}
			if d.Receipt != (limit.Receipt{}) {
				return fmt.Errorf("the receipt of %+v is %+v; it must be the zero one", take, d.Receipt)
			}
		}
		if _, err := b.take(limit.Take{Cost: 4}); err != nil {
			return err
		}
		return b.undo(limit.Receipt{}, 6, 24*time.Minute)
	})
}

func lookTakesNothing(h Harness) error {
	l := h.New(limit.PerMinute(6).Burst(5).Named("look"))
	if !can(l, limit.Take{Mode: mode.Looking}) {
		return nil
	}
	b := undoBench{bench{l}}
	for _, taken := range []int64{0, 2, 3} {
		if _, err := b.allowed(key("ann"), taken, true); err != nil {
			return err
		}
		for _, take := range []limit.Take{{}, {Cost: 2}, {Cost: 5}, {Cost: 6}, {Cost: 1, Keep: 2}, {Cost: 4, MaxWait: 20 * time.Second}} {
			if !can(l, take) {
				continue
			}
			if err := lookEquals(b, take); err != nil {
				return err
			}
		}
	}
	return nil
}

// lookEquals compares a look with the Take, whose tokens it refunds.
func lookEquals(b undoBench, take limit.Take) error {
	ctx, look := context.Background(), take
	look.Mode = mode.Looking
	seen, err := b.Take(ctx, key("ann"), look)
	if err != nil {
		return fmt.Errorf("a look at %+v: %w", take, err)
	}
	got, err := b.Take(ctx, key("ann"), take)
	if err != nil || got != seen {
		return fmt.Errorf("%+v is %+v with error %w; the look before was %+v", take, got, err, seen)
	}
	if got.Allowed {
		return limit.Refund(ctx, b, key("ann"), take.Cost)
	}
	return nil
}

func invalidTakes(h Harness) error {
	l := h.New(limit.PerHour(5).Named("invalid-takes"))
	for _, take := range []limit.Take{
		{Cost: -1},
		{Cost: -1, Receipt: true},
		{Keep: -1},
		{MaxWait: -1},
		{MaxWait: 2 * time.Hour},
		{Cost: 1, Keep: 1, MaxWait: 1},
		{Cost: 1, Keep: 1, Mode: mode.Partial},
		{Cost: 1, MaxWait: 1, Mode: mode.Charging},
		{Cost: 1, Keep: 1, Mode: mode.Undoing},
		{Mode: mode.Undoing, Undo: &limit.Receipt{Tokens: -1}},
		{Mode: mode.Settling, Undo: &limit.Receipt{Tokens: -1, Lease: 1}},
		{Cost: 1, Mode: mode.Settling + 1},
	} {
		d, err := l.Take(context.Background(), key("ann"), take)
		if err == nil || d != (limit.Decision{}) {
			return fmt.Errorf("%+v is %+v with error %q; want the zero Decision and an error", take, d, fmt.Sprint(err))
		}
		if can(l, take) {
			return fmt.Errorf("adapter.Check permits %+v", take)
		}
	}
	return nil
}

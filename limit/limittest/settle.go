package limittest

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
)

// busy runs check with a bucket of 20,000 that holds 10,000, and to which 1,000 return every second.
func busy(h Harness, name string, wants limit.Take, check func(leaseBench) error) error {
	l := h.New(limit.PerSecond(1000).Burst(20_000).Named(name))
	if !can(l, wants) {
		return nil
	}
	b := leaseBench{undoBench{bench{l}}}
	if _, err := b.allowed(key("ann"), 10_000, true); err != nil {
		return err
	}
	return check(b)
}

func settleOfBusyMeter(h Harness) error {
	wants := limit.Take{Lease: time.Minute, Receipt: true}
	return errors.Join(
		busy(h, "busy-meter", wants, func(b leaseBench) error {
			r, err := b.lease(2000, time.Minute)
			if err != nil {
				return err
			}
			h.Sleep(5 * time.Second)
			return b.settle(r, 500, 14_500, 5500*time.Millisecond)
		}),
		busy(h, "busy-meters", wants, func(b leaseBench) error { return settleOfWorkers(h, b) }),
		busy(h, "lost-refill", wants, func(b leaseBench) error { return settleAfterLostRefill(h, b) }),
	)
}

// settleOfWorkers has four workers with estimates of 2,000, each of whom uses 500 within a second, for
// a minute.
func settleOfWorkers(h Harness, b leaseBench) error {
	var open []limit.Receipt
	for second := range 60 {
		for len(open) < 4 {
			r, err := b.lease(2000, time.Hour)
			if err != nil {
				return fmt.Errorf("second %d: %w", second, err)
			}
			open = append(open, r)
			if len(open)%2 == 0 { // the others settle in the other order
				open[0], open[len(open)-1] = open[len(open)-1], open[0]
			}
		}
		h.Sleep(500 * time.Millisecond)
		for _, r := range open[:2] {
			if err := r.Settle(context.Background(), b, key("ann"), 250); err != nil {
				return fmt.Errorf("a settlement: %w", err)
			}
		}
		open = open[2:]
		h.Sleep(500 * time.Millisecond)
	}
	// Each second takes and returns 1,000 but for the first one, and the last: of 2 open estimates.
	for _, r := range open {
		if err := r.Settle(context.Background(), b, key("ann"), 0); err != nil {
			return fmt.Errorf("a settlement: %w", err)
		}
	}
	return b.holds(20_000, 0)
}

// settleAfterLostRefill has leases that overlap while the bucket would have been full.
func settleAfterLostRefill(h Harness, b leaseBench) error {
	first, err := b.lease(2000, time.Minute)
	if err != nil {
		return err
	}
	h.Sleep(11 * time.Second) // without it, the bucket is full since a second; 1,000 are missing
	second, err := b.lease(3000, time.Minute)
	if err != nil {
		return err
	}
	h.Sleep(500 * time.Millisecond)
	third, err := b.lease(4000, time.Minute)
	if err != nil {
		return err
	}
	h.Sleep(500 * time.Millisecond) // 7,000 are missing
	if err := b.settle(third, 2000, 15_000, 5*time.Second); err != nil {
		return fmt.Errorf("the third: %w", err)
	}
	if err := b.settle(first, 0, 16_000, 4*time.Second); err != nil {
		return fmt.Errorf("the first: %w", err)
	}
	// Without it as well, the bucket would have been full until the third.
	if err := b.settle(second, 0, 18_500, 1500*time.Millisecond); err != nil {
		return fmt.Errorf("the second: %w", err)
	}
	return nil
}

func undoDeductsLostRefillOnly(h Harness) error {
	return busy(h, "undo-busy", limit.Take{Mode: mode.Undoing}, func(b leaseBench) error {
		var receipts [2]limit.Receipt
		for i := range receipts {
			var err error
			if receipts[i], err = b.take(limit.Take{Cost: 2000}); err != nil {
				return err
			}
		}
		h.Sleep(5 * time.Second)
		if err := b.undo(receipts[1], 13_000, 7*time.Second); err != nil {
			return fmt.Errorf("the second of two: %w", err)
		}
		h.Sleep(6 * time.Second) // without the first one as well, the bucket is full since a second
		if _, err := b.allowed(key("ann"), 3000, true); err != nil {
			return err
		}
		if err := b.undo(receipts[0], 17_000, 3*time.Second); err != nil {
			return fmt.Errorf("the first of two: %w", err)
		}
		return nil
	})
}

// settledLeasesLeaveRoom settles more leases of the longest time than a key may have at once.
func settledLeasesLeaveRoom(h Harness) error {
	l := h.New(limit.PerHour(1).Burst(20_000).Named("leases-settled"))
	if !can(l, limit.Take{Lease: time.Minute, Receipt: true}) {
		return nil
	}
	b := leaseBench{undoBench{bench{l}}}
	var second limit.Receipt
	for i := range int64(adapter.MaxLeases + 1) {
		r, err := b.lease(10, limit.MaxLease)
		if err != nil {
			return fmt.Errorf("lease %d: %w", i+1, err)
		}
		if i == 1 {
			second = r
		}
		h.Sleep(time.Millisecond)
		if err := r.Settle(context.Background(), b, key("ann"), 5); err != nil {
			return fmt.Errorf("settlement %d: %w", i+1, err)
		}
	}
	if _, err := b.lease(10, limit.MaxLease); err != nil {
		return fmt.Errorf("after %d settled leases: %w", adapter.MaxLeases+1, err)
	}
	before, err := limit.Inspect(context.Background(), b, key("ann"))
	if err != nil {
		return err
	}
	return b.settle(second, 100, before.Remaining, before.ResetAfter)
}

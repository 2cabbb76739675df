package limittest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
)

// leasing runs check if the limiter has leases. A token returns every ten seconds to a bucket of ten.
func leasing(h Harness, name string, check func(leaseBench) error) error {
	l := h.New(limit.PerMinute(6).Burst(10).Named(name))
	if !can(l, limit.Take{Lease: time.Minute, Receipt: true}) {
		return nil
	}
	return check(leaseBench{undoBench{bench{l}}})
}

// A leaseBench is a limiter under test that has leases.
type leaseBench struct{ undoBench }

func (b leaseBench) lease(cost int64, length time.Duration) (limit.Receipt, error) {
	return b.take(limit.Take{Cost: cost, Lease: length})
}

// settle settles a lease and compares what ann's bucket holds then.
func (b leaseBench) settle(r limit.Receipt, used, remaining int64, resetAfter time.Duration) error {
	if err := r.Settle(context.Background(), b, key("ann"), used); err != nil {
		return fmt.Errorf("settling %+v: %w", r, err)
	}
	return b.holds(remaining, resetAfter)
}

func leaseEnds(h Harness) error {
	return leasing(h, "lease-ends", func(b leaseBench) error {
		if _, err := b.lease(6, 30*time.Second); err != nil {
			return err
		}
		h.Sleep(20 * time.Second) // two of the tokens have returned
		if _, err := b.take(limit.Take{Cost: 6}); err != nil {
			return err
		}
		h.Sleep(10*time.Second - time.Millisecond)
		if err := b.holds(0, 90*time.Second+time.Millisecond); err != nil {
			return fmt.Errorf("before the end: %w", err)
		}
		h.Sleep(time.Millisecond)
		// Four of the tokens return: the others were missing when the bucket would have been full.
		if err := b.holds(5, 50*time.Second); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
		if _, err := b.lease(4, 40*time.Second); err != nil {
			return err
		}
		if _, err := b.lease(0, 40*time.Second); err != nil {
			return err
		}
		h.Sleep(45 * time.Second) // without the second lease, half a token would be missing
		if err := b.holds(9, 5*time.Second); err != nil {
			return fmt.Errorf("long before the next call: %w", err)
		}
		h.Sleep(time.Hour)
		return b.holds(10, 0)
	})
}

// leasesEndInOrder ends leases without a call of the limiter: a full bucket gets nothing.
func leasesEndInOrder(h Harness) error {
	return leasing(h, "leases-in-order", func(b leaseBench) error {
		for _, l := range []struct {
			cost   int64
			length time.Duration
		}{{2, 12 * time.Second}, {4, 10 * time.Second}, {3, 2 * time.Second}} {
			if _, err := b.lease(l.cost, l.length); err != nil {
				return err
			}
		}
		h.Sleep(11 * time.Second) // 2 tokens have been missing from the start, of which 1.1 have returned
		if err := b.holds(9, 9*time.Second); err != nil {
			return err
		}
		h.Sleep(time.Second)
		return b.holds(10, 0)
	})
}

func settleReturnsTheRest(h Harness) error {
	return leasing(h, "settle-less", func(b leaseBench) error {
		six, err := b.lease(6, time.Minute)
		if err != nil {
			return err
		}
		if err := b.settle(six, 4, 6, 40*time.Second); err != nil {
			return fmt.Errorf("at once: %w", err)
		}
		h.Sleep(40 * time.Second)
		if six, err = b.lease(6, time.Hour); err != nil {
			return err
		}
		h.Sleep(50 * time.Second) // five have returned
		if _, err := b.take(limit.Take{Cost: 9}); err != nil {
			return err
		}
		if err := b.settle(six, 2, 1, 90*time.Second); err != nil { // the bucket would have been full after two
			return fmt.Errorf("after a time: %w", err)
		}
		h.Sleep(90 * time.Second)
		if six, err = b.lease(6, time.Hour); err != nil {
			return err
		}
		return b.settle(six, 6, 4, time.Minute)
	})
}

func settleTakesTheExcess(h Harness) error {
	return leasing(h, "settle-more", func(b leaseBench) error {
		six, err := b.lease(6, time.Minute)
		if err != nil {
			return err
		}
		if err := b.settle(six, 356, 0, 3560*time.Second); err != nil {
			return err
		}
		h.Sleep(3560*time.Second - 10*time.Second - time.Millisecond)
		if _, err := b.allowed(key("ann"), 8, true); err != nil {
			return err
		}
		_, err = b.allowed(key("ann"), 1, false)
		return err
	})
}

func settleAfterTheEnd(h Harness) error {
	return leasing(h, "settle-late", func(b leaseBench) error {
		six, err := b.lease(6, time.Second)
		if err != nil {
			return err
		}
		h.Sleep(time.Second)
		if err := b.settle(six, 7, 3, 70*time.Second); err != nil {
			return fmt.Errorf("after the end: %w", err)
		}
		l, ok := b.Limiter.(limit.Blocker)
		if !ok {
			return nil
		}
		h.Sleep(70 * time.Second)
		if six, err = b.lease(6, time.Minute); err != nil {
			return err
		}
		if err := l.Reset(context.Background(), key("ann")); err != nil {
			return fmt.Errorf("a reset: %w", err)
		}
		if err := b.settle(six, 2, 8, 20*time.Second); err != nil {
			return fmt.Errorf("after a reset: %w", err)
		}
		h.Sleep(20 * time.Second)
		if six, err = b.lease(6, time.Minute); err != nil {
			return err
		}
		if err := l.Block(context.Background(), key("ann"), time.Second); err != nil {
			return fmt.Errorf("a block: %w", err)
		}
		if err := b.settle(six, 10, 0, time.Second); err != nil {
			return fmt.Errorf("during a block: %w", err)
		}
		h.Sleep(time.Second)
		return b.holds(10, 0)
	})
}

func settleTwice(h Harness) error {
	return leasing(h, "settle-twice", func(b leaseBench) error {
		for _, used := range []int64{2, 12} {
			six, err := b.lease(6, time.Hour)
			if err != nil {
				return err
			}
			resetAfter := time.Duration(used) * 10 * time.Second
			for range 2 {
				if err := b.settle(six, used, max(10-used, 0), resetAfter); err != nil {
					return err
				}
			}
			if err := b.undo(six, max(10-used, 0), resetAfter); err != nil {
				return fmt.Errorf("undoing what is settled: %w", err)
			}
			h.Sleep(2 * time.Hour)
		}
		six, err := b.lease(6, time.Hour)
		if err != nil {
			return err
		}
		if err := errors.Join(b.undo(six, 10, 0), b.undo(six, 10, 0)); err != nil {
			return fmt.Errorf("undoing a lease: %w", err)
		}
		if _, err := b.take(limit.Take{Cost: 5}); err != nil {
			return err
		}
		return b.settle(limit.Receipt{}, 2, 3, 70*time.Second)
	})
}

func leasesAreBounded(h Harness) error {
	l := h.New(limit.PerHour(1).Burst(2000).Named("leases-bounded"))
	if !can(l, limit.Take{Lease: time.Minute, Receipt: true}) {
		return nil
	}
	b := leaseBench{undoBench{bench{l}}}
	for i := range adapter.MaxLeases {
		if _, err := b.lease(1, time.Duration(adapter.MaxLeases-i)*time.Second); err != nil {
			return fmt.Errorf("lease %d: %w", i+1, err)
		}
	}
	ctx, one := context.Background(), limit.Take{Cost: 1, Lease: time.Minute, Receipt: true}
	d, err := b.Take(ctx, key("ann"), one)
	want := limit.Decision{Limit: 2000, Remaining: 1000, RetryAfter: time.Second, ResetAfter: 1000 * time.Hour}
	if d.Policy = ""; err != nil || d != want {
		return fmt.Errorf("one more lease is %+v with error %w, want %+v", d, err, want)
	}
	if d, err = b.Take(ctx, key("bob"), one); err != nil || !d.Allowed {
		return fmt.Errorf("a lease of another key is %+v with error %w", d, err)
	}
	h.Sleep(time.Second)
	if _, err := b.lease(1, time.Minute); err != nil {
		return fmt.Errorf("after the end of a lease: %w", err)
	}
	return nil
}

func leaseAfterChange(h Harness) error {
	return leasing(h, "lease-change", func(b leaseBench) error {
		l, ok := b.Limiter.(limit.PolicySetter[limit.Policy])
		if !ok {
			return nil
		}
		var receipts [3]limit.Receipt
		for i := range receipts {
			var err error
			if receipts[i], err = b.lease(3, time.Minute); err != nil {
				return err
			}
		}
		if err := l.SetPolicy(limit.PerHour(60).Burst(20).Named("lease-change")); err != nil {
			return fmt.Errorf("a change: %w", err)
		}
		if err := b.settle(receipts[0], 1, 11, 9*time.Minute); err != nil {
			return fmt.Errorf("a settlement of less: %w", err)
		}
		if err := b.settle(receipts[1], 5, 9, 11*time.Minute); err != nil {
			return fmt.Errorf("a settlement of more: %w", err)
		}
		h.Sleep(time.Minute)
		return b.holds(10, 10*time.Minute)
	})
}

func invalidLeases(h Harness) error {
	return leasing(h, "invalid-leases", func(b leaseBench) error {
		for _, take := range []limit.Take{
			{Cost: -1, Lease: time.Minute, Receipt: true},
			{Cost: 1, Lease: -time.Minute, Receipt: true},
			{Cost: 1, Lease: 1500 * time.Microsecond, Receipt: true},
			{Cost: 1, Lease: limit.MaxLease + time.Millisecond, Receipt: true},
			{Cost: 1, Lease: time.Minute},
			{Cost: 1, Lease: time.Minute, Receipt: true, Keep: 1},
			{Cost: 1, Lease: time.Minute, Receipt: true, MaxWait: time.Second},
			{Cost: 1, Lease: time.Minute, Receipt: true, Mode: mode.Looking},
			{Cost: 1, Lease: time.Minute, Receipt: true, Mode: mode.Partial},
			{Cost: -1, Mode: mode.Settling},
			{Cost: 1, Mode: mode.Settling, Undo: &limit.Receipt{Tokens: 1}},
			{Mode: mode.Undoing, Undo: &limit.Receipt{Tokens: 1, Lease: 1}},
		} {
			d, err := b.Take(context.Background(), key("ann"), take)
			if err == nil || d != (limit.Decision{}) || can(b.Limiter, take) {
				return fmt.Errorf("%+v is %+v with error %q; want the zero Decision and an error, and one of adapter.Check", take, d, fmt.Sprint(err))
			}
		}
		return b.holds(10, 0)
	})
}

func jointLeases(h Harness) error {
	users := h.New(limit.PerMinute(6).Burst(10).Named("lease-users"))
	rooms := h.New(limit.PerMinute(6).Burst(20).Named("lease-rooms"))
	take := limit.Take{Cost: 8, Lease: time.Minute, Receipt: true}
	if !can(users, take) {
		return nil
	}
	both, ctx := limit.AllOf(users, rooms), context.Background()
	holds := func(user, room int64) error {
		return errors.Join(undoBench{bench{users}}.holds(user, time.Duration(10-user)*10*time.Second),
			undoBench{bench{rooms}}.holds(room, time.Duration(20-room)*10*time.Second))
	}
	first, err := both.Take(ctx, key("ann"), take)
	if err != nil || !first.Allowed {
		return fmt.Errorf("a joint lease is %+v with error %w", first, err)
	}
	denied, err := both.Take(ctx, key("ann"), take)
	if err != nil || denied.Allowed || denied.Receipt != (limit.Receipt{}) {
		return fmt.Errorf("a second joint lease is %+v with error %w", denied, err)
	}
	if err := holds(2, 12); err != nil {
		return fmt.Errorf("after a denial: %w", err)
	}
	for range 2 {
		if err := first.Receipt.Settle(ctx, both, key("ann"), 5); err != nil {
			return fmt.Errorf("a settlement: %w", err)
		}
		if err := holds(5, 15); err != nil {
			return fmt.Errorf("after a settlement: %w", err)
		}
	}
	if first, err = both.Take(ctx, key("ann"), limit.Take{Cost: 5, Lease: time.Second, Receipt: true}); err != nil || !first.Allowed {
		return fmt.Errorf("a short joint lease is %+v with error %w", first, err)
	}
	h.Sleep(11 * time.Second)
	return errors.Join(undoBench{bench{users}}.holds(6, 39*time.Second), undoBench{bench{rooms}}.holds(16, 39*time.Second))
}

// randomLeases takes and settles leases of one key.
type randomLeases struct {
	rng     *rand.Rand
	limiter limit.Limiter
	model   *Model
	key     limit.Key
	taken   []limit.Receipt // by identifier in the model
}

// step takes or settles a lease, or does nothing.
func (r *randomLeases) step(t *testing.T, at time.Duration, cost int64, length time.Duration) {
	t.Helper()
	ctx := context.Background()
	switch r.rng.IntN(8) {
	case 0:
		length = max(min(length, limit.MaxLease).Truncate(time.Millisecond), time.Millisecond)
		got, err := r.limiter.Take(ctx, r.key, limit.Take{Cost: cost, Lease: length, Receipt: true})
		require.NoError(t, err)
		r.taken, got.Receipt = append(r.taken, got.Receipt), limit.Receipt{}
		require.Equal(t, r.model.Lease(at, cost, length, len(r.taken)-1), got, "a lease of %d for %v, at %v", cost, length, at)
	case 1:
		if len(r.taken) == 0 {
			return
		}
		id := len(r.taken) - 1 - r.rng.IntN(min(len(r.taken), 4))
		used := min(cost, 1<<30)
		require.NoError(t, r.taken[id].Settle(ctx, r.limiter, r.key, used))
		r.model.Settle(at, id, used)
		got, err := limit.Inspect(ctx, r.limiter, r.key)
		require.NoError(t, err)
		require.Equal(t, r.model.Consume(at, 0), got, "after settling %d of lease %d, at %v", used, id, at)
	}
}

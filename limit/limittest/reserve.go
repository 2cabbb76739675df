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

// A reserveBench is a limiter under test that can reserve.
type reserveBench struct {
	bench
}

// can reports whether a limiter can do a Take.
func can(l limit.Limiter, take limit.Take) bool { return adapter.Check(l, take) == nil }

// reservable runs check if the limiter can reserve.
func reservable(h Harness, p limit.Policy, check func(reserveBench) error) error {
	l := h.New(p)
	if can(l, limit.Take{MaxWait: time.Minute}) {
		return check(reserveBench{bench{l}})
	}
	return nil
}

func (q reserveBench) wantReserved(cost int64, maxWait time.Duration, want limit.Decision) error {
	got, err := limit.Reserve(context.Background(), q.Limiter, key("ann"), cost, maxWait)
	if err != nil {
		return fmt.Errorf("Reserve(%d, %v): %w", cost, maxWait, err)
	}
	got.Policy = ""
	if got != want {
		return fmt.Errorf("Reserve(%d, %v) is %+v, want %+v", cost, maxWait, got, want)
	}
	return nil
}

func reservationWaits(h Harness) error {
	return reservable(h, limit.PerMinute(3).Burst(5).Named("reserve"), func(q reserveBench) error {
		if err := q.wantReserved(4, time.Minute, limit.Decision{Allowed: true, Limit: 5, Remaining: 1, ResetAfter: 80 * time.Second}); err != nil {
			return err
		}
		h.Sleep(5 * time.Second)
		// The bucket holds one token and a quarter; the rest returns within the wait.
		if err := q.wantReserved(3, 35*time.Second, limit.Decision{Allowed: true, Limit: 5, RetryAfter: 35 * time.Second, ResetAfter: 135 * time.Second}); err != nil {
			return err
		}
		h.Sleep(35 * time.Second)
		if err := q.want(key("ann"), 0, limit.Decision{Allowed: true, Limit: 5, ResetAfter: 100 * time.Second}); err != nil {
			return err
		}
		h.Sleep(100 * time.Second)
		return q.want(key("ann"), 5, limit.Decision{Allowed: true, Limit: 5, ResetAfter: 100 * time.Second})
	})
}

func reservationsAreOrdered(h Harness) error {
	return reservable(h, limit.PerSecond(1).Named("reserve-order"), func(q reserveBench) error {
		for n := range time.Duration(6) {
			want := limit.Decision{Allowed: true, Limit: 1, RetryAfter: n * time.Second, ResetAfter: (n + 1) * time.Second}
			if err := q.wantReserved(1, 10*time.Second, want); err != nil {
				return err
			}
		}
		// A call that does not wait is denied until all reservations are served.
		if err := q.want(key("ann"), 1, limit.Decision{Limit: 1, RetryAfter: 6 * time.Second, ResetAfter: 6 * time.Second}); err != nil {
			return err
		}
		if err := q.want(key("ann"), 0, limit.Decision{Allowed: true, Limit: 1, ResetAfter: 6 * time.Second}); err != nil {
			return err
		}
		h.Sleep(6*time.Second - time.Millisecond)
		if _, err := q.allowed(key("ann"), 1, false); err != nil {
			return err
		}
		h.Sleep(time.Millisecond)
		_, err := q.allowed(key("ann"), 1, true)
		return err
	})
}

func reservationIsDenied(h Harness) error {
	return reservable(h, limit.PerSecond(2).Burst(4).Named("reserve-denied"), func(q reserveBench) error {
		if err := q.wantReserved(5, time.Hour, limit.Decision{Limit: 4, Remaining: 4, RetryAfter: limit.Never}); err != nil {
			return err
		}
		if err := q.wantReserved(4, 0, limit.Decision{Allowed: true, Limit: 4, ResetAfter: 2 * time.Second}); err != nil {
			return err
		}
		for range 3 {
			want := limit.Decision{Limit: 4, RetryAfter: time.Millisecond, ResetAfter: 2 * time.Second}
			if err := q.wantReserved(3, 1499*time.Millisecond, want); err != nil {
				return err
			}
		}
		h.Sleep(time.Millisecond)
		return q.wantReserved(3, 1499*time.Millisecond, limit.Decision{Allowed: true, Limit: 4, RetryAfter: 1499 * time.Millisecond, ResetAfter: 3499 * time.Millisecond})
	})
}

func reservationsAreExact(h Harness) error {
	for i, p := range []limit.Policy{
		limit.PerSecond(3),
		limit.PerMinute(7).Burst(4),
		{Capacity: 13, Refill: 13, Per: 17 * time.Microsecond},
		{Capacity: 1000, Refill: 2469, Per: 200 * time.Millisecond},
	} {
		err := reservable(h, p.Named(fmt.Sprint("reserve-exact-", i)), func(q reserveBench) error {
			model := NewModel(p)
			full := NewModel(p).Consume(0, p.Capacity).ResetAfter
			var at time.Duration
			for step := range 200 {
				cost := int64(step*step) % (p.Capacity + 2)
				maxWait := full * time.Duration(step%7) / 3 / time.Microsecond * time.Microsecond
				if step%5 == 0 {
					if err := q.want(key("ann"), cost, model.Consume(at, cost)); err != nil {
						return fmt.Errorf("%+v, step %d at %v: %w", p, step, at, err)
					}
				}
				if err := q.wantReserved(cost, maxWait, model.Reserve(at, cost, maxWait)); err != nil {
					return fmt.Errorf("%+v, step %d at %v: %w", p, step, at, err)
				}
				pause := full * time.Duration(step*7919%100) / 150 / time.Microsecond * time.Microsecond
				h.Sleep(pause)
				at += pause
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func reservationIsRefunded(h Harness) error {
	return reservable(h, limit.PerSecond(1).Burst(3).Named("reserve-refund"), func(q reserveBench) error {
		if !can(q.Limiter, limit.Take{Mode: mode.Returning}) {
			return nil
		}
		for _, wait := range []time.Duration{0, 3 * time.Second} {
			want := limit.Decision{Allowed: true, Limit: 3, RetryAfter: wait, ResetAfter: wait + 3*time.Second}
			if err := q.wantReserved(3, time.Minute, want); err != nil {
				return err
			}
		}
		if err := limit.Refund(context.Background(), q, key("ann"), 2); err != nil {
			return fmt.Errorf("a refund: %w", err)
		}
		if err := q.wantReserved(1, time.Minute, limit.Decision{Allowed: true, Limit: 3, RetryAfter: 2 * time.Second, ResetAfter: 5 * time.Second}); err != nil {
			return err
		}
		if err := limit.Refund(context.Background(), q, key("ann"), math.MaxInt64); err != nil {
			return fmt.Errorf("a refund: %w", err)
		}
		return q.want(key("ann"), 0, limit.Decision{Allowed: true, Limit: 3, Remaining: 3})
	})
}

func invalidReservations(h Harness) error {
	return reservable(h, limit.PerHour(3).Named("reserve-invalid"), func(q reserveBench) error {
		for _, c := range []struct {
			cost    int64
			maxWait time.Duration
		}{{-1, time.Second}, {math.MinInt64, 0}, {1, -1}, {1, time.Hour + 1}, {1, limit.Never}} {
			d, err := limit.Reserve(context.Background(), q.Limiter, key("ann"), c.cost, c.maxWait)
			if err == nil || d != (limit.Decision{}) {
				return fmt.Errorf("Reserve(%d, %v) is %+v with error %q; want the zero Decision and an error", c.cost, c.maxWait, d, fmt.Sprint(err))
			}
		}
		return q.want(key("ann"), 0, limit.Decision{Allowed: true, Limit: 3, Remaining: 3})
	})
}

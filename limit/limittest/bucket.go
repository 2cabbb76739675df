package limittest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
)

func newKeysAreFull(h Harness) error {
	b := bench{h.New(limit.PerMinute(3).Burst(5).Named("new"))}
	h.Sleep(time.Hour)
	for _, k := range []limit.Key{key("ann"), {}} {
		want := limit.Decision{Allowed: true, Limit: 5, Remaining: 4, ResetAfter: 20 * time.Second}
		if err := b.want(k, 1, want); err != nil {
			return err
		}
	}
	return nil
}

func tokensReturn(h Harness) error {
	b := bench{h.New(limit.PerMinute(3).Named("return"))}
	if _, err := b.allowed(key("ann"), 3, true); err != nil {
		return err
	}
	for range 4 {
		h.Sleep(20*time.Second - time.Microsecond)
		if _, err := b.allowed(key("ann"), 1, false); err != nil {
			return err
		}
		h.Sleep(time.Microsecond)
		if _, err := b.allowed(key("ann"), 1, true); err != nil {
			return err
		}
	}
	return nil
}

// fractionsAreKept polls at intervals that share no divisor with the refill and counts the
// admissions in the long run.
func fractionsAreKept(h Harness) error {
	for i, every := range []time.Duration{7 * time.Millisecond, 99 * time.Millisecond, 333 * time.Millisecond, 999 * time.Millisecond, 1900 * time.Millisecond} {
		p := limit.Policy{Name: fmt.Sprint("fractions", i), Capacity: 3, Refill: 10, Per: 7 * time.Second}
		b, model := bench{h.New(p)}, NewModel(p)
		var at time.Duration
		var admitted, want int
		for range 1000 {
			got, err := limit.Consume(context.Background(), b, key("ann"), 1)
			if err != nil {
				return err
			}
			if got.Allowed {
				admitted++
			}
			if model.Consume(at, 1).Allowed {
				want++
			}
			h.Sleep(every)
			at += every
		}
		if admitted != want {
			return fmt.Errorf("a call every %v: %d of 1000 were admitted, want %d", every, admitted, want)
		}
	}
	return nil
}

func decisionsAreExact(h Harness) error {
	for i, p := range []limit.Policy{
		limit.PerSecond(10).Burst(20),
		limit.PerSecond(3),
		limit.PerMinute(3),
		limit.PerHour(7).Burst(100),
		{Capacity: 1, Refill: 1},
		{Capacity: 13, Refill: 13, Per: 17 * time.Microsecond},
		{Capacity: 1000, Refill: 2469, Per: 200 * time.Millisecond},
	} {
		p.Name = fmt.Sprint("exact", i)
		b, model := bench{h.New(p)}, NewModel(p)
		var at time.Duration
		for step := range 300 {
			cost := int64(step*step) % (p.Capacity + 2)
			want := model.Consume(at, cost)
			if err := b.want(key("ann"), cost, want); err != nil {
				return fmt.Errorf("%+v, step %d at %v: %w", p, step, at, err)
			}
			pause := time.Duration(step*7919%1000) * min(want.ResetAfter/700+time.Microsecond, time.Second) / time.Microsecond * time.Microsecond
			h.Sleep(pause)
			at += pause
		}
	}
	return nil
}

func concurrentCalls(h Harness) error {
	const callers, calls = 8, 200
	b := bench{h.New(limit.PerHour(1).Burst(500).Named("concurrent"))}
	var admitted atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, callers)
	for range callers {
		wg.Go(func() {
			for range calls {
				d, err := limit.Consume(context.Background(), b, key("ann"), 1)
				if err != nil {
					errs <- err
					return
				}
				if d.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	if err := <-errs; err != nil {
		return err
	}
	if n := admitted.Load(); n != 500 {
		return fmt.Errorf("%d of %d concurrent calls were admitted, want 500", n, callers*calls)
	}
	return nil
}

func denialTakesNothing(h Harness) error {
	b := bench{h.New(limit.PerSecond(1).Burst(5).Named("denial"))}
	if _, err := b.allowed(key("ann"), 3, true); err != nil {
		return err
	}
	for range 10 {
		want := limit.Decision{Limit: 5, Remaining: 2, RetryAfter: 3 * time.Second, ResetAfter: 3 * time.Second}
		if err := b.want(key("ann"), 5, want); err != nil {
			return err
		}
	}
	_, err := b.allowed(key("ann"), 2, true)
	return err
}

func allOrNone(h Harness) error {
	b := bench{h.New(limit.PerSecond(1).Burst(5).Named("whole"))}
	for _, step := range []struct {
		cost    int64
		allowed bool
	}{{4, true}, {2, false}, {1, true}, {1, false}} {
		if _, err := b.allowed(key("ann"), step.cost, step.allowed); err != nil {
			return err
		}
	}
	return nil
}

func keysAreSeparate(h Harness) error {
	b := bench{h.New(limit.PerHour(1).Named("keys"))}
	for _, k := range []limit.Key{
		{},
		{"a"},
		{"b"},
		{"", "a"},
		{"", "", "", "a"},
		{"a", "b"},
		{"b", "a"},
		{"ab"},
		{"a:b"},
		{"a::b"},
		{"a", ":b"},
		{"a:", "b"},
		{"a\x00b"},
		{"a\x00", "b"},
		{"a", "\x00b"},
		{"a\x00b", "c"},
		{"a", "b\x00c"},
		{"a|b"},
		{"a", "b", "c"},
		{"a", "b:c"},
		{"a:b", "c"},
		{"{a}", "b"},
		{"{a", "}b"},
		{"a", "{b}"},
		{"%3A"},
		{":"},
		{"a%3Ab"},
		{`a\:b`},
		{"A"},
		{"é"},
		{"e\u0301"},
		{" a"},
		{"a "},
		{"a\nb"},
		{"*"},
		{"a", "b", "c", "d"},
		{"abcd"},
	} {
		if _, err := b.allowed(k, 1, true); err != nil {
			return err
		}
		if _, err := b.allowed(k, 1, false); err != nil {
			return err
		}
	}
	return nil
}

func policiesAreSeparate(h Harness) error {
	large := bench{h.New(limit.PerHour(100).Named("large"))}
	small := bench{h.New(limit.PerHour(2).Named("small"))}
	for i := range int64(2) {
		if _, err := small.allowed(key("ann"), 1, true); err != nil {
			return err
		}
		d, err := large.allowed(key("ann"), 1, true)
		if err != nil {
			return err
		}
		if d.Remaining != 99-i {
			return fmt.Errorf("%d remain, want %d", d.Remaining, 99-i)
		}
	}
	_, err := small.allowed(key("ann"), 1, false)
	return err
}

func zeroCost(h Harness) error {
	b := bench{h.New(limit.PerSecond(2).Burst(5).Named("zero"))}
	full := limit.Decision{Allowed: true, Limit: 5, Remaining: 5}
	empty := limit.Decision{Allowed: true, Limit: 5, ResetAfter: 2500 * time.Millisecond}
	return errors.Join(
		b.want(key("ann"), 0, full),
		b.want(key("ann"), 5, empty),
		b.want(key("ann"), 0, empty),
		b.want(key("ann"), 0, empty),
	)
}

func negativeCost(h Harness) error {
	b := bench{h.New(limit.PerHour(5).Named("negative"))}
	for range 2 {
		d, err := limit.Consume(context.Background(), b, key("ann"), -1)
		if err == nil || d != (limit.Decision{}) {
			return fmt.Errorf("Consume with a cost of -1 is %+v with error %q; want the zero Decision and an error", d, fmt.Sprint(err))
		}
	}
	d, err := b.allowed(key("ann"), 1, true)
	if err == nil && d.Remaining != 4 {
		err = fmt.Errorf("%d remain after a negative cost and a cost of 1, want 4", d.Remaining)
	}
	return err
}

func costAboveCapacity(h Harness) error {
	b := bench{h.New(limit.PerSecond(1).Burst(5).Named("above"))}
	want := limit.Decision{Limit: 5, Remaining: 5, RetryAfter: limit.Never}
	empty := limit.Decision{Limit: 5, RetryAfter: limit.Never, ResetAfter: 5 * time.Second}
	for _, cost := range []int64{6, 1 << 40, 1<<63 - 1} {
		if err := b.want(key("ann"), cost, want); err != nil {
			return err
		}
	}
	if _, err := b.allowed(key("ann"), 5, true); err != nil {
		return err
	}
	return b.want(key("ann"), 6, empty)
}

func retryAfterIsExact(h Harness) error {
	for i, p := range []limit.Policy{
		limit.PerMinute(3),
		limit.PerSecond(25).Burst(29),
		limit.PerSecond(45).Burst(123),
		{Capacity: 7, Refill: 7, Per: 10 * time.Second},
	} {
		p.Name = fmt.Sprint("waiting", i)
		b := bench{h.New(p)}
		for n := range int64(40) {
			k, cost := key(fmt.Sprint(n)), 1+n%p.Capacity
			if _, err := b.allowed(k, p.Capacity, true); err != nil {
				return err
			}
			h.Sleep(time.Duration(n) * 13 * time.Millisecond % (3 * time.Millisecond))
			d, err := b.allowed(k, cost, false)
			if err != nil {
				return err
			}
			h.Sleep(max(0, d.RetryAfter-time.Millisecond))
			if d.RetryAfter >= time.Millisecond {
				if _, err := b.allowed(k, cost, false); err != nil {
					return fmt.Errorf("a millisecond before %v: %w", d.RetryAfter, err)
				}
			}
			h.Sleep(min(time.Millisecond, d.RetryAfter))
			if _, err := b.allowed(k, cost, true); err != nil {
				return fmt.Errorf("after %v: %w", d.RetryAfter, err)
			}
		}
	}
	return nil
}

func resetAfterIsExact(h Harness) error {
	b := bench{h.New(limit.PerMinute(7).Burst(11).Named("reset"))}
	d, err := b.allowed(key("ann"), 9, true)
	if err != nil {
		return err
	}
	h.Sleep(d.ResetAfter - time.Millisecond)
	early, err := b.allowed(key("ann"), 0, true)
	if err != nil {
		return err
	}
	h.Sleep(time.Millisecond)
	if early.Remaining != 10 || early.ResetAfter != time.Millisecond {
		return fmt.Errorf("a millisecond before ResetAfter the bucket is %+v", early)
	}
	return b.want(key("ann"), 0, limit.Decision{Allowed: true, Limit: 11, Remaining: 11})
}

func capacityBoundsBucket(h Harness) error {
	b := bench{h.New(limit.PerSecond(10).Burst(20).Named("capacity"))}
	for range 3 {
		if _, err := b.allowed(key("ann"), 20, true); err != nil {
			return err
		}
		if _, err := b.allowed(key("ann"), 1, false); err != nil {
			return err
		}
		h.Sleep(400 * 24 * time.Hour)
	}
	return nil
}

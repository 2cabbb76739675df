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

// changeable runs check if the limiter is a PolicySetter.
func changeable(h Harness, p limit.Policy, check func(bench, limit.PolicySetter[limit.Policy]) error) error {
	l := h.New(p)
	if s, ok := l.(limit.PolicySetter[limit.Policy]); ok {
		return check(bench{l}, s)
	}
	return nil
}

func changeCreatesNothing(h Harness) error {
	p := limit.PerMinute(3).Burst(5).Named("change")
	return changeable(h, p, func(b bench, l limit.PolicySetter[limit.Policy]) error {
		if _, err := b.allowed(key("ann"), 3, true); err != nil {
			return err
		}
		if err := errors.Join(
			l.SetPolicy(limit.PerMinute(6).Burst(8).Named("change")),
			b.want(key("ann"), 0, limit.Decision{Allowed: true, Limit: 8, Remaining: 5, ResetAfter: 30 * time.Second}),
			l.SetPolicy(limit.PerMinute(6).Burst(2).Named("change")),
			b.want(key("ann"), 0, limit.Decision{Allowed: true, Limit: 2, ResetAfter: 30 * time.Second}),
			b.want(key("ann"), 3, limit.Decision{Limit: 2, RetryAfter: limit.Never, ResetAfter: 30 * time.Second}),
			b.want(key("ann"), 1, limit.Decision{Limit: 2, RetryAfter: 20 * time.Second, ResetAfter: 30 * time.Second}),
		); err != nil {
			return err
		}
		h.Sleep(20 * time.Second)
		return errors.Join(
			b.want(key("ann"), 1, limit.Decision{Allowed: true, Limit: 2, ResetAfter: 20 * time.Second}),
			l.SetPolicy(p),
			b.want(key("ann"), 0, limit.Decision{Allowed: true, Limit: 5, Remaining: 3, ResetAfter: 40 * time.Second}),
			b.want(key("bob"), 0, limit.Decision{Allowed: true, Limit: 5, Remaining: 5}),
		)
	})
}

func changeKeepsRetryAfter(h Harness) error {
	return changeable(h, limit.PerHour(1).Named("change-retry"), func(b bench, l limit.PolicySetter[limit.Policy]) error {
		if _, err := b.allowed(key("ann"), 1, true); err != nil {
			return err
		}
		if err := l.SetPolicy(limit.PerMinute(1).Named("change-retry")); err != nil {
			return fmt.Errorf("a change: %w", err)
		}
		d, err := b.allowed(key("ann"), 1, false)
		if err != nil {
			return err
		}
		h.Sleep(d.RetryAfter - time.Millisecond)
		if _, err := b.allowed(key("ann"), 1, false); err != nil {
			return err
		}
		h.Sleep(time.Millisecond)
		if _, err := b.allowed(key("ann"), 1, true); err != nil {
			return fmt.Errorf("after %v: %w", d.RetryAfter, err)
		}
		return nil
	})
}

func changeIsRejected(h Harness) error {
	p := limit.PerHour(5).Named("change-invalid")
	return changeable(h, p, func(b bench, l limit.PolicySetter[limit.Policy]) error {
		for _, invalid := range []limit.Policy{{}, p.Burst(0), p.Burst(1 << 60), p.Named(""), p.Named("other")} {
			if l.SetPolicy(invalid) == nil {
				return fmt.Errorf("SetPolicy(%+v) is no error", invalid)
			}
		}
		return b.want(key("ann"), 0, limit.Decision{Allowed: true, Limit: 5, Remaining: 5})
	})
}

func changeKeepsBlocks(h Harness) error {
	ctx := context.Background()
	return changeable(h, limit.PerMinute(3).Burst(5).Named("change-block"), func(b bench, l limit.PolicySetter[limit.Policy]) error {
		blocker, ok := b.Limiter.(limit.Blocker)
		if !ok {
			return nil
		}
		if err := blocker.Block(ctx, key("ann"), time.Hour); err != nil {
			return fmt.Errorf("a block: %w", err)
		}
		h.Sleep(time.Minute)
		if err := l.SetPolicy(limit.PerSecond(7).Burst(2).Named("change-block")); err != nil {
			return fmt.Errorf("a change: %w", err)
		}
		left := 59 * time.Minute
		if err := b.want(key("ann"), 1, limit.Decision{Limit: 2, RetryAfter: left, ResetAfter: left, Reason: limit.Blocked}); err != nil {
			return err
		}
		h.Sleep(left)
		return b.want(key("ann"), 0, limit.Decision{Allowed: true, Limit: 2, Remaining: 2})
	})
}

func changeKeepsDeficits(h Harness) error {
	return changeable(h, limit.PerSecond(1).Burst(10).Named("change-deficit"), func(b bench, l limit.PolicySetter[limit.Policy]) error {
		if !can(b.Limiter, limit.Take{MaxWait: time.Minute}) {
			return nil
		}
		q := reserveBench{b}
		return errors.Join(
			q.wantReserved(10, time.Minute, limit.Decision{Allowed: true, Limit: 10, ResetAfter: 10 * time.Second}),
			q.wantReserved(10, time.Minute, limit.Decision{Allowed: true, Limit: 10, RetryAfter: 10 * time.Second, ResetAfter: 20 * time.Second}),
			l.SetPolicy(limit.PerSecond(2).Burst(4).Named("change-deficit")),
			q.want(key("ann"), 0, limit.Decision{Allowed: true, Limit: 4, ResetAfter: 10 * time.Second}),
			q.wantReserved(2, 8*time.Second, limit.Decision{Limit: 4, RetryAfter: time.Second, ResetAfter: 10 * time.Second}),
			q.wantReserved(2, 9*time.Second, limit.Decision{Allowed: true, Limit: 4, RetryAfter: 9 * time.Second, ResetAfter: 11 * time.Second}),
		)
	})
}

// changesConcurrently changes the capacity while many callers use buckets.
func changesConcurrently(h Harness) error {
	// Each key has 300 calls for 400 tokens: an empty bucket would hide a lost token.
	const callers, calls, keys = 6, 150, 3
	large := limit.PerHour(1).Burst(400).Named("change-concurrent")
	return changeable(h, large, func(b bench, l limit.PolicySetter[limit.Policy]) error {
		var admitted [keys]atomic.Int64
		for n := range admitted {
			if _, err := b.allowed(key(fmt.Sprint(n)), 1, true); err != nil {
				return err
			}
			admitted[n].Add(1)
		}
		var wg sync.WaitGroup
		errs := make(chan error, callers+1)
		for range callers {
			wg.Go(func() {
				for n := range calls {
					d, err := limit.Consume(context.Background(), b, key(fmt.Sprint(n%keys)), 1)
					if err != nil {
						errs <- err
						return
					}
					if d.Allowed {
						admitted[n%keys].Add(1)
					}
				}
			})
		}
		wg.Go(func() {
			for n := range int64(51) {
				if err := l.SetPolicy(large.Burst(400 - n%2*300)); err != nil {
					errs <- err
					return
				}
			}
		})
		wg.Wait()
		close(errs)
		if err := <-errs; err != nil {
			return err
		}
		for i := range admitted {
			d, err := b.allowed(key(fmt.Sprint(i)), 0, true)
			if err != nil {
				return err
			}
			if n := admitted[i].Load(); n+d.Remaining != 400 {
				return fmt.Errorf("%d calls were admitted, and %d of 400 tokens are left", n, d.Remaining)
			}
		}
		return nil
	})
}

// alternatingPolicies calls two processes in turn, one of which runs with an older policy.
func alternatingPolicies(h Harness) error {
	policies := [2]limit.Policy{limit.PerSecond(10).Named("alternating"), limit.PerSecond(1).Burst(10).Named("alternating")}
	limiters := [2]limit.Limiter{h.New(policies[0]), nil}
	if limiters[1] = limiters[0]; h.Shared {
		limiters[1] = h.New(policies[1])
	}
	setter, ok := limiters[0].(limit.PolicySetter[limit.Policy])
	if !ok {
		return nil
	}
	granted := 0
	for n := range 1000 {
		if !h.Shared {
			if err := setter.SetPolicy(policies[n%2]); err != nil {
				return fmt.Errorf("a change: %w", err)
			}
		}
		for range 3 {
			d, err := limit.Consume(context.Background(), limiters[n%2], key("ann"), 1)
			if err != nil {
				return fmt.Errorf("a call: %w", err)
			}
			if d.Allowed {
				granted++
			}
		}
		h.Sleep(time.Millisecond)
	}
	if granted < 11 || granted > 20 {
		return fmt.Errorf("%d tokens were granted in one second, want 11 to 20", granted)
	}
	return nil
}

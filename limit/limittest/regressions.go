package limittest

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/mode"
)

// Regressions returns defects that other limiters had, each named after a report of it. Most
// break a rule of the contract in a way that is easy to overlook.
func Regressions() []Case {
	return []Case{
		{"throttled: 2^40 at 1 an hour is allowed", "A huge cost does not overflow into an admission.", hugeCost},
		{"redis_rate: 5 of 7 remain after 1", "Remaining is exact where a token is no whole number of microseconds.", oddRate},
		{"redis-cell 56: a client is denied after RetryAfter", "RetryAfter is rounded up, at many rates.", waitsOverRates},
		{"floored refills: polling twice a second starves", "A call does not lose the fraction of a token that has returned.", pollingStarves},
		{"commitpulse 5932: a persistent client is never admitted", "Denied calls do not count.", persistentClient},
		{"upstash 156: 5 of 2 leaves -3", "A denied cost leaves the bucket as it was.", denialLeavesBucket},
		{"lemmy 4560: a sweep lifts limits", "Other keys, however many, do not reset a limited key.", sweepLifts},
		{"redis 15093: the key expires before the bucket is full", "A bucket is not full a microsecond early.", fullTooEarly},
		{"golang/go 65508: a clock that goes backwards creates tokens", "A clock that goes backwards creates no tokens.", backwardsClockCreates},
		{"clipperhouse: two equal limits wait for each other", "Equal policies can be combined.", equalLimits},
		{"processes of 10/s and 1/s burst 10 are granted 5,776 in a second", "Tokens granted in any interval are at most the largest capacity and the largest refill.", alternatingPolicies},
	}
}

func hugeCost(h Harness) error {
	b := bench{h.New(limit.PerHour(1).Burst(10).Named("huge"))}
	for _, cost := range []int64{11, 1 << 31, 1 << 40, 1 << 51, 1 << 62, 1<<63 - 1} {
		if err := b.want(key("ann"), cost, limit.Decision{Limit: 10, Remaining: 10, RetryAfter: limit.Never}); err != nil {
			return err
		}
	}
	return nil
}

func oddRate(h Harness) error {
	b := bench{h.New(limit.PerHour(13).Burst(7).Named("odd"))}
	d, err := b.allowed(key("ann"), 1, true)
	if err == nil && d.Remaining != 6 {
		err = fmt.Errorf("%d of 7 remain after 1, want 6", d.Remaining)
	}
	return err
}

func waitsOverRates(h Harness) error {
	for refill := int64(1); refill <= 40; refill++ {
		b := bench{h.New(limit.PerSecond(refill).Burst(3).Named("rates-" + strconv.FormatInt(refill, 10)))}
		if _, err := b.allowed(key("ann"), 3, true); err != nil {
			return err
		}
		for cost := int64(1); cost <= 3; cost++ {
			d, err := b.allowed(key("ann"), cost, false)
			if err != nil {
				return err
			}
			h.Sleep(d.RetryAfter)
			if _, err := b.allowed(key("ann"), cost, true); err != nil {
				return fmt.Errorf("%d a second, after waiting %v: %w", refill, d.RetryAfter, err)
			}
		}
	}
	return nil
}

// admittedIn counts how many calls of a client are admitted that calls all the time.
func admittedIn(h Harness, b bench, span, pause time.Duration) (n int, err error) {
	for t := time.Duration(0); t < span; t += pause {
		d, err := limit.Consume(context.Background(), b, key("ann"), 1)
		if err != nil {
			return n, fmt.Errorf("a call: %w", err)
		}
		if d.Allowed {
			n++
		}
		h.Sleep(pause)
	}
	return n, nil
}

func pollingStarves(h Harness) error {
	n, err := admittedIn(h, bench{h.New(limit.PerSecond(1).Named("polling"))}, 20*time.Second, time.Second/2)
	if err == nil && n != 20 {
		err = fmt.Errorf("%d were admitted in 20 seconds, want 20", n)
	}
	return err
}

func persistentClient(h Harness) error {
	n, err := admittedIn(h, bench{h.New(limit.PerSecond(1).Named("persistent"))}, 10*time.Second, 10*time.Millisecond)
	if err == nil && n != 10 {
		err = fmt.Errorf("%d of 1000 calls were admitted in 10 seconds, want 10", n)
	}
	return err
}

func denialLeavesBucket(h Harness) error {
	b := bench{h.New(limit.PerHour(5).Named("leaves"))}
	for _, step := range []struct {
		cost int64
		want bool
	}{{3, true}, {5, false}, {3, false}, {2, true}, {1, false}} {
		if _, err := b.allowed(key("ann"), step.cost, step.want); err != nil {
			return err
		}
	}
	return nil
}

func sweepLifts(h Harness) error {
	b := bench{h.New(limit.PerHour(1).Named("sweep"))}
	if _, err := b.allowed(key("ann"), 1, true); err != nil {
		return err
	}
	for n := range 3000 {
		if _, err := limit.Consume(context.Background(), b, key("user "+strconv.Itoa(n)), 1); err != nil {
			return fmt.Errorf("a call: %w", err)
		}
		if n%100 == 0 {
			h.Sleep(time.Second)
		}
	}
	_, err := b.allowed(key("ann"), 1, false)
	return err
}

func fullTooEarly(h Harness) error {
	b := bench{h.New(limit.Policy{Name: "early", Capacity: 1, Refill: 1, Per: 1500 * time.Microsecond})}
	for range 20 {
		if _, err := b.allowed(key("ann"), 1, true); err != nil {
			return err
		}
		h.Sleep(1499 * time.Microsecond)
		if _, err := b.allowed(key("ann"), 1, false); err != nil {
			return err
		}
		h.Sleep(time.Microsecond)
	}
	return nil
}

func backwardsClockCreates(h Harness) error {
	if h.Rewind == nil {
		return nil
	}
	b := bench{h.New(limit.PerSecond(1).Burst(10).Named("backwards"))}
	h.Sleep(100 * time.Second)
	if _, err := b.allowed(key("ann"), 10, true); err != nil {
		return err
	}
	h.Rewind(10 * time.Second)
	if _, err := b.allowed(key("ann"), 1, false); err != nil {
		return err
	}
	h.Sleep(5 * time.Second)
	d, err := limit.Consume(context.Background(), b, key("ann"), 0)
	if err == nil && d.Remaining > 5 {
		err = fmt.Errorf("%d tokens returned in 5 seconds, want at most 5", d.Remaining)
	}
	return err
}

func equalLimits(h Harness) error {
	p := limit.PerHour(2)
	b := bench{h.New(p.Named("equal-1"))}
	if can(b.Limiter, limit.Take{Mode: mode.Undoing}) {
		b.Limiter = limit.AllOf(b.Limiter, h.New(p.Named("equal-2")))
	}
	for _, want := range []bool{true, true, false} {
		if _, err := b.allowed(key("ann"), 1, want); err != nil {
			return err
		}
	}
	return nil
}

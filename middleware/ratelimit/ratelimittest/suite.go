package ratelimittest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// A Harness makes limiters whose clock a case can move.
type Harness struct {
	// New returns a limiter. Limiters with policies of different names are apart,
	// even if they stand on one store; a case uses each name once.
	New func(ratelimit.Policy) ratelimit.Limiter

	// Sleep moves the limiters' clock by exactly d. Between two calls of it the
	// clock stands still.
	Sleep func(d time.Duration)

	// StepBack moves the clock back by d, as an operator's hand does. Only
	// [SurvivesStepsBack] needs it.
	StepBack func(d time.Duration)
}

// A Case is one rule of the contract.
type Case struct {
	Name  string
	Rule  string
	Check func(Harness) error // says how a limiter broke the rule
}

// Run fails the test if the limiter breaks the rule.
func (c Case) Run(t *testing.T, h Harness) {
	t.Helper()
	if err := c.Check(h); err != nil {
		t.Errorf("%v\nrule: %s", err, c.Rule)
	}
}

// Cases returns the contract. The cases of [ratelimit.Adjustable] pass if a limiter is
// not.
func Cases() []Case {
	return []Case{
		{"unseen keys are full", "A key that was not seen before has a full bucket.", unseenKeysAreFull},
		{"tokens come back one by one", "Tokens come back one by one, every Per/Refill, up to the capacity.", tokensComeBack},
		{"fractions are kept", "No fraction of a token is ever lost or minted, however often one asks.", fractionsAreKept},
		{"decisions are exact", "What a Decision says equals the token bucket of rational numbers.", decisionsAreExact},
		{"concurrent calls", "Concurrent calls for one key never take more tokens than it holds.", concurrentCalls},
		{"a denial takes nothing", "A denied call takes nothing and delays nobody.", denialTakesNothing},
		{"all or none", "A cost is taken whole or not at all.", allOrNone},
		{"keys are apart", "Keys do not influence each other, whatever their parts hold.", keysAreApart},
		{"policies are apart", "Limiters whose policies have different names do not influence each other.", policiesAreApart},
		{"cost of nothing", "A cost of 0 is allowed and takes nothing; the Decision tells the state of the bucket.", costOfNothing},
		{"negative cost", "A negative cost is an error, and the Decision is then the zero one.", negativeCost},
		{"cost above the capacity", "A cost above the capacity is denied with RetryAfter Never, and takes nothing.", costAboveCapacity},
		{"waiting is enough", "Whoever waits exactly RetryAfter is admitted; a millisecond less is never enough.", waitingIsEnough},
		{"resetting is exact", "After ResetAfter the bucket is full; a millisecond before it is not.", resettingIsExact},
		{"a refund comes back", "Refund gives tokens back, of which no fraction is lost or minted.", refundComesBack},
		{"a refund stops at full", "A bucket never holds more than its capacity, whatever is refunded.", refundStopsAtFull},
		{"refunds of nothing", "A refund of 0 does nothing, and a negative one is an error.", refundsOfNothing},
		{"reset fills", "Reset fills the bucket of its key and no other.", resetFills},
		{"the capacity is the most", "A bucket never holds more than its capacity, however long it is left alone.", capacityIsTheMost},
	}
}

// A bench is a limiter under test.
type bench struct {
	ratelimit.Limiter
}

func key(name string) ratelimit.Key { return ratelimit.Key{"user", "", name} }

// want consumes and compares.
func (b bench) want(k ratelimit.Key, cost int64, want ratelimit.Decision) error {
	got, err := b.Consume(context.Background(), k, cost)
	if err != nil {
		return fmt.Errorf("Consume(%q, %d): %w", k, cost, err)
	}
	if got != want {
		return fmt.Errorf("Consume(%q, %d) is %+v, want %+v", k, cost, got, want)
	}
	return nil
}

// allowed consumes and wants to be allowed, or denied.
func (b bench) allowed(k ratelimit.Key, cost int64, want bool) (ratelimit.Decision, error) {
	got, err := b.Consume(context.Background(), k, cost)
	if err == nil && got.Allowed != want {
		err = fmt.Errorf("Consume(%q, %d) is %+v, want Allowed to be %v", k, cost, got, want)
	}
	return got, err
}

func unseenKeysAreFull(h Harness) error {
	b := bench{h.New(ratelimit.PerMinute(3).Burst(5).Named("unseen"))}
	h.Sleep(time.Hour)
	for _, k := range []ratelimit.Key{key("ann"), {}} {
		want := ratelimit.Decision{Allowed: true, Limit: 5, Remaining: 4, ResetAfter: 20 * time.Second}
		if err := b.want(k, 1, want); err != nil {
			return err
		}
	}
	return nil
}

func tokensComeBack(h Harness) error {
	b := bench{h.New(ratelimit.PerMinute(3).Named("back"))}
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

// fractionsAreKept polls at intervals that share no divisor with the refill, and
// counts what is admitted in the long run.
func fractionsAreKept(h Harness) error {
	for i, every := range []time.Duration{7 * time.Millisecond, 99 * time.Millisecond, 333 * time.Millisecond, 999 * time.Millisecond, 1900 * time.Millisecond} {
		p := ratelimit.Policy{Name: fmt.Sprint("fractions", i), Capacity: 3, Refill: 10, Per: 7 * time.Second}
		b, model := bench{h.New(p)}, NewModel(p)
		var at time.Duration
		var admitted, want int
		for range 1000 {
			got, err := b.Consume(context.Background(), key("ann"), 1)
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
	for i, p := range []ratelimit.Policy{
		ratelimit.PerSecond(10).Burst(20),
		ratelimit.PerSecond(3),
		ratelimit.PerMinute(3),
		ratelimit.PerHour(7).Burst(100),
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
	b := bench{h.New(ratelimit.PerHour(1).Burst(500).Named("concurrent"))}
	var admitted atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, callers)
	for range callers {
		wg.Go(func() {
			for range calls {
				d, err := b.Consume(context.Background(), key("ann"), 1)
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
	b := bench{h.New(ratelimit.PerSecond(1).Burst(5).Named("denial"))}
	if _, err := b.allowed(key("ann"), 3, true); err != nil {
		return err
	}
	for range 10 {
		want := ratelimit.Decision{Limit: 5, Remaining: 2, RetryAfter: 3 * time.Second, ResetAfter: 3 * time.Second}
		if err := b.want(key("ann"), 5, want); err != nil {
			return err
		}
	}
	_, err := b.allowed(key("ann"), 2, true)
	return err
}

func allOrNone(h Harness) error {
	b := bench{h.New(ratelimit.PerSecond(1).Burst(5).Named("whole"))}
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

func keysAreApart(h Harness) error {
	b := bench{h.New(ratelimit.PerHour(1).Named("keys"))}
	for _, k := range []ratelimit.Key{
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

func policiesAreApart(h Harness) error {
	cheap := bench{h.New(ratelimit.PerHour(100).Named("cheap"))}
	dear := bench{h.New(ratelimit.PerHour(2).Named("dear"))}
	for i := range int64(2) {
		if _, err := dear.allowed(key("ann"), 1, true); err != nil {
			return err
		}
		d, err := cheap.allowed(key("ann"), 1, true)
		if err != nil {
			return err
		}
		if d.Remaining != 99-i {
			return fmt.Errorf("%d remain, want %d", d.Remaining, 99-i)
		}
	}
	_, err := dear.allowed(key("ann"), 1, false)
	return err
}

func costOfNothing(h Harness) error {
	b := bench{h.New(ratelimit.PerSecond(2).Burst(5).Named("nothing"))}
	full := ratelimit.Decision{Allowed: true, Limit: 5, Remaining: 5}
	empty := ratelimit.Decision{Allowed: true, Limit: 5, ResetAfter: 2500 * time.Millisecond}
	return errors.Join(
		b.want(key("ann"), 0, full),
		b.want(key("ann"), 5, empty),
		b.want(key("ann"), 0, empty),
		b.want(key("ann"), 0, empty),
	)
}

func negativeCost(h Harness) error {
	b := bench{h.New(ratelimit.PerHour(5).Named("negative"))}
	for range 2 {
		d, err := b.Consume(context.Background(), key("ann"), -1)
		if err == nil || d != (ratelimit.Decision{}) {
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
	b := bench{h.New(ratelimit.PerSecond(1).Burst(5).Named("above"))}
	want := ratelimit.Decision{Limit: 5, Remaining: 5, RetryAfter: ratelimit.Never}
	drained := ratelimit.Decision{Limit: 5, RetryAfter: ratelimit.Never, ResetAfter: 5 * time.Second}
	for _, cost := range []int64{6, 1 << 40, 1<<63 - 1} {
		if err := b.want(key("ann"), cost, want); err != nil {
			return err
		}
	}
	if _, err := b.allowed(key("ann"), 5, true); err != nil {
		return err
	}
	return b.want(key("ann"), 6, drained)
}

func waitingIsEnough(h Harness) error {
	for i, p := range []ratelimit.Policy{
		ratelimit.PerMinute(3),
		ratelimit.PerSecond(25).Burst(29),
		ratelimit.PerSecond(45).Burst(123),
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
					return fmt.Errorf("a millisecond less than %v: %w", d.RetryAfter, err)
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

func resettingIsExact(h Harness) error {
	b := bench{h.New(ratelimit.PerMinute(7).Burst(11).Named("reset"))}
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
	return b.want(key("ann"), 0, ratelimit.Decision{Allowed: true, Limit: 11, Remaining: 11})
}

func capacityIsTheMost(h Harness) error {
	b := bench{h.New(ratelimit.PerSecond(10).Burst(20).Named("most"))}
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

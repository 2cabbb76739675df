package limittest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
)

// refundablePair returns two limiters, or false if they cannot undo a Take.
func refundablePair(h Harness, p1, p2 limit.Policy) (bench, bench, bool) {
	a, b := h.New(p1), h.New(p2)
	return bench{a}, bench{b}, can(a, limit.Take{Mode: mode.Undoing})
}

func jointRequests(h Harness) error {
	users, rooms, ok := refundablePair(h, limit.PerMinute(3).Named("joint-user"), limit.PerMinute(6).Burst(4).Named("joint-room"))
	if !ok {
		return nil
	}
	say := func(user string, cost int64) (limit.Decision, error) {
		return limit.ConsumeAll(context.Background(),
			limit.Request{Limiter: users.Limiter, Key: key(user), Cost: cost},
			limit.Request{Limiter: rooms.Limiter, Key: limit.Key{"room", "go"}, Cost: 1},
			limit.Request{Limiter: rooms.Limiter, Key: limit.Key{"server"}, Cost: 1},
		)
	}
	for _, step := range []struct {
		user    string
		cost    int64
		allowed bool
		wait    time.Duration
	}{
		{"ann", 3, true, 0},
		{"ann", 1, false, 20 * time.Second}, // the room is not charged
		{"bob", 1, true, 0},
		{"eve", 1, true, 0},
		{"eve", 1, true, 0},
		{"eve", 1, false, 10 * time.Second}, // the room is empty; eve is not charged
		{"ann", 1, false, 20 * time.Second}, // both deny; the longer wait counts
		{"bob", 4, false, limit.Never},
	} {
		d, err := say(step.user, step.cost)
		if err != nil {
			return fmt.Errorf("a joint call: %w", err)
		}
		if d.Allowed != step.allowed || d.RetryAfter != step.wait {
			return fmt.Errorf("a joint call of %s for %d is %+v, want Allowed to be %v and RetryAfter %v", step.user, step.cost, d, step.allowed, step.wait)
		}
	}
	empty := limit.Decision{Allowed: true, Limit: 4, ResetAfter: 40 * time.Second}
	return errors.Join(
		users.want(key("eve"), 0, limit.Decision{Allowed: true, Limit: 3, Remaining: 1, ResetAfter: 40 * time.Second}),
		rooms.want(limit.Key{"room", "go"}, 0, empty),
		rooms.want(limit.Key{"server"}, 0, empty),
	)
}

func jointCostOfNothing(h Harness) error {
	users, rooms, ok := refundablePair(h, limit.PerMinute(3).Named("joint-zero-user"), limit.PerMinute(6).Burst(2).Named("joint-zero-room"))
	if !ok || !can(users.Limiter, limit.Take{Mode: mode.Charging}) {
		return nil
	}
	ctx := context.Background()
	if err := limit.Charge(ctx, users, key("ann"), 5); err != nil { // leaves a deficit
		return fmt.Errorf("a charge: %w", err)
	}
	for n, want := range []bool{true, true, false} {
		d, err := limit.ConsumeAll(ctx,
			limit.Request{Limiter: users.Limiter, Key: key("ann"), Cost: 0},
			limit.Request{Limiter: rooms.Limiter, Key: limit.Key{"room", "go"}, Cost: 1},
		)
		if err != nil {
			return fmt.Errorf("a joint call: %w", err)
		}
		if d.Allowed != want {
			return fmt.Errorf("joint call %d of 0 and 1 is %+v, want Allowed to be %v", n+1, d, want)
		}
	}
	return rooms.want(limit.Key{"room", "go"}, 0, limit.Decision{Allowed: true, Limit: 2, ResetAfter: 20 * time.Second})
}

// jointCallsConcurrently sends joint calls with their requests in opposite orders, most of which
// are denied, and single calls in between.
func jointCallsConcurrently(h Harness) error {
	const callers, calls = 4, 50
	few, many, ok := refundablePair(h, limit.PerHour(60).Named("joint-few"), limit.PerHour(1000).Named("joint-many"))
	if !ok {
		return nil
	}
	var joint, single atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, 3*callers)
	call := func(count *atomic.Int64, f func() (limit.Decision, error)) {
		wg.Go(func() {
			for range calls {
				d, err := f()
				if err != nil {
					errs <- err
					return
				}
				if d.Allowed {
					count.Add(1)
				}
			}
		})
	}
	a := limit.Request{Limiter: few.Limiter, Key: key("ann"), Cost: 1}
	b := limit.Request{Limiter: many.Limiter, Key: limit.Key{"room"}, Cost: 1}
	for range callers {
		call(&joint, func() (limit.Decision, error) { return limit.ConsumeAll(context.Background(), a, b) })
		call(&joint, func() (limit.Decision, error) { return limit.ConsumeAll(context.Background(), b, a) })
		call(&single, func() (limit.Decision, error) { return limit.Consume(context.Background(), few, key("ann"), 1) })
	}
	wg.Wait()
	close(errs)
	if err := <-errs; err != nil {
		return err
	}
	if n := joint.Load() + single.Load(); n != 60 {
		return fmt.Errorf("%d calls were admitted by a bucket of 60", n)
	}
	d, err := many.allowed(limit.Key{"room"}, 0, true)
	if err == nil && d.Remaining != 1000-joint.Load() {
		err = fmt.Errorf("%d of 1000 tokens are left after %d joint admissions", d.Remaining, joint.Load())
	}
	return err
}

// batchDecisions checks that a denied batch returns what each limiter would decide alone.
func batchDecisions(h Harness) error {
	users, rooms, _ := refundablePair(h, limit.PerMinute(3).Named("batch-user"), limit.PerMinute(6).Burst(4).Named("batch-room"))
	l, ok := users.Limiter.(adapter.Batcher)
	if !ok || !l.BatchesWith(rooms.Limiter) {
		return nil
	}
	for _, step := range []struct {
		userCost, roomCost int64
		maxWait            time.Duration
		user, room         limit.Decision
	}{
		{
			2, 4, 0,
			limit.Decision{Allowed: true, Limit: 3, Remaining: 1, ResetAfter: 40 * time.Second},
			limit.Decision{Allowed: true, Limit: 4, ResetAfter: 40 * time.Second},
		},
		{
			1, 1, 0, // the room denies, so neither is charged
			limit.Decision{Allowed: true, Limit: 3, ResetAfter: 60 * time.Second},
			limit.Decision{Limit: 4, RetryAfter: 10 * time.Second, ResetAfter: 40 * time.Second},
		},
		{
			2, 1, 19 * time.Second, // the room would reserve
			limit.Decision{Limit: 3, Remaining: 1, RetryAfter: time.Second, ResetAfter: 40 * time.Second},
			limit.Decision{Allowed: true, Limit: 4, RetryAfter: 10 * time.Second, ResetAfter: 50 * time.Second},
		},
		{
			2, 1, 20 * time.Second,
			limit.Decision{Allowed: true, Limit: 3, RetryAfter: 20 * time.Second, ResetAfter: 80 * time.Second},
			limit.Decision{Allowed: true, Limit: 4, RetryAfter: 10 * time.Second, ResetAfter: 50 * time.Second},
		},
		{
			0, 0, 0,
			limit.Decision{Allowed: true, Limit: 3, ResetAfter: 80 * time.Second},
			limit.Decision{Allowed: true, Limit: 4, ResetAfter: 50 * time.Second},
		},
	} {
		got, err := l.TakeBatch(context.Background(), []limit.Request{
			{Limiter: rooms.Limiter, Key: key("ann"), Cost: step.roomCost},
			{Limiter: users.Limiter, Key: key("ann"), Cost: step.userCost},
		}, limit.Take{MaxWait: step.maxWait})
		if err != nil {
			return fmt.Errorf("TakeBatch: %w", err)
		}
		if len(got) != 2 || !sameDecision(got, 0, step.room) || !sameDecision(got, 1, step.user) {
			return fmt.Errorf("a batch of %d and %d within %v is %+v, want %+v and %+v", step.roomCost, step.userCost, step.maxWait, got, step.room, step.user)
		}
	}
	_, err := l.TakeBatch(context.Background(), []limit.Request{{Limiter: users.Limiter, Key: key("bob"), Cost: -1}}, limit.Take{})
	if err == nil {
		return errors.New("a batch with a cost of -1 is no error")
	}
	return nil
}

// sameDecision compares a Decision of a batch. If the batch was denied, an allowed Decision may
// have no number but Limit.
func sameDecision(batch []limit.Decision, i int, want limit.Decision) bool {
	withoutNumbers := limit.Decision{Allowed: true, Limit: want.Limit}
	denied := slices.ContainsFunc(batch, func(d limit.Decision) bool { return !d.Allowed })
	return batch[i] == want || denied && want.Allowed && batch[i] == withoutNumbers
}

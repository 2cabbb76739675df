package guides_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

// A comparedLimiter is a row of the overview.
type comparedLimiter struct {
	name, policy string
	admit        router.IngressFunc
}

func comparedLimiters() []comparedLimiter {
	bucket := limit.PerSecond(2).Burst(6)
	calm := limit.CooldownPolicy{Max: 10, Window: 5 * second, Penalty: 5 * second}
	window := limit.WindowPolicy{Max: 10, Window: 5 * second}
	both := limit.AllOf(memory.NewLimiter(bucket), memory.NewLimiter(limit.Per(15, 24*time.Hour)))
	return []comparedLimiter{
		{"token bucket", "2/s burst 6", ratelimit.New(memory.NewLimiter(bucket), nil)},
		{"with MaxWait", "2/s burst 6, 2 s", ratelimit.New(memory.NewLimiter(bucket), &ratelimit.Options{MaxWait: 2 * second})},
		{"sliding-window log", "10 in 5 s", ratelimit.New(memory.NewSlidingLog(window), nil)},
		{"sliding-window counter", "10 in 5 s", ratelimit.New(memory.NewSlidingCounter(window), nil)},
		{"Cooldown", "10 in 5 s, or 5 s penalty", ratelimit.New(memory.NewCooldown(calm, nil), nil)},
		{"AllOf", "2/s burst 6, 15 per day", ratelimit.New(both, nil)},
		{"Concurrency", "2 at once, 1 s each", withSemaphore(memory.NewSemaphore(2), second)},
	}
}

// overview draws how several limiters decide about the same calls.
func overview(t *testing.T) []byte {
	p := newPicture("One client, seven limiters", "1 call per second, and a flood of 8 per second from 3 s to 7 s", 16*second)
	p.left = 196 * px
	p.legend()
	for _, c := range comparedLimiters() {
		admitted, rejected := callAll(t, c.admit)
		p.text(p.left-16*px, p.y+13*px, "end", "%s", c.name)
		p.text(p.left-16*px, p.y+30*px, "note end", "%s", c.policy)
		p.dots("", admitted)
		p.crosses("", rejected)
		p.gap()
	}
	return p.svg(second)
}

// callAll returns when calls were admitted, and when they were rejected.
func callAll(t *testing.T, admit router.IngressFunc) (admitted, rejected []time.Duration) {
	start := time.Now()
	var mu sync.Mutex
	play(16*second, func(at time.Duration) {
		if !pace(at, second/2, 3*second, second) && !pace(at, 3*second, 7*second, second/8) && !pace(at, 7*second, 16*second, second) {
			return
		}
		go func() { // the call may wait
			c := newClient(t, "ann", admit)
			c.call(at)
			mu.Lock()
			defer mu.Unlock()
			if c.rejection == nil {
				admitted = append(admitted, time.Since(start))
				return
			}
			rejected = append(rejected, at)
		}()
		synctest.Wait()
	})
	return admitted, rejected
}

// withSemaphore admits a message if a permit is free, and holds the permit for the given time.
func withSemaphore(semaphore limit.Semaphore, takes time.Duration) router.IngressFunc {
	return func(ctx context.Context, in router.IngressContext) error {
		permit, err := semaphore.Acquire(ctx, ratelimit.KeyPerUser(in))
		switch {
		case err != nil:
			return err
		case permit.Release == nil:
			return &router.LimitExceeded{Kind: router.LimitConcurrency, Observed: permit.InUse + 1, Limit: permit.Limit}
		}
		time.AfterFunc(takes, permit.Release)
		return nil
	}
}

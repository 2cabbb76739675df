package memory_test

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
)

func ExampleNewLimiter() {
	limiter := memory.NewLimiter(limit.PerHour(60).Burst(2))
	for range 3 {
		d, err := limit.Consume(context.Background(), limiter, limit.Key{"user", "ann"}, 1)
		fmt.Println(d.Allowed, d.Remaining, d.RetryAfter.Round(time.Minute), err)
	}
	// Output:
	// true 1 0s <nil>
	// true 0 0s <nil>
	// false 0 1m0s <nil>
}

// A limiter of one key has room for one bucket. Further keys share a bucket.
func ExampleNewLimiterMaxKeys() {
	limiter := memory.NewLimiterMaxKeys(limit.PerHour(1), 1)
	for _, user := range []string{"ann", "bob", "eve"} {
		d, err := limit.Consume(context.Background(), limiter, limit.Key{"user", user}, 1)
		fmt.Println(user, d.Allowed, err)
	}
	stats := limiter.Stats()
	fmt.Println("keys:", stats.Keys, "overflowed:", stats.Overflowed)
	// Output:
	// ann true <nil>
	// bob true <nil>
	// eve false <nil>
	// keys: 1 overflowed: 2
}

// A reservation takes a token that the bucket does not hold yet; the caller waits for it.
func ExampleLimiter_reservation() {
	limiter := memory.NewLimiter(limit.PerHour(60).Burst(1))
	ctx, key := context.Background(), limit.Key{"mailbox", "support"}
	for range 3 {
		d, err := limit.Reserve(ctx, limiter, key, 1, 90*time.Second)
		fmt.Println(d.Allowed, d.RetryAfter.Round(30*time.Second), err)
	}
	// Output:
	// true 0s <nil>
	// true 1m0s <nil>
	// false 30s <nil>
}

func ExampleNewCooldown() {
	policy := limit.CooldownPolicy{Name: "login", Max: 2, Window: time.Minute, Penalty: time.Hour}
	login := memory.NewCooldown(policy, func(p limit.Penalty) {
		fmt.Println("penalty for", p.Key[1], "of", p.RetryAfter)
	})
	for range 3 {
		d, err := limit.Consume(context.Background(), login, limit.Key{"user", "ann"}, 1)
		fmt.Println(d.Allowed, err)
	}
	// Output:
	// true <nil>
	// true <nil>
	// penalty for ann of 1h0m0s
	// false <nil>
}

func ExampleNewSemaphore() {
	renders := memory.NewSemaphore(1)
	key := limit.Key{"user", "ann"}
	for _, name := range []string{"first", "second"} {
		permit, err := renders.Acquire(context.Background(), key)
		switch {
		case err != nil:
			fmt.Println(err)
		case permit.Release == nil:
			fmt.Println(name, "is rejected:", permit.InUse, "of", permit.Limit, "permits are in use")
		default:
			defer permit.Release()
			fmt.Println(name, "runs")
		}
	}
	// Output:
	// first runs
	// second is rejected: 1 of 1 permits are in use
}

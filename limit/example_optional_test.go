package limit_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
)

// Each user may send three messages per minute, and each room receives at most five.
func ExampleConsumeAll() {
	perUser := memory.NewLimiter(limit.PerMinute(3).Named("user"))
	perRoom := memory.NewLimiter(limit.PerMinute(5).Named("room"))
	for _, user := range []string{"ann", "ann", "ann", "ann", "bob", "bob", "bob"} {
		d, err := limit.ConsumeAll(context.Background(),
			limit.Request{Limiter: perUser, Key: limit.Key{"user", user}, Cost: 1},
			limit.Request{Limiter: perRoom, Key: limit.Key{"room", "go"}, Cost: 1},
		)
		fmt.Println(user, d.Allowed, d.Policy, err)
	}
	// Output:
	// ann true user <nil>
	// ann true user <nil>
	// ann true user <nil>
	// ann false user <nil>
	// bob true room <nil>
	// bob true room <nil>
	// bob false room <nil>
}

// A worker sends at most ten mails at once and then one every 5 milliseconds.
func ExampleWait() {
	limiter := memory.NewLimiter(limit.PerSecond(200).Burst(10))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	start := time.Now()
	for range 12 {
		if err := limit.Wait(ctx, limiter, limit.Key{"mail"}, 1); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("at least 9ms:", time.Since(start) >= 9*time.Millisecond)
	// Output: at least 9ms: true
}

// A deployment lowers the limit while clients use it. A client that has spent eight tokens is
// denied until six of them have returned.
func ExamplePolicySetter() {
	limiter := memory.NewLimiter(limit.PerHour(10).Named("chat"))
	ctx, key := context.Background(), limit.Key{"user", "ann"}
	if _, err := limit.Consume(ctx, limiter, key, 8); err != nil {
		log.Fatal(err)
	}
	if err := limiter.SetPolicy(limit.PerHour(3).Named("chat")); err != nil {
		log.Fatal(err)
	}
	d, err := limit.Consume(ctx, limiter, key, 1)
	fmt.Println(d.Allowed, d.Remaining, d.Limit, d.RetryAfter.Round(time.Minute), err)
	// Output: false 0 3 2h0m0s <nil>
}

// An export sends as many of its 500 rows as the limit permits at present.
func ExampleConsumeUpTo() {
	limiter := memory.NewLimiter(limit.PerHour(300))
	ctx, key := context.Background(), limit.Key{"export", "ann"}
	granted, d, err := limit.ConsumeUpTo(ctx, limiter, key, 500)
	fmt.Println(granted, d.Allowed, err)
	granted, d, err = limit.ConsumeUpTo(ctx, limiter, key, 200)
	fmt.Println(granted, d.Allowed, d.RetryAfter.Round(time.Second), err)
	// Output:
	// 300 true <nil>
	// 0 false 12s <nil>
}

// Searches leave four of ten tokens to payments.
func ExampleConsumeKeeping() {
	limiter := memory.NewLimiter(limit.PerHour(10))
	ctx, key := context.Background(), limit.Key{"user", "ann"}
	searches := 0
	for range 10 {
		d, err := limit.ConsumeKeeping(ctx, limiter, key, 1, 4)
		if err != nil {
			log.Fatal(err)
		}
		if d.Allowed {
			searches++
		}
	}
	payment, err := limit.Consume(ctx, limiter, key, 1)
	fmt.Println(searches, payment.Allowed, payment.Remaining, err)
	// Output: 6 true 3 <nil>
}

// The cost of a query is known after it has run.
func ExampleCharge() {
	limiter := memory.NewLimiter(limit.PerHour(60))
	ctx, key := context.Background(), limit.Key{"user", "ann"}
	d, err := limit.Consume(ctx, limiter, key, 1)
	fmt.Println(d.Allowed, d.Remaining, err)
	for range 2 {
		if err := limit.Charge(ctx, limiter, key, 40); err != nil {
			log.Fatal(err)
		}
	}
	d, err = limit.Consume(ctx, limiter, key, 1)
	fmt.Println(d.Allowed, d.RetryAfter.Round(time.Minute), err)
	// Output:
	// true 59 <nil>
	// false 22m0s <nil>
}

// An answer of a language model costs as many tokens as it has, which is known only after it. Each user
// may use 100,000 tokens per minute and 50,000 per month.
func ExampleMeter() {
	perMinute := memory.NewLimiter(limit.PerMinute(100_000).Named("per-minute"))
	perMonth := memory.NewQuota(limit.QuotaPolicy{Name: "per-month", Max: 50_000, Period: limit.Month})
	meter := limit.NewMeter(10*time.Minute, perMinute, perMonth)

	// complete asks the model, which returns what it has used.
	complete := func(used int64) int64 { return used }

	ctx, ann := context.Background(), limit.Key{"user", "ann"}
	for _, used := range []int64{180, 50_500, 100} {
		d, err := meter.Reserve(ctx, 500, ann)
		if err != nil {
			log.Fatal(err)
		}
		if !d.Allowed {
			fmt.Println("denied", d.Policy)
			continue
		}
		if err := meter.Settle(ctx, d.Receipt, complete(used), ann); err != nil {
			log.Fatal(err)
		}
		left, err := limit.Inspect(ctx, perMonth, ann)
		fmt.Println("used", used, "left", left.Remaining, err)
	}
	// Output:
	// used 180 left 49820 <nil>
	// used 50500 left 0 <nil>
	// denied per-month
}

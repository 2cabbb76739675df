package memory_test

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
)

// A user may reset the password twice in any 24 hours.
func ExampleNewSlidingLog() {
	resets := memory.NewSlidingLog(limit.WindowPolicy{Name: "password-reset", Max: 2, Window: 24 * time.Hour})
	for range 3 {
		d, err := limit.Consume(context.Background(), resets, limit.Key{"user", "ann"}, 1)
		fmt.Println(d.Allowed, d.Remaining, d.RetryAfter.Round(time.Minute), err)
	}
	// Output:
	// true 1 0s <nil>
	// true 0 0s <nil>
	// false 0 24h0m0s <nil>
}

// A counter takes the same memory for any maximum.
func ExampleNewSlidingCounter() {
	requests := memory.NewSlidingCounter(limit.WindowPolicy{Name: "requests", Max: 100_000, Window: time.Hour})
	for _, cost := range []int64{60_000, 60_000, 40_000} {
		d, err := limit.Consume(context.Background(), requests, limit.Key{"tenant", "acme"}, cost)
		fmt.Println(d.Allowed, d.Remaining, err)
	}
	// Output:
	// true 40000 <nil>
	// false 40000 <nil>
	// true 0 <nil>
}

// A tenant may send 1,000 messages in each month of its own calendar.
func ExampleNewQuota() {
	location := time.FixedZone("UTC+1", 60*60) // or time.LoadLocation("Europe/Berlin")
	quota := memory.NewQuota(limit.QuotaPolicy{Name: "plan", Max: 1000, Period: limit.Month, Location: location})
	ctx, key := context.Background(), limit.Key{"tenant", "acme"}
	d, err := limit.Consume(ctx, quota, key, 600)
	fmt.Println(d.Allowed, d.Remaining, err)
	d, err = limit.Consume(ctx, quota, key, 600)
	fmt.Println(d.Allowed, d.Remaining, time.Now().Add(d.RetryAfter).In(location).Round(time.Minute).Format("2 15:04"), err)
	// Output:
	// true 400 <nil>
	// false 400 1 00:00 <nil>
}

// All limits of a call are charged together, or none of them.
func ExampleNewQuota_allOf() {
	both := limit.AllOf(
		memory.NewLimiter(limit.PerSecond(10).Named("rate")),
		memory.NewQuota(limit.QuotaPolicy{Name: "daily", Max: 2, Period: limit.Day}),
	)
	for range 3 {
		d, err := limit.Consume(context.Background(), both, limit.Key{"user", "ann"}, 1)
		fmt.Println(d.Allowed, d.Policy, err)
	}
	// Output:
	// true daily <nil>
	// true daily <nil>
	// false daily <nil>
}

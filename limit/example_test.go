package limit_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
)

// Each user may send three messages per hour.
func Example() {
	limiter := memory.NewLimiter(limit.PerHour(3))
	key := limit.Key{"user", "ann"}
	for range 4 {
		d, err := limit.Consume(context.Background(), limiter, key, 1)
		switch {
		case err != nil:
			log.Fatal(err) // the limiter could not decide; limiters in memory always can
		case d.Allowed:
			fmt.Println("allowed,", d.Remaining, "tokens left")
		default:
			fmt.Println("denied, retry after", d.RetryAfter.Round(time.Minute))
		}
	}
	// Output:
	// allowed, 2 tokens left
	// allowed, 1 tokens left
	// allowed, 0 tokens left
	// denied, retry after 20m0s
}

// 60 tokens return per hour, and at most 10 can be spent at once.
func ExamplePolicy() {
	limiter := memory.NewLimiter(limit.PerHour(60).Burst(10))
	key := limit.Key{"user", "ann"}
	for _, cost := range []int64{8, 5, 11} {
		d, err := limit.Consume(context.Background(), limiter, key, cost)
		fmt.Println(cost, d.Allowed, d.Remaining, d.RetryAfter == limit.Never, err)
	}
	// Output:
	// 8 true 2 false <nil>
	// 5 false 2 false <nil>
	// 11 false 2 true <nil>
}

func ExampleParsePolicy() {
	p, err := limit.ParsePolicy("chat: 10/1s burst 20")
	fmt.Println(p, err)
	fmt.Println(p == limit.PerSecond(10).Burst(20).Named("chat"))

	_, err = limit.ParsePolicy("10 per second")
	fmt.Println(err)
	// Output:
	// chat: 10/s burst 20 <nil>
	// true
	// limit: policy "10 per second": "10" is not a rate; write tokens, a slash and a time, such as 10/s or 1/250ms
}

// Two messages per second and a thousand per day.
func ExampleAllOf() {
	limiter := limit.AllOf(
		memory.NewLimiter(limit.PerSecond(2).Named("second")),
		memory.NewLimiter(limit.Per(1000, 24*time.Hour).Named("day")),
	)
	for range 3 {
		d, err := limit.Consume(context.Background(), limiter, limit.Key{"user", "ann"}, 1)
		fmt.Println(d.Allowed, d.Limit, err)
	}
	// Output:
	// true 2 <nil>
	// true 2 <nil>
	// false 2 <nil>
}

// The work was not done, so what it took is returned.
func ExampleReceipt_Undo() {
	limiter := memory.NewLimiter(limit.PerHour(1))
	ctx, key := context.Background(), limit.Key{"user", "ann"}
	d, err := limiter.Take(ctx, key, limit.Take{Cost: 1, Receipt: true})
	fmt.Println(d.Allowed, err)
	if err := d.Receipt.Undo(ctx, limiter, key); err != nil {
		log.Fatal(err)
	}
	d, err = limit.Consume(ctx, limiter, key, 1)
	fmt.Println(d.Allowed, err)
	// Output:
	// true <nil>
	// true <nil>
}

func ExampleBlocker() {
	limiter := memory.NewLimiter(limit.PerMinute(10))
	ctx, key := context.Background(), limit.Key{"user", "mallory"}
	if err := limiter.Block(ctx, key, time.Hour); err != nil {
		log.Fatal(err)
	}
	d, err := limit.Consume(ctx, limiter, key, 1)
	fmt.Println(d.Allowed, d.Reason == limit.Blocked, d.RetryAfter.Round(time.Minute), err)
	// Output: false true 1h0m0s <nil>
}

func ExampleSemaphore() {
	var semaphore limit.Semaphore = memory.NewSemaphore(2)
	handle := func() string {
		permit, err := semaphore.Acquire(context.Background(), limit.Key{"user", "ann"})
		switch {
		case err != nil:
			return err.Error()
		case permit.Release == nil:
			return "too many requests at the same time"
		}
		defer permit.Release()
		return fmt.Sprint("request ", permit.InUse, " of ", permit.Limit)
	}
	fmt.Println(handle())
	// Output: request 1 of 2
}

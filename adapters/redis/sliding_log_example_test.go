package redis_test

import (
	"context"
	"fmt"
	"log"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/limit"
)

func ExampleNewSlidingLog() {
	client := goredis.NewClient(&goredis.Options{Addr: redisAddr()})
	defer func() { _ = client.Close() }()

	resets := redis.NewSlidingLog(client, limit.WindowPolicy{Name: "password-reset", Max: 2, Window: 24 * time.Hour})
	for range 3 {
		d, err := limit.Consume(context.Background(), resets, limit.Key{"user", "ann"}, 1)
		if err != nil {
			log.Fatal(err) // Redis is unavailable: admit or reject, as your program prefers
		}
		fmt.Println(d.Allowed, d.Remaining, d.RetryAfter.Round(time.Minute))
	}
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 24h0m0s
}

func ExampleNewSlidingCounter() {
	client := goredis.NewClient(&goredis.Options{Addr: redisAddr()})
	defer func() { _ = client.Close() }()

	requests := redis.NewSlidingCounter(client, limit.WindowPolicy{Name: "requests", Max: 100_000, Window: time.Hour})
	for _, cost := range []int64{60_000, 60_000, 40_000} {
		d, err := limit.Consume(context.Background(), requests, limit.Key{"tenant", "acme"}, cost)
		fmt.Println(d.Allowed, d.Remaining, err)
	}
	// Output:
	// true 40000 <nil>
	// false 40000 <nil>
	// true 0 <nil>
}

func ExampleNewQuota() {
	client := goredis.NewClient(&goredis.Options{Addr: redisAddr()})
	defer func() { _ = client.Close() }()

	quota := redis.NewQuota(client, limit.QuotaPolicy{Name: "plan", Max: 1000, Period: limit.Month})
	ctx, key := context.Background(), limit.Key{"tenant", "acme"}
	d, err := limit.Consume(ctx, quota, key, 600)
	fmt.Println(d.Allowed, d.Remaining, err)
	d, err = limit.Consume(ctx, quota, key, 600)
	fmt.Println(d.Allowed, d.Remaining, time.Now().UTC().Add(d.RetryAfter).Round(time.Minute).Format("2 15:04"), err)
	// Output:
	// true 400 <nil>
	// false 400 1 00:00 <nil>
}

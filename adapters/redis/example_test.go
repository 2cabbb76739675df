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

func ExampleNewLimiter() {
	client := goredis.NewClient(&goredis.Options{Addr: redisAddr()})
	defer func() { _ = client.Close() }()

	limiter := redis.NewLimiter(client, limit.PerHour(2).Named("messages"))
	for range 3 {
		d, err := limit.Consume(context.Background(), limiter, limit.Key{"user", "acme", "ann"}, 1)
		if err != nil {
			log.Fatal(err) // Redis is unavailable: admit or reject, as your program prefers
		}
		fmt.Println(d.Allowed, d.Remaining)
	}
	fmt.Println(client.Keys(context.Background(), "*").Val())
	// Output:
	// true 1
	// true 0
	// false 0
	// [penstock:limit:messages:user:acme:ann]
}

// Two processes have different numbers for one policy, as during a rolling deployment. What one
// of them takes, the other sees missing.
func ExampleLimiter_SetPolicy() {
	client := goredis.NewClient(&goredis.Options{Addr: redisAddr()})
	defer func() { _ = client.Close() }()

	ctx, key := context.Background(), limit.Key{"user", "acme", "ann"}
	old := redis.NewLimiter(client, limit.PerHour(10).Named("messages"))
	d, err := limit.Consume(ctx, old, key, 8)
	fmt.Println(d.Remaining, "of", d.Limit, err)

	other := redis.NewLimiter(client, limit.PerHour(100).Named("messages"))
	d, err = limit.Consume(ctx, other, key, 0)
	fmt.Println(d.Remaining, "of", d.Limit, err)

	err = old.SetPolicy(limit.PerHour(100).Named("messages"))
	fmt.Println(err)
	d, err = limit.Consume(ctx, old, key, 50)
	fmt.Println(d.Remaining, "of", d.Limit, err)
	// Output:
	// 2 of 10 <nil>
	// 92 of 100 <nil>
	// <nil>
	// 42 of 100 <nil>
}

// The limiter blocks a user for an hour, and ends the block.
func ExampleLimiter_Block() {
	client := goredis.NewClient(&goredis.Options{Addr: redisAddr()})
	defer func() { _ = client.Close() }()

	limiter := redis.NewLimiter(client, limit.PerMinute(10).Named("messages"))
	ctx, key := context.Background(), limit.Key{"user", "acme", "ann"}
	if err := limiter.Block(ctx, key, time.Hour); err != nil {
		log.Fatal(err)
	}
	d, err := limit.Consume(ctx, limiter, key, 1)
	fmt.Println(d.Allowed, d.Reason == limit.Blocked, err)

	if err := limiter.Reset(ctx, key); err != nil {
		log.Fatal(err)
	}
	d, err = limit.Consume(ctx, limiter, key, 1)
	fmt.Println(d.Allowed, err)
	// Output:
	// false true <nil>
	// true <nil>
}

func ExampleNewCooldown() {
	client := goredis.NewClient(&goredis.Options{Addr: redisAddr()})
	defer func() { _ = client.Close() }()

	policy := limit.CooldownPolicy{Name: "spam", Max: 2, Window: time.Minute, Penalty: time.Hour}
	spam := redis.NewCooldown(client, policy, func(p limit.Penalty) {
		fmt.Println("penalty for", p.Key[2], "of", p.RetryAfter)
	})
	for range 3 {
		d, err := limit.Consume(context.Background(), spam, limit.Key{"user", "acme", "ann"}, 1)
		fmt.Println(d.Allowed, err)
	}
	// Output:
	// true <nil>
	// true <nil>
	// penalty for ann of 1h0m0s
	// false <nil>
}

func ExampleNewSemaphore() {
	client := goredis.NewClient(&goredis.Options{Addr: redisAddr()})
	defer func() { _ = client.Close() }()

	renders := redis.NewSemaphore(client, "renders", 1) // one render per user, on all machines
	key := limit.Key{"user", "acme", "ann"}
	first, err := renders.Acquire(context.Background(), key)
	if err != nil {
		log.Fatal(err)
	}
	second, err := renders.Acquire(context.Background(), key)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("first has a permit:", first.Release != nil)
	fmt.Println("second has a permit:", second.Release != nil)
	first.Release()
	// Output:
	// first has a permit: true
	// second has a permit: false
}

package redis_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/outbound"
	"github.com/penstock-go/penstock/router"
)

// client is of a Redis that lives as long as the example.
func client() (*goredis.Client, func()) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	c := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	return c, func() { _ = c.Close(); server.Close() }
}

func ExampleNewLimiter() {
	client, stop := client()
	defer stop()
	limiter := redis.NewLimiter(client, ratelimit.PerHour(2).Named("messages"))
	for range 3 {
		d, err := limiter.Consume(context.Background(), ratelimit.Key{"user", "acme", "ann"}, 1)
		fmt.Println(d.Allowed, d.Remaining, err)
	}
	fmt.Println(client.Keys(context.Background(), "*").Val())
	// Output:
	// true 1 <nil>
	// true 0 <nil>
	// false 0 <nil>
	// [penstock:limit:messages:user:acme:ann]
}

func ExampleNewCooldown() {
	client, stop := client()
	defer stop()
	spam := redis.NewCooldown(client, ratelimit.CooldownPolicy{Name: "spam", Max: 2, Window: time.Minute, Penalty: time.Hour},
		func(p ratelimit.Penalty) { fmt.Println(p.Key[2], "is out for", p.RetryAfter) })
	for range 3 {
		d, err := spam.Consume(context.Background(), ratelimit.Key{"user", "acme", "ann"}, 1)
		fmt.Println(d.Allowed, err)
	}
	// Output:
	// true <nil>
	// true <nil>
	// ann is out for 1h0m0s
	// false <nil>
}

func ExampleNewSlots() {
	client, stop := client()
	defer stop()
	renders := redis.NewSlots(client, "renders", 1)
	first, _ := renders.Acquire(context.Background(), ratelimit.Key{"user", "acme", "ann"})
	second, _ := renders.Acquire(context.Background(), ratelimit.Key{"user", "acme", "ann"})
	fmt.Println(first.Release != nil, second.Release != nil)
	first.Release()
	// Output: true false
}

func ExampleNewBudget() {
	client, stop := client()
	defer stop()
	budget := redis.NewBudget(client, "{mybot}:", &outbound.BudgetOptions{GlobalLimit: 50})
	// client := &http.Client{Transport: outbound.NewTransport(budget, nil)} does what follows:
	ctx := context.Background()
	first, err := budget.TryAcquire(ctx, "GET /users")
	fmt.Println("may send:", first.Wait == 0, err)
	second, err := budget.TryAcquire(ctx, "GET /users") // waits until the first response reports the limit
	fmt.Println("may send:", second.Wait == 0, err)
	err = budget.Update(ctx, "GET /users", first, outbound.Status{Limit: 5, Remaining: 4, ResetAfter: time.Second})
	fmt.Println(client.Get(ctx, "{mybot}:GET /users:remaining").Val(), err)
	// Output:
	// may send: true <nil>
	// may send: false <nil>
	// 4 <nil>
}

func ExampleNewBroker() {
	client, stop := client()
	defer stop()
	r := router.New(&router.Options{Broker: redis.NewBroker(client)})
	defer func() { _ = r.Shutdown(context.Background()) }()
	fmt.Println(r.Publish("news", News{"to all nodes"}))
	// Output: <nil>
}

// News is a message.
type News struct{ Text string }

// MessageType is its name.
func (News) MessageType() string { return "NEWS" }

package ratelimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

func Example() {
	limiter := memory.NewLimiter(ratelimit.PerMinute(3))
	admit := ratelimit.New(limiter, nil)

	in := router.IngressContext{Type: "SAY", Identity: router.Identity{UserID: "ann"}}
	for range 4 {
		fmt.Println(admit(context.Background(), in))
	}
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// rate limit exceeded: 1 of 3
}

// A search is as dear as five other messages, and all of a tenant's users share
// one budget.
func ExampleOptions() {
	limiter := memory.NewLimiter(ratelimit.PerMinute(7))
	admit := ratelimit.New(limiter, &ratelimit.Options{
		Key: func(in router.IngressContext) ratelimit.Key {
			return ratelimit.Key{"tenant", in.Identity.TenantID}
		},
		Cost: func(in router.IngressContext) int64 {
			if in.Type == "SEARCH" {
				return 5
			}
			return 1
		},
	})

	for _, user := range []string{"ann", "bob"} {
		in := router.IngressContext{Type: "SEARCH", Identity: router.Identity{TenantID: "acme", UserID: user}}
		fmt.Println(user, admit(context.Background(), in))
	}
	// Output:
	// ann <nil>
	// bob rate limit exceeded: 5 of 7
}

func ExamplePolicy() {
	limiter := memory.NewLimiter(ratelimit.PerHour(60).Burst(10))
	key := ratelimit.Key{"user", "", "ann"}
	for _, cost := range []int64{8, 5, 11} {
		d, err := limiter.Consume(context.Background(), key, cost)
		fmt.Println(cost, d.Allowed, d.Remaining, d.RetryAfter == ratelimit.Never, err)
	}
	// Output:
	// 8 true 2 false <nil>
	// 5 false 2 false <nil>
	// 11 false 2 true <nil>
}

func ExampleParsePolicy() {
	p, err := ratelimit.ParsePolicy("chat: 10/1s burst 20")
	fmt.Println(p, err)
	fmt.Println(p == ratelimit.PerSecond(10).Burst(20).Named("chat"))

	_, err = ratelimit.ParsePolicy("10 per second")
	fmt.Println(err)
	// Output:
	// chat: 10/s burst 20 <nil>
	// true
	// ratelimit: policy "10 per second": "10" is not a rate; write tokens, a slash and a time, such as 10/s or 1/250ms
}

// So many at once, and so many a day.
func ExampleAll() {
	limiter := ratelimit.All(
		memory.NewLimiter(ratelimit.PerSecond(2).Named("second")),
		memory.NewLimiter(ratelimit.Per(1000, 24*time.Hour).Named("day")),
	)
	for range 3 {
		d, err := limiter.Consume(context.Background(), ratelimit.Key{"user", "", "ann"}, 1)
		fmt.Println(d.Allowed, d.Limit, err)
	}
	// Output:
	// true 2 <nil>
	// true 2 <nil>
	// false 2 <nil>
}

func ExampleHandshake() {
	limiter := memory.NewLimiter(ratelimit.PerHour(1))
	r := router.New(nil)
	server := httptest.NewServer(ratelimit.Handshake(limiter, nil)(r))
	defer server.Close()
	for range 2 {
		resp, err := http.Get(server.URL)
		if err != nil {
			panic(err)
		}
		_ = resp.Body.Close()
		fmt.Printf("%d, %s, wait %q\n", resp.StatusCode, resp.Header.Get("RateLimit"), resp.Header.Get("Retry-After"))
	}
	// Output:
	// 426, "handshake";r=0;t=3600, wait ""
	// 429, "handshake";r=0;t=3600, wait "3600"
}

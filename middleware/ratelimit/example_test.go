package ratelimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

func Example() {
	limiter := memory.NewLimiter(limit.PerMinute(3))
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

// A search costs as much as five other messages, and all users of a tenant share one bucket.
func ExampleOptions() {
	limiter := memory.NewLimiter(limit.PerMinute(7))
	admit := ratelimit.New(limiter, &ratelimit.Options{
		Key: func(in router.IngressContext) limit.Key {
			return limit.Key{"tenant", in.Identity.TenantID}
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

func ExampleHTTP() {
	limiter := memory.NewLimiter(limit.PerHour(1))
	r := router.New(nil)
	server := httptest.NewServer(ratelimit.HTTP(limiter, nil)(r))
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
	// 426, "http";r=0;t=3600, wait ""
	// 429, "http";r=0;t=3600, wait "3600"
}

package ratelimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/access"
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
	// rate limit exceeded: cost 1, capacity 3
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
	// bob rate limit exceeded: cost 5, capacity 7
}

// A message needs a token of its user and one of its tenant. A rejected message takes neither.
func ExampleNewAll() {
	admit := ratelimit.NewAll([]ratelimit.Rule{
		{Limiter: memory.NewLimiter(limit.PerMinute(2).Named("user")), Key: ratelimit.KeyPerUser},
		{Limiter: memory.NewLimiter(limit.PerMinute(3).Named("tenant")), Key: func(in router.IngressContext) limit.Key {
			return limit.Key{"tenant", in.Identity.TenantID}
		}},
	}, nil)

	for _, user := range []string{"ann", "ann", "ann", "bob", "bob"} {
		in := router.IngressContext{Type: "SAY", Identity: router.Identity{TenantID: "acme", UserID: user}}
		err := admit(context.Background(), in)
		if exceeded, ok := errors.AsType[*router.LimitExceeded](err); ok {
			fmt.Println(user, "exceeds the limit per", exceeded.Policy)
			continue
		}
		fmt.Println(user, err)
	}
	// Output:
	// ann <nil>
	// ann <nil>
	// ann exceeds the limit per user
	// bob <nil>
	// bob exceeds the limit per tenant
}

// A preview leaves two of three tokens to other messages.
func ExampleOptions_keep() {
	admit := ratelimit.New(memory.NewLimiter(limit.PerMinute(3)), &ratelimit.Options{
		Key: ratelimit.KeyPerUser,
		Keep: func(in router.IngressContext) int64 {
			if in.Type == "PREVIEW" {
				return 2
			}
			return 0
		},
	})
	for _, typ := range []string{"PREVIEW", "PREVIEW", "SAY", "SAY"} {
		in := router.IngressContext{Type: typ, Identity: router.Identity{UserID: "ann"}}
		fmt.Println(typ, admit(context.Background(), in))
	}
	// Output:
	// PREVIEW <nil>
	// PREVIEW rate limit exceeded: cost 1, capacity 3
	// SAY <nil>
	// SAY <nil>
}

// The longest prefix decides, so a denied network may be in an allowed one.
func ExampleOptions_access() {
	list := &access.List{}
	err := list.Replace(access.Rules{
		Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Deny:  []netip.Prefix{netip.MustParsePrefix("10.66.0.0/16")},
	})
	if err != nil {
		panic(err)
	}
	admit := ratelimit.New(memory.NewLimiter(limit.PerHour(1)), &ratelimit.Options{Access: list})
	for _, ip := range []string{"192.0.2.1", "192.0.2.1", "10.1.2.3", "10.1.2.3", "10.66.2.3"} {
		fmt.Println(ip, admit(context.Background(), router.IngressContext{IP: netip.MustParseAddr(ip)}))
	}
	// Output:
	// 192.0.2.1 <nil>
	// 192.0.2.1 rate limit exceeded: cost 1, capacity 1
	// 10.1.2.3 <nil>
	// 10.1.2.3 <nil>
	// 10.66.2.3 PERMISSION_DENIED: access is denied
}

func ExampleKeyPerIPPrefix() {
	key := ratelimit.KeyPerIPPrefix(24, 48)
	for _, ip := range []string{"192.0.2.1", "192.0.2.200", "2001:db8:1:2::3"} {
		parts := key(router.IngressContext{IP: netip.MustParseAddr(ip)})
		fmt.Println(parts[0], parts[1])
	}
	// Output:
	// ip 192.0.2.0/24
	// ip 192.0.2.0/24
	// ip 2001:db8:1::/48
}

// A user has at most three connections on all nodes. The application's own OnOpen runs after the
// limit; if it rejects the connection, the permit is released.
func ExampleConnections() {
	semaphore := memory.NewSemaphore(3) // with several nodes: redis.NewSemaphore(client, "connections", 3)
	limitConns := ratelimit.Connections(semaphore, &ratelimit.ConcurrencyOptions{FailOpen: true})
	r := router.New(&router.Options{
		OnOpen: func(ctx context.Context, c *router.Conn) error {
			if err := limitConns(ctx, c); err != nil {
				return err
			}
			return c.Subscribe("news")
		},
	})
	http.Handle("GET /ws", r)
}

// The router describes a limit to clients that ask for it, so that they can pace themselves.
func ExampleAnnounce() {
	limiter := memory.NewLimiter(limit.PerSecond(10).Burst(20).Named("messages"))
	opts := &ratelimit.Options{Key: ratelimit.KeyPerUser}
	announce := ratelimit.Announce(limiter, opts)
	r := router.New(&router.Options{AnnounceLimits: announce})
	r.UseIngress(ratelimit.New(limiter, opts))

	// The router calls the function for every type when a client sends the greeting.
	for _, l := range announce(router.IngressContext{Type: "SAY", Identity: router.Identity{UserID: "ann"}}) {
		fmt.Printf("%s: %d tokens, %d every %v, cost %d, shared by the connections of a %s\n",
			l.Name, l.Capacity, l.Refill, l.Per, l.Cost, l.Scope)
	}
	// Output: messages: 20 tokens, 1 every 100ms, cost 1, shared by the connections of a user
}

package router_test

import (
	"context"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// protocolTypes are the types of the protocol that ingress sees.
var protocolTypes = []string{"__heartbeat", "$ws:abort", "$ws:answer", "$ws:auth", "$ws:credit", "$ws:hello", "$ws:subscribe", "$ws:unsubscribe"}

func TestGreeting_WelcomeHasTheSettingsOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ids recorder[string]
		r := router.New(&router.Options{
			OnOpen:   func(_ context.Context, c *router.Conn) error { ids.add(c.ID()); return nil },
			Timeouts: router.Timeouts{Ping: 20 * time.Second, Pong: 3 * time.Second, Call: time.Minute},
			Limits:   router.Limits{MaxMessageBytes: 4096, Concurrency: 8},
		})
		router.RPC(r, echo).MaxMessageBytes(100).Timeout(1500 * time.Millisecond)
		router.On(r, func(*router.Context, Say) error { return nil })
		client := routertest.Dial(t, r)
		synctest.Wait() // until OnOpen has returned
		want := routertest.Welcome{
			ConnID:         ids.all()[0],
			PingIntervalMs: 20_000, PongTimeoutMs: 3000,
			MaxMessageBytes: 4096, MaxMessageBytesByType: map[string]int64{"ECHO": 100},
			CallTimeoutMs: 60_000, CallTimeoutMsByType: map[string]int64{"ECHO": 1500},
			Concurrency: 8,
		}
		assert.Equal(t, want, client.Greet())
		assert.Equal(t, want, client.Greet(), "a client may greet again")
	})
}

func TestGreeting_HooksOfTheApplicationDoNotSeeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := errors.Errorf(errors.PermissionDenied, "log in first")
		r := router.New(&router.Options{RejectUnknownFields: true, Validate: func(any) error { return refuse }})
		r.Use(func(router.Handler) router.Handler { return func(*router.Context) error { return refuse } })
		client := routertest.Dial(t, r)
		client.SendText(`{"type":"$ws:hello","payload":{"of a later version":1}}`)
		assert.Equal(t, "$ws:welcome", client.Next().Type)
	})
}

// limited returns a limit with the numbers that the tests do not vary.
func limited(name string, cost int64, bucket ...string) router.AnnouncedLimit {
	l := router.AnnouncedLimit{Name: name, Capacity: 20, Refill: 100, Per: time.Second, Scope: router.ScopeUser, Cost: cost}
	copy(l.Bucket[:], bucket)
	return l
}

// costs returns a map as a client decodes it; a negative cost is null.
func costs(byType map[string]int64) map[string]*int64 {
	all := map[string]*int64{}
	for typ, cost := range byType {
		if all[typ] = &cost; cost < 0 {
			all[typ] = nil
		}
	}
	return all
}

func TestGreeting_LimitsAreGroupedByNameAndBucket(t *testing.T) {
	both := func(echo, say int64) map[string]int64 { return map[string]int64{"ECHO": echo, "SAY": say} }
	limit := func(name string, buckets ...routertest.Bucket) routertest.Limit {
		return routertest.Limit{Name: name, Capacity: 20, Refill: 1, RefillMs: 10, Scope: "user", Buckets: buckets}
	}
	// one announces limits for ECHO and SAY only.
	one := func(f func(typ string) []router.AnnouncedLimit) func(router.IngressContext) []router.AnnouncedLimit {
		return func(in router.IngressContext) []router.AnnouncedLimit {
			if in.Type != "ECHO" && in.Type != "SAY" {
				return nil
			}
			return f(in.Type)
		}
	}
	type list = []router.AnnouncedLimit
	for name, tt := range map[string]struct {
		announce func(router.IngressContext) []router.AnnouncedLimit
		want     []routertest.Limit
	}{
		"none": {func(router.IngressContext) []router.AnnouncedLimit { return nil }, []routertest.Limit{}},
		"one bucket": {
			one(func(string) []router.AnnouncedLimit { return list{limited("a", 2)} }),
			[]routertest.Limit{limit("a", routertest.Bucket{Costs: costs(both(2, 2))})},
		},
		"bucket per type": {
			one(func(typ string) []router.AnnouncedLimit { return list{limited("a", 1, "t", typ)} }),
			[]routertest.Limit{limit("a", routertest.Bucket{Costs: costs(map[string]int64{"ECHO": 1})}, routertest.Bucket{Costs: costs(map[string]int64{"SAY": 1})})},
		},
		"two limits": {
			one(func(string) []router.AnnouncedLimit { return list{limited("b", 1), limited("a", 3)} }),
			[]routertest.Limit{limit("b", routertest.Bucket{Costs: costs(both(1, 1))}), limit("a", routertest.Bucket{Costs: costs(both(3, 3))})},
		},
		"charged twice": {
			one(func(typ string) []router.AnnouncedLimit {
				return list{limited("a", int64(len(typ))), limited("a", 0), limited("a", 5)}
			}),
			[]routertest.Limit{limit("a", routertest.Bucket{Costs: costs(both(9, 8))})},
		},
		"depends on the message": {one(func(typ string) []router.AnnouncedLimit {
			if typ == "SAY" {
				return list{limited("a", -1), limited("a", 1)}
			}
			return list{limited("a", 1), limited("a", -1)}
		}), []routertest.Limit{limit("a", routertest.Bucket{Costs: costs(both(-1, -1))})}},
		"keep": {one(func(typ string) []router.AnnouncedLimit {
			l := limited("a", 0)
			l.Keep = int64(len(typ)) - 3
			return list{l}
		}), []routertest.Limit{limit("a", routertest.Bucket{Costs: costs(both(0, 0)), Keep: map[string]int64{"ECHO": 1}})}},
		"equal names, other numbers": {one(func(typ string) []router.AnnouncedLimit {
			l := limited("a", 1)
			l.Refill, l.Per = int64(len(typ)), 7*time.Microsecond
			return list{l}
		}), []routertest.Limit{
			{Name: "a", Capacity: 20, Refill: 4000, RefillMs: 7, Scope: "user", Buckets: []routertest.Bucket{{Costs: costs(map[string]int64{"ECHO": 1})}}},
			{Name: "a", Capacity: 20, Refill: 3000, RefillMs: 7, Scope: "user", Buckets: []routertest.Bucket{{Costs: costs(map[string]int64{"SAY": 1})}}},
		}},
		"not describable": {one(func(string) []router.AnnouncedLimit {
			return list{limited("", 1), {Name: "no refill", Per: time.Second}, {Name: "no time", Refill: 1}, {Name: "short", Refill: 1, Per: 999}}
		}), []routertest.Limit{}},
	} {
		runSynctest(t, name, func(t *testing.T) {
			r := router.New(&router.Options{AnnounceLimits: tt.announce})
			router.RPC(r, echo)
			router.On(r, func(*router.Context, Say) error { return nil })
			assert.Equal(t, tt.want, routertest.Dial(t, r).Greet().Limits)
		})
	}
}

func TestGreeting_AnnounceLimitsIsCalledOncePerType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls recorder[router.IngressContext]
		identity := router.Identity{TenantID: "acme", UserID: "ann"}
		r := router.New(&router.Options{
			Authenticate:   func(*http.Request) (router.Identity, error) { return identity, nil },
			AnnounceLimits: func(in router.IngressContext) []router.AnnouncedLimit { calls.add(in); return nil },
			Limits:         router.Limits{MaxMessageBytes: 4096},
		})
		router.RPC(r, echo).MaxMessageBytes(100)
		client := routertest.Dial(t, r, routertest.RemoteAddr("192.0.2.1:1"))
		assert.Empty(t, calls.all(), "only the greeting asks for limits")
		id := client.Greet().ConnID
		types := map[string]bool{}
		for _, in := range calls.all() {
			types[in.Type] = true
			size := int64(4096)
			if in.Type == "ECHO" {
				size = 100
			}
			assert.EqualExportedValues(t, router.IngressContext{
				Type: in.Type, ConnID: id, IP: netip.MustParseAddr("192.0.2.1"), Identity: identity, Size: size, ReceivedAt: time.Now(),
			}, in)
		}
		assert.Len(t, types, len(calls.all()), "once per type")
		for _, typ := range append(protocolTypes, "ECHO") {
			assert.Contains(t, types, typ)
		}
	})
}

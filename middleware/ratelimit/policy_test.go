package ratelimit_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/fakelimiter"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/observe"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A policyCase is a limit that admits one message.
type policyCase struct {
	name     string
	ingress  router.IngressFunc
	announce func(router.IngressContext) []router.AnnouncedLimit
	want     string // details.policy of both answers; "" if there is none
}

func policyCases() []policyCase {
	one := limit.PerHour(1)
	limiter := func(name string) limit.Limiter { return memory.NewLimiter(one.Named(name)) }
	unnamed, named := memory.NewLimiter(one), limiter("messages")
	called := &ratelimit.Options{Name: "limit"}
	both := limit.AllOf(memory.NewLimiter(limit.PerHour(9).Named("burst")), limiter("day"))
	rules := []ratelimit.Rule{{Limiter: memory.NewLimiter(limit.PerHour(9).Named("user"))}, {Limiter: limiter("tenant"), Key: ratelimit.KeyPerType}}
	tier := func(router.IngressContext) string { return "free" }
	tiers := map[string]limit.Limiter{"free": memory.NewLimiter(one), "pro": memory.NewLimiter(limit.PerHour(9))}
	return []policyCase{
		{"a policy with a name", ratelimit.New(named, called), ratelimit.Announce(named, called), "messages"},
		{"a limit with a name", ratelimit.New(unnamed, called), ratelimit.Announce(unnamed, called), "limit"},
		{"no name", ratelimit.New(memory.NewLimiter(one), nil), nil, ""},
		{"several policies", ratelimit.New(both, called), ratelimit.Announce(both, called), "day"},
		{"several keys", ratelimit.NewAll(rules, called), ratelimit.AnnounceAll(rules, called), "tenant"},
		{"tiers", ratelimit.Tiers(tier, tiers, called), ratelimit.AnnounceTiers(tier, tiers, called), "limit/free"},
		{"a fallback", ratelimit.New(&fakelimiter.Limiter{Err: errors.New("down")}, &ratelimit.Options{Name: "limit", Fallback: limiter("local")}), nil, "local"},
		{"with an observer", ratelimit.New(limiter("observed"), &ratelimit.Options{Observe: func(observe.Observation) {}}), nil, "observed"},
	}
}

// TestPolicy_ReachesClient exceeds a limit with a call and with an event, and expects the name that the
// greeting announces.
func TestPolicy_ReachesClient(t *testing.T) {
	for _, tt := range policyCases() {
		t.Run(tt.name, func(t *testing.T) {
			r := router.New(&router.Options{AnnounceLimits: tt.announce})
			router.RPC(r, func(*router.Context, Render) (Rendered, error) { return Rendered{}, nil })
			r.UseIngress(func(ctx context.Context, in router.IngressContext) error {
				if in.Type == "RENDER" {
					return tt.ingress(ctx, in)
				}
				return nil
			})
			client := routertest.Dial(t, r)
			var announced []string
			for _, l := range client.Greet().Limits {
				announced = append(announced, l.Name)
			}
			if tt.announce != nil {
				assert.Contains(t, announced, tt.want)
			}
			routertest.Call[Rendered](client, Render{})
			assert.Equal(t, tt.want, errors.DetailsOf[errors.LimitDetails](routertest.CallError(client, Render{})).Policy)
			client.Send(Render{})
			assert.Equal(t, tt.want, errors.DetailsOf[errors.LimitDetails](routertest.ReceiveError(client)).Policy)
		})
	}
}

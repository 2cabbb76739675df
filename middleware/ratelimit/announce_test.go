package ratelimit_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/access"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

type Search struct{}

func (Search) MessageType() string { return "SEARCH" }

type Comment struct{}

func (Comment) MessageType() string { return "COMMENT" }

var named = limit.PerSecond(100).Burst(20).Named("messages")

func TestAnnounce_ScopeIsWhoSharesTheBucket(t *testing.T) {
	ann := router.Identity{TenantID: "acme", UserID: "ann"}
	perTenant := func(in router.IngressContext) limit.Key { return limit.Key{"tenant", in.Identity.TenantID} }
	userAtAddress := func(in router.IngressContext) limit.Key { return limit.Key{"user", in.Identity.UserID, in.IP.String()} }
	perRoom := func(router.IngressContext) limit.Key { return limit.Key{"room", "lobby"} }
	type keyFunc = func(router.IngressContext) limit.Key
	for _, tt := range []struct {
		name     string
		key      keyFunc
		identity router.Identity
		ip       string
		want     router.LimitScope
	}{
		{"user and type", nil, ann, "192.0.2.1", router.ScopeUser},
		{"user", ratelimit.KeyPerUser, ann, "192.0.2.1", router.ScopeUser},
		{"anonymous user", ratelimit.KeyPerUser, router.Identity{}, "192.0.2.1", router.ScopeConnection},
		{"anonymous user by address", nil, router.Identity{}, "192.0.2.1", router.ScopeIP},
		{"unknown address", nil, router.Identity{}, "", router.ScopeConnection},
		{"connection", ratelimit.KeyPerConn, ann, "192.0.2.1", router.ScopeConnection},
		{"IPv4", ratelimit.KeyPerIP, ann, "192.0.2.1", router.ScopeIP},
		{"IPv6", ratelimit.KeyPerIP, ann, "2001:db8::1", router.ScopeIP},
		{"largest network", ratelimit.KeyPerIPPrefix(1, 1), ann, "192.0.2.1", router.ScopeIP},
		{"largest network of IPv6", ratelimit.KeyPerIPPrefix(1, 1), ann, "2001:db8::1", router.ScopeIP},
		{"tenant", perTenant, ann, "192.0.2.1", router.ScopeTenant},
		{"no tenant", perTenant, router.Identity{UserID: "ann"}, "192.0.2.1", router.ScopeServer},
		{"user at an address", userAtAddress, ann, "192.0.2.1", router.ScopeUser},
		{"no user", func(router.IngressContext) limit.Key { return limit.Key{"user"} }, router.Identity{}, "192.0.2.1", router.ScopeServer},
		{"unknown", perRoom, ann, "192.0.2.1", router.ScopeServer},
		{"type", ratelimit.KeyPerType, ann, "192.0.2.1", router.ScopeServer},
	} {
		in := router.IngressContext{Type: "SAY", ConnID: "c1", Identity: tt.identity, Size: 1000}
		if tt.ip != "" {
			in.IP = netip.MustParseAddr(tt.ip)
		}
		announced := ratelimit.Announce(memory.NewLimiter(named), &ratelimit.Options{Key: tt.key})(in)
		key := ratelimit.KeyPerUserOrIPPerType
		if tt.key != nil {
			key = tt.key
		}
		assert.Equal(t, []router.AnnouncedLimit{{
			Name: "messages", Capacity: 20, Refill: 1, Per: 10 * time.Millisecond, Scope: tt.want, Bucket: key(in), Cost: 1,
		}}, announced, tt.name)
	}
}

func TestAnnounce_CostAndKeepOfEverySize(t *testing.T) {
	in := from("ann")
	in.Size = 65_536
	above := func(bytes, small, large int64) func(router.IngressContext) int64 {
		return func(in router.IngressContext) int64 {
			if in.Size > bytes {
				return large
			}
			return small
		}
	}
	for name, tt := range map[string]struct {
		opts       ratelimit.Options
		cost, keep int64
	}{
		"fixed":              {ratelimit.Options{Cost: above(0, 0, 5)}, 5, 0},
		"not limited":        {ratelimit.Options{Cost: above(0, 0, 0)}, 0, 0},
		"by size":            {ratelimit.Options{Cost: ratelimit.CostPerKiB}, -1, 0},
		"large ones":         {ratelimit.Options{Cost: above(60_000, 1, 2)}, -1, 0},
		"small ones":         {ratelimit.Options{Cost: above(1, 2, 1)}, -1, 0},
		"share":              {ratelimit.Options{Keep: above(0, 0, 4)}, 1, 4},
		"share of small one": {ratelimit.Options{Keep: above(1000, 4, 0)}, 1, 4},
	} {
		announced := ratelimit.Announce(memory.NewLimiter(named), &tt.opts)(in)
		require.Len(t, announced, 1, name)
		assert.Equal(t, tt.cost, announced[0].Cost, name)
		assert.Equal(t, tt.keep, announced[0].Keep, name)
	}
}

func TestAnnounce_NamesOfPolicies(t *testing.T) {
	list := &access.List{}
	require.NoError(t, list.Replace(access.Rules{AllowKeys: []limit.Key{user("ann")}, DenyKeys: []limit.Key{user("eve")}}))
	bucket, day := memory.NewLimiter(named), memory.NewLimiter(limit.PerHour(9).Named("day"))
	plain := memory.NewLimiter(limit.PerSecond(2))
	quota := memory.NewQuota(limit.QuotaPolicy{Name: "quota", Max: 5, Period: limit.Day})
	bare := struct{ limit.Limiter }{bucket}
	for name, tt := range map[string]struct {
		user     string
		announce func(router.IngressContext) []router.AnnouncedLimit
		want     []string
	}{
		"policy":              {"bob", ratelimit.Announce(bucket, &ratelimit.Options{Name: "other"}), []string{"messages"}},
		"option":              {"bob", ratelimit.Announce(plain, &ratelimit.Options{Name: "other"}), []string{"other"}},
		"none":                {"bob", ratelimit.Announce(plain, nil), nil},
		"all of":              {"bob", ratelimit.Announce(limit.AllOf(bucket, plain, day), nil), []string{"messages", "day"}},
		"no token bucket":     {"bob", ratelimit.Announce(quota, nil), nil},
		"a bucket and others": {"bob", ratelimit.Announce(limit.AllOf(quota, bucket), nil), []string{"messages"}},
		"no description":      {"bob", ratelimit.Announce(bare, nil), nil},
		"dry run":             {"bob", ratelimit.Announce(bucket, &ratelimit.Options{DryRun: true}), nil},
		"access":              {"bob", ratelimit.Announce(bucket, &ratelimit.Options{Access: list}), []string{"messages"}},
		"allowed":             {"ann", ratelimit.Announce(bucket, &ratelimit.Options{Access: list}), nil},
		"denied":              {"eve", ratelimit.Announce(bucket, &ratelimit.Options{Access: list}), nil},
		"rules":               {"bob", ratelimit.AnnounceAll([]ratelimit.Rule{{Limiter: bucket}, {Limiter: plain}, {Limiter: day}}, nil), []string{"messages", "day"}},
		"tier":                {"bob", ratelimit.AnnounceTiers(tierOf, map[string]limit.Limiter{"bob": bucket, "ann": day}, nil), []string{"messages"}},
		"other tier":          {"ann", ratelimit.AnnounceTiers(tierOf, map[string]limit.Limiter{"bob": bucket, "ann": day}, nil), []string{"day"}},
		"unknown tier":        {"eve", ratelimit.AnnounceTiers(tierOf, map[string]limit.Limiter{"bob": bucket}, nil), nil},
		"unnamed tier":        {"bob", ratelimit.AnnounceTiers(tierOf, map[string]limit.Limiter{"bob": plain}, nil), []string{"bob"}},
	} {
		var names []string
		for _, l := range tt.announce(from(tt.user)) {
			names = append(names, l.Name)
		}
		assert.Equal(t, tt.want, names, name)
	}
}

func TestDescribe_HasLimitsThatDoNotDependOnTiers(t *testing.T) {
	bucket := memory.NewLimiter(named)
	everyTier := func(router.IngressContext) string { return "bob" }
	for name, tt := range map[string]struct {
		announce func(router.IngressContext) []router.AnnouncedLimit
		want     int
	}{
		"limit": {ratelimit.Announce(bucket, nil), 1},
		"tiers": {ratelimit.AnnounceTiers(everyTier, map[string]limit.Limiter{"bob": bucket}, nil), 0},
	} {
		r := router.New(&router.Options{AnnounceLimits: tt.announce})
		router.On(r, func(*router.Context, Search) error { return nil })
		limits := r.Describe().Limits
		require.Len(t, limits, tt.want, name)
		for _, l := range limits {
			assert.EqualValues(t, router.ScopeUser, l.Scope)
			assert.Equal(t, map[string]int64{"SEARCH": 1}, l.Buckets[0].Costs)
		}
	}
}

func tierOf(in router.IngressContext) string { return in.Identity.UserID }

func TestAnnounce_FollowsSetPolicy(t *testing.T) {
	limiter := memory.NewLimiter(named)
	announce := ratelimit.Announce(limiter, nil)
	require.NoError(t, limiter.SetPolicy(limit.PerSecond(3).Burst(7).Named("messages")))
	announced := announce(from("ann"))
	require.Len(t, announced, 1)
	assert.EqualValues(t, 7, announced[0].Capacity)
	assert.EqualValues(t, 3, announced[0].Refill)
	assert.Equal(t, time.Second, announced[0].Per)
}

func TestAnnounce_PanicsAsNewDoes(t *testing.T) {
	bucket := memory.NewLimiter(named)
	assert.Panics(t, func() { ratelimit.Announce(nil, nil) })
	assert.Panics(t, func() { ratelimit.Announce(bucket, &ratelimit.Options{Timeout: -1}) })
	assert.Panics(t, func() { ratelimit.AnnounceAll(nil, nil) })
	assert.Panics(t, func() { ratelimit.AnnounceTiers(nil, nil, nil) })
}

// TestAnnounce_RulesOfOneBucketAddUp charges one bucket by two rules, and another one by a third.
func TestAnnounce_RulesOfOneBucketAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket, day := memory.NewLimiter(named), memory.NewLimiter(limit.PerHour(9).Named("day"))
		three := func(router.IngressContext) int64 { return 3 }
		rules := []ratelimit.Rule{
			{Limiter: bucket, Key: ratelimit.KeyPerUser},
			{Limiter: bucket, Key: ratelimit.KeyPerUser, Cost: three},
			{Limiter: day, Key: ratelimit.KeyPerType},
		}
		r := router.New(&router.Options{AnnounceLimits: ratelimit.AnnounceAll(rules, nil)})
		r.UseIngress(ratelimit.NewAll(rules, nil))
		welcome := routertest.Dial(t, r).Greet()
		require.Len(t, welcome.Limits, 2)
		assert.EqualValues(t, 4, *welcome.Limits[0].Buckets[0].Costs["$ws:hello"])
		in := router.IngressContext{Type: "$ws:hello", ConnID: welcome.ConnID}
		d, err := limit.Consume(t.Context(), bucket, ratelimit.KeyPerUser(in), 0)
		require.NoError(t, err)
		assert.EqualValues(t, 20-4, d.Remaining)
	})
}

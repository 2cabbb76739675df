package ratelimit_test

import (
	"context"
	"math/big"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
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

// A pacer is a model of one bucket that knows only what the welcome says.
type pacer struct {
	bucket                     routertest.Bucket
	capacity, refill, refillMs int64
	tokens                     *big.Rat // at since
	since                      time.Time
}

// newPacer returns a model with as many tokens as the client is sure of. It starts when the client
// has received the welcome, which is after the server has charged the greeting.
func newPacer(l routertest.Limit, typ string) *pacer {
	p := &pacer{capacity: l.Capacity, refill: l.Refill, refillMs: l.RefillMs, tokens: new(big.Rat), since: time.Now()}
	for _, bucket := range l.Buckets {
		if _, ok := bucket.Costs[typ]; ok {
			p.bucket = bucket
		}
	}
	if l.Scope == "connection" { // it was full before the greeting
		p.tokens.SetInt64(p.capacity - *p.bucket.Costs["$ws:hello"])
	}
	return p
}

// wait waits until the bucket holds the cost of a message, and takes it. It waits for whole
// microseconds, because the server counts in them.
func (p *pacer) wait(typ string) {
	perMicro := big.NewRat(p.refill, p.refillMs*1000)
	p.elapse(perMicro)
	cost := big.NewRat(*p.bucket.Costs[typ], 1)
	if missing := new(big.Rat).Sub(cost, p.tokens); missing.Sign() > 0 {
		micros := missing.Quo(missing, perMicro)
		rounded := new(big.Int).Div(micros.Num(), micros.Denom())
		time.Sleep(time.Duration(rounded.Int64()+1) * time.Microsecond)
		p.elapse(perMicro)
	}
	p.tokens.Sub(p.tokens, cost)
}

// elapse adds the tokens that have returned.
func (p *pacer) elapse(perMicro *big.Rat) {
	micros := big.NewRat(time.Since(p.since).Microseconds(), 1)
	p.since = time.Now()
	p.tokens.Add(p.tokens, micros.Mul(micros, perMicro))
	if full := big.NewRat(p.capacity, 1); p.tokens.Cmp(full) > 0 {
		p.tokens.Set(full)
	}
}

// TestAnnounce_ClientPacesItselfExactly sends 1,000 messages as fast as the welcome allows. None is
// rejected, and the rate is at least 99 % of what the limit allows in that time.
func TestAnnounce_ClientPacesItselfExactly(t *testing.T) {
	for name, tt := range map[string]struct {
		policy limit.Policy
		key    func(router.IngressContext) limit.Key
	}{
		"connection":       {named, ratelimit.KeyPerConn},
		"user":             {named, ratelimit.KeyPerUser},
		"thirds":           {limit.Per(7, 3*time.Second).Burst(11).Named("messages"), ratelimit.KeyPerUser},
		"microseconds":     {limit.Per(13, 1234567*time.Microsecond).Burst(9).Named("messages"), ratelimit.KeyPerConn},
		"many at a time":   {limit.Per(5000, 77*time.Millisecond).Burst(6).Named("messages"), ratelimit.KeyPerConn},
		"one a minute":     {limit.PerMinute(1).Burst(5).Named("messages"), ratelimit.KeyPerConn},
		"bucket of a type": {named, perGroup},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { paceMessages(t, tt.policy, tt.key) })
		})
	}
}

// perGroup gives the messages that cost something a bucket, and the greeting another one.
func perGroup(in router.IngressContext) limit.Key {
	key := ratelimit.KeyPerUser(in)
	if in.Type == "SEARCH" || in.Type == "COMMENT" {
		key[3] = "costly"
	}
	return key
}

func paceMessages(t *testing.T, policy limit.Policy, key func(router.IngressContext) limit.Key) {
	const messages = 1000
	opts := &ratelimit.Options{Key: key, Cost: func(in router.IngressContext) int64 {
		if in.Type == "SEARCH" {
			return 5
		}
		return 1
	}}
	limiter := memory.NewLimiter(policy)
	rejected, admitted := 0, 0
	r := router.New(&router.Options{
		Authenticate:    func(*http.Request) (router.Identity, error) { return router.Identity{UserID: "ann"}, nil },
		AnnounceLimits:  ratelimit.Announce(limiter, opts),
		OnLimitExceeded: func(router.LimitExceeded) { rejected++ },
	})
	r.UseIngress(ratelimit.New(limiter, opts))
	router.On(r, func(*router.Context, Search) error { admitted++; return nil })
	router.On(r, func(*router.Context, Comment) error { admitted++; return nil })
	client := routertest.Dial(t, r)

	welcome := client.Greet()
	require.Len(t, welcome.Limits, 1)
	start := time.Now()
	bucket := newPacer(welcome.Limits[0], "SEARCH")
	spent := int64(0)
	for i := range messages {
		message := router.Message(Comment{})
		if i%3 != 0 {
			message = Search{}
		}
		bucket.wait(message.MessageType())
		client.Send(message)
		spent += *bucket.bucket.Costs[message.MessageType()]
	}
	synctest.Wait()
	assert.Zero(t, rejected)
	assert.Equal(t, messages, admitted)
	assert.Zero(t, client.Pending())

	refilled := float64(policy.Refill) * float64(time.Since(start)) / float64(policy.Per)
	allowed := float64(policy.Capacity) + refilled
	t.Logf("%.2f %% of what the limit allows", 100*float64(spent)/allowed)
	assert.GreaterOrEqual(t, float64(spent), 0.99*allowed)
	if welcome.Limits[0].Scope == "connection" { // the bucket is exhausted: one more is rejected
		client.Send(Search{})
		assert.Equal(t, errors.ResourceExhausted, routertest.ReceiveError(client).Code)
	}
}

// TestAnnounce_IngressDecidesAboutTheSameBucket compares every announced bucket and cost with what
// the limit takes.
func TestAnnounce_IngressDecidesAboutTheSameBucket(t *testing.T) {
	limiter := memory.NewLimiter(named)
	opts := &ratelimit.Options{Cost: func(in router.IngressContext) int64 { return int64(len(in.Type)) }}
	announce, admit := ratelimit.Announce(limiter, opts), ratelimit.New(limiter, opts)
	for _, typ := range []string{"", "A", "SAY", "__heartbeat"} {
		in := from("ann")
		in.Type = typ
		one := announce(in)[0]
		require.NoError(t, admit(context.Background(), in))
		d, err := limit.Consume(t.Context(), limiter, one.Bucket, 0)
		require.NoError(t, err)
		assert.Equal(t, 20-one.Cost, d.Remaining, typ)
	}
}

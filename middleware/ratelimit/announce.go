package ratelimit

import (
	"github.com/penstock-go/penstock/internal/enforce"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/access"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/router"
)

// Announce returns a function for Options.AnnounceLimits of a router, which describes a limit for
// clients that pace themselves. The arguments are those of [New], and Announce panics as New does.
// It calls no limiter.
//
//	limiter := memory.NewLimiter(limit.PerSecond(10).Burst(20).Named("messages"))
//	opts := &ratelimit.Options{Key: ratelimit.KeyPerUser}
//	r := router.New(&router.Options{AnnounceLimits: ratelimit.Announce(limiter, opts)})
//	r.UseIngress(ratelimit.New(limiter, opts))
//
// The name, the capacity and the refill are those that the limiter describes as a
// [adapter.Describer]; with [limit.AllOf] there are several. An unnamed policy has Options.Name.
// Limits without a name, limiters that do not describe themselves, and limits that are not token
// buckets are not announced, because a client cannot pace itself by them exactly. Nothing is
// announced in a dry run, or for a client that Options.Access names.
//
// Which connections share a bucket is what the first part of its key says: "user", "tenant", "conn"
// and "ip", as the key functions of this package write it. A key that begins with anything else has
// the scope of the server: a client then does not expect that a bucket is its own.
// Options.Cost and Options.Keep are called with several sizes. If the results differ, the cost is
// announced as unknown, and the share as the largest.
//
// To announce several limits, join the results of their functions.
func Announce(limiter limit.Limiter, opts *Options) func(router.IngressContext) []router.AnnouncedLimit {
	l := newRateLimit(limiter, opts)
	return func(in router.IngressContext) []router.AnnouncedLimit { return l.announce(l.own(), in) }
}

// AnnounceAll is [Announce] for the limits of [NewAll].
func AnnounceAll(rules []Rule, opts *Options) func(router.IngressContext) []router.AnnouncedLimit {
	l := newRules(rules, opts)
	return func(in router.IngressContext) []router.AnnouncedLimit { return l.announce(l.Rules, in) }
}

// AnnounceTiers is [Announce] for the limits of [Tiers]. It announces the limit of the tier that
// the connection has. A client that changes its tier can repeat the greeting. [router.Router.Describe]
// has no limits of tiers, because they differ between clients.
func AnnounceTiers(tier func(router.IngressContext) string, limiters map[string]limit.Limiter, opts *Options) func(router.IngressContext) []router.AnnouncedLimit {
	t := newTiers(tier, limiters, opts)
	return func(in router.IngressContext) []router.AnnouncedLimit {
		if in.ConnID == "" {
			return nil // Router.Describe asks for what all clients share
		}
		l := t.limits[t.of(in)]
		if l == nil {
			return nil // New rejects the message and reports it
		}
		return l.announce(l.own(), in)
	}
}

// own returns the limit as the only one of its rules.
func (l *rateLimit) own() []enforce.Rule[router.IngressContext] {
	return []enforce.Rule[router.IngressContext]{{Limiter: l.limiter, Key: l.Key, Cost: l.Cost}}
}

// announce describes what a message takes by each rule.
func (l *rateLimit) announce(rules []enforce.Rule[router.IngressContext], in router.IngressContext) (all []router.AnnouncedLimit) {
	if l.DryRun || l.AccessOf(&in) != access.Limited {
		return nil
	}
	for _, rule := range rules {
		describer, ok := rule.Limiter.(adapter.Describer)
		if !ok {
			continue
		}
		key := rule.Key(in)
		one := router.AnnouncedLimit{Scope: scopeOf(key), Bucket: key, Cost: fixed(rule.Cost, in)}
		if l.Keep != nil {
			_, one.Keep = extremes(l.Keep, in)
		}
		for _, d := range describer.Describe() {
			one.Name, one.Capacity, one.Refill, one.Per = d.Name, d.Limit, d.Refill, d.Per
			if one.Name == "" {
				one.Name = l.Name
			}
			if one.Name != "" && one.Refill > 0 {
				all = append(all, one)
			}
		}
	}
	return all
}

// fixed returns the cost of messages of every size up to in.Size, or -1 if it depends on the size.
func fixed(cost func(router.IngressContext) int64, in router.IngressContext) int64 {
	least, most := extremes(cost, in)
	if least != most {
		return -1
	}
	return most
}

// extremes returns the smallest and the largest result for in.Size, its half, and so on.
func extremes(f func(router.IngressContext) int64, in router.IngressContext) (least, most int64) {
	least = f(in)
	most = least
	for size := in.Size / 2; size > 0; size /= 2 {
		in.Size = size
		n := f(in)
		least, most = min(least, n), max(most, n)
	}
	return least, most
}

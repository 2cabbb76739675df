package ratelimit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
	"github.com/penstock-go/penstock/router"
)

// Tiers returns the ingress function that limits every message by the limiter of its tier.
// tier returns the name of that tier, such as "free" or "pro", for example from the message's
// identity. A tier without a limiter is a programming error and rejects the message with
// INTERNAL.
//
// The cost of an admitted message is also charged to the buckets of the other tiers, even if they
// hold less. However often a client changes its tier, it is admitted at most the largest capacity
// plus the highest rate times the time, in every interval; messages that are decided at the same
// moment in different tiers can exceed that by their cost. The same holds for sliding-window logs
// with the largest Max and the highest Max/Window. With quotas of the same period, a client is
// admitted at most the largest Max in each. A sliding-window counter forgets what exceeds twice its
// Max, so its tier may admit more afterwards. A dry run charges the other tiers for the messages
// that it would have admitted.
//
// Each tier needs buckets of its own. On Redis, limiters share buckets if their policies have
// the same name, or no name and the same numbers: give each tier's policy a name.
//
// An admitted message calls the limiters of all other tiers after its own. The Fallback of
// opts replaces the limiter of every tier. Tiers panics as [New] does, and if a limiter is
// passed twice or cannot be charged ([mode.Charging]), such as a cooldown.
func Tiers(tier func(router.IngressContext) string, limiters map[string]limit.Limiter, opts *Options) router.IngressFunc {
	return newTiers(tier, limiters, opts).admit
}

func newTiers(tier func(router.IngressContext) string, limiters map[string]limit.Limiter, opts *Options) *tiers {
	if tier == nil || len(limiters) == 0 {
		panic("ratelimit: Tiers needs a function and limiters")
	}
	t := &tiers{of: tier, limits: map[string]*rateLimit{}}
	seen := map[limit.Limiter]bool{}
	for name, limiter := range limiters {
		if limiter == nil {
			panic(fmt.Sprintf("ratelimit: tier %q needs a limiter", name))
		}
		if err := adapter.Check(limiter, limit.Take{Mode: mode.Charging}); err != nil {
			panic(fmt.Sprintf("ratelimit: the limiter of tier %q is a %T, which cannot be charged: %v", name, limiter, err))
		}
		if seen[limiter] {
			panic(fmt.Sprintf("ratelimit: the limiter of tier %q is also that of another tier; it would be charged twice", name))
		}
		seen[limiter] = true
		own := Options{}
		if opts != nil {
			own = *opts
		}
		own.Name = tierName(own.Name, name)
		t.limits[name] = newRateLimit(limiter, &own)
	}
	return t
}

func tierName(limitName, tier string) string {
	if limitName == "" {
		return tier
	}
	return limitName + "/" + tier
}

type tiers struct {
	of     func(router.IngressContext) string
	limits map[string]*rateLimit // by tier
}

func (t *tiers) admit(ctx context.Context, in router.IngressContext) error {
	name := t.of(in)
	own := t.limits[name]
	if own == nil {
		return fmt.Errorf("ratelimit: tier %q has no limiter; there are %s",
			name, strings.Join(slices.Sorted(maps.Keys(t.limits)), ", "))
	}
	if exempt, err := own.enforced.CheckAccess(own.AccessOf(&in)); exempt || err != nil {
		return err
	}
	cost := own.Cost(in)
	if admits, err := own.decide(ctx, &in); err != nil || !admits || cost == 0 {
		return err
	}
	key := own.Key(in)
	for other, l := range t.limits {
		if other == name {
			continue
		}
		if err := l.enforced.Charge(ctx, key, cost); err != nil && ctx.Err() == nil {
			in.Report(ctx, fmt.Errorf("ratelimit: charging tier %q: %w", other, err))
		}
	}
	return nil
}

package ratelimit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/router"
)

// Tiers returns the ingress function that limits every message by the limiter of its
// tier, such as "free" or "pro", which tier says from the message's identity, say. What a
// message costs is taken from the buckets of the other tiers too, as far as they hold it:
// changing tiers at run time grants nobody a fresh bucket. A tier without a limiter is a
// bug of the server's, and refuses the message with INTERNAL.
//
// Limiters that share buckets, as those on Redis do whose policies have one name or, without
// names, equal numbers, must not stand for several tiers: give each tier's policy a name.
//
// It asks one limiter more for each other tier, after the message has entered by its own. A
// Fallback in opts stands in for the limiter of every tier. It panics as [New] does, and if a
// limiter comes twice or is not [Adjustable]: a cooldown would punish users for messages that
// their own tier has admitted.
func Tiers(tier func(router.IngressContext) string, limiters map[string]Limiter, opts *Options) router.IngressFunc {
	if tier == nil || len(limiters) == 0 {
		panic("ratelimit: Tiers needs a function and limiters")
	}
	t := tiers{of: tier, limits: map[string]*limit{}}
	seen := map[Limiter]bool{}
	for name, limiter := range limiters {
		if _, ok := limiter.(Adjustable); !ok {
			panic(fmt.Sprintf("ratelimit: the limiter of tier %q is a %T; it must be Adjustable", name, limiter))
		}
		if seen[limiter] {
			panic(fmt.Sprintf("ratelimit: the limiter of tier %q is another tier's, too; it would be charged twice", name))
		}
		seen[limiter] = true
		own := Options{}
		if opts != nil {
			own = *opts
		}
		own.Name = tierName(own.Name, name)
		t.limits[name] = newLimit(limiter, &own)
	}
	return t.admit
}

func tierName(limit, tier string) string {
	if limit == "" {
		return tier
	}
	return limit + "/" + tier
}

type tiers struct {
	of     func(router.IngressContext) string
	limits map[string]*limit
}

func (t *tiers) admit(ctx context.Context, in router.IngressContext) error {
	name := t.of(in)
	own := t.limits[name]
	if own == nil {
		return fmt.Errorf("ratelimit: tier %q has no limiter; there are %s",
			name, strings.Join(slices.Sorted(maps.Keys(t.limits)), ", "))
	}
	cost := own.cost(in)
	if _, err := own.decide(ctx, in); err != nil || cost == 0 {
		return err
	}
	key := own.Key(in)
	for other, l := range t.limits {
		if other == name {
			continue
		}
		if err := l.charge(ctx, key, cost); err != nil && l.OnError != nil && ctx.Err() == nil {
			l.OnError(fmt.Errorf("ratelimit: charging tier %q: %w", other, err))
		}
	}
	return nil
}

// charge takes cost from key's bucket, or all that it holds if that is less.
func (l *limit) charge(ctx context.Context, key Key, cost int64) error {
	d, err := l.limiter.Consume(ctx, key, cost)
	if err == nil && !d.Allowed && d.Remaining > 0 {
		_, err = l.limiter.Consume(ctx, key, min(cost, d.Remaining))
	}
	return err
}

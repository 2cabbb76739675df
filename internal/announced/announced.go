// Package announced groups the limits of message types by the buckets that these share, as clients
// receive them.
package announced

import (
	"time"

	"github.com/penstock-go/penstock/internal/protocol"
)

// A Limit is what a message of one type takes from a bucket, without the tokens.
type Limit struct {
	Name             string
	Capacity, Refill int64
	Per              time.Duration
	Scope            string
	Bucket           [4]string // distinguishes the buckets of the limit
}

// Limits collects the limits of all types. The zero value has none.
type Limits struct {
	limits  []*protocol.Limit // in the order of Add
	byLimit map[Limit]*protocol.Limit
	buckets map[Limit]*protocol.Bucket
}

// All returns the limits, and an empty slice if there are none: the client learns that.
func (g *Limits) All() []*protocol.Limit {
	if g.limits == nil {
		return []*protocol.Limit{}
	}
	return g.limits
}

// Add adds a limit of a type. A limit without a name or a refill is ignored.
func (g *Limits) Add(typ string, l Limit, cost, keep int64) {
	if l.Name != "" && l.Refill > 0 && l.Per >= time.Microsecond {
		charge(g.bucket(l), typ, cost, keep)
	}
}

// bucket returns the bucket of a Limit.
func (g *Limits) bucket(l Limit) *protocol.Bucket {
	bucket := g.buckets[l]
	if bucket == nil {
		bucket = &protocol.Bucket{Costs: map[string]*int64{}}
		set(&g.buckets, l, bucket)
		limit := g.limit(l)
		limit.Buckets = append(limit.Buckets, bucket)
	}
	return bucket
}

// limit returns the limit of a Limit.
func (g *Limits) limit(l Limit) *protocol.Limit {
	l.Bucket = [4]string{}
	limit := g.byLimit[l]
	if limit == nil {
		limit = &protocol.Limit{Name: l.Name, Capacity: l.Capacity, Scope: l.Scope}
		limit.Refill, limit.RefillMs = perMillisecond(l.Refill, l.Per)
		set(&g.byLimit, l, limit)
		g.limits = append(g.limits, limit)
	}
	return limit
}

// charge adds what a message of a type takes and leaves. A limit may be listed twice for a type.
func charge(b *protocol.Bucket, typ string, cost, keep int64) {
	sum, listed := b.Costs[typ]
	switch {
	case cost < 0, listed && sum == nil:
		b.Costs[typ] = nil
	case listed:
		*sum += cost
	default:
		b.Costs[typ] = &cost
	}
	if keep > 0 {
		set(&b.Keep, typ, max(keep, b.Keep[typ]))
	}
}

// set sets an element of a map, which it creates if it is nil.
func set[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = value
}

// perMillisecond returns the same refill in lowest terms, with a time in whole milliseconds.
func perMillisecond(refill int64, per time.Duration) (tokens, ms int64) {
	micros := per.Microseconds()
	g := gcd(refill, micros)
	tokens, ms = refill/g, micros/g
	g = gcd(1000, ms)
	return tokens * (1000 / g), ms / g
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

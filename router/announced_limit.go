package router

import (
	"time"

	"github.com/penstock-go/penstock/internal/protocol"
)

// An AnnouncedLimit describes for a client what a message of one type takes from a token bucket.
// Options.AnnounceLimits returns it. Limits with an empty Name, or whose Refill or Per is not
// positive, are not announced.
type AnnouncedLimit struct {
	Name     string        // of the limit
	Capacity int64         // tokens in a full bucket
	Refill   int64         // tokens that return every Per, one by one
	Per      time.Duration // whole microseconds
	Scope    LimitScope    // which connections share the bucket

	// Bucket distinguishes the buckets of the limit: types with the same Bucket share one. It is not
	// sent to the client. A limit.Key of package limit can be assigned to it.
	Bucket [4]string

	Cost int64 // tokens that a message takes; negative if that depends on the message
	Keep int64 // tokens that a message must leave in the bucket to be admitted
}

// A LimitScope says which connections share a bucket. It is the narrowest one that is true: a
// bucket of a user for each type has the scope of the user.
type LimitScope string

// The scopes.
const (
	ScopeConnection LimitScope = "connection" // one connection: the bucket is full when it opens
	ScopeUser       LimitScope = "user"       // connections of the same user
	ScopeTenant     LimitScope = "tenant"     // connections of the same tenant
	ScopeIP         LimitScope = "ip"         // connections from the same address or network
	ScopeServer     LimitScope = "server"     // connections that the client cannot identify
)

// limitGroups collects the AnnouncedLimits of all types. The keys of its maps are AnnouncedLimits
// without the fields that the values of one key do not share.
type limitGroups struct {
	limits  []*protocol.Limit // in the order of add
	byLimit map[AnnouncedLimit]*protocol.Limit
	buckets map[AnnouncedLimit]*protocol.Bucket
}

func newLimitGroups() *limitGroups {
	return &limitGroups{
		limits:  []*protocol.Limit{}, // without limits, a client learns that there are none
		byLimit: map[AnnouncedLimit]*protocol.Limit{},
		buckets: map[AnnouncedLimit]*protocol.Bucket{},
	}
}

// add adds the limits of a type.
func (g *limitGroups) add(typ string, announced []AnnouncedLimit) {
	for _, l := range announced {
		if l.Name != "" && l.Refill > 0 && l.Per >= time.Microsecond {
			charge(g.bucket(l), typ, l.Cost, l.Keep)
		}
	}
}

// bucket returns the bucket of an AnnouncedLimit.
func (g *limitGroups) bucket(l AnnouncedLimit) *protocol.Bucket {
	l.Cost, l.Keep = 0, 0
	bucket := g.buckets[l]
	if bucket == nil {
		bucket = &protocol.Bucket{Costs: map[string]*int64{}}
		g.buckets[l] = bucket
		limit := g.limit(l)
		limit.Buckets = append(limit.Buckets, bucket)
	}
	return bucket
}

// limit returns the limit of an AnnouncedLimit.
func (g *limitGroups) limit(l AnnouncedLimit) *protocol.Limit {
	l.Bucket = [4]string{}
	limit := g.byLimit[l]
	if limit == nil {
		limit = &protocol.Limit{Name: l.Name, Capacity: l.Capacity, Scope: string(l.Scope)}
		limit.Refill, limit.RefillMs = perMillisecond(l.Refill, l.Per)
		g.byLimit[l] = limit
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

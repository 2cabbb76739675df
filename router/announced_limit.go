package router

import (
	"time"

	"github.com/penstock-go/penstock/internal/announced"
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

// addLimits adds the limits of a type.
func addLimits(to *announced.Limits, typ string, limits []AnnouncedLimit) {
	for _, l := range limits {
		to.Add(typ, announced.Limit{Name: l.Name, Capacity: l.Capacity, Refill: l.Refill, Per: l.Per, Scope: string(l.Scope), Bucket: l.Bucket}, l.Cost, l.Keep)
	}
}

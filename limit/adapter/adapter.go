// Package adapter has what implementations of limiters need beside the contract of package limit: the
// exact arithmetic of token buckets, bounds that all adapters share, and interfaces that functions of
// package limit detect. Applications rarely need it. Package limittest tests adapters.
package adapter

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/limit"
)

// Bounds of a [limit.Take].
const (
	MaxReserve = time.Hour // the longest MaxWait
	MaxLeases  = 1000      // with a Lease, of a key at once; as many settled ones are known to be settled

	// ExactUndo is for how long undoing a Take without a Lease is exact, and MaxMarks for how many Takes
	// of a key at once. See mode.Undoing.
	ExactUndo = time.Minute
	MaxMarks  = 16
)

// MaxLog bounds what a sliding-window log or a cooldown stores per key: the times of its last Max
// calls.
const MaxLog = 1000

// MaxDeficit is the number of units that a bucket lacks at most, in microseconds of the refill of one
// unit each: 142 years, unless more than one unit returns in a microsecond.
const MaxDeficit = 1 << 52

const maxBlock = 365 * 24 * time.Hour

// CheckBlock returns an error if the duration of a Block is invalid.
func CheckBlock(d time.Duration) error {
	if d < time.Microsecond || d > maxBlock {
		return fmt.Errorf("a block of %v; it must be from 1µs to %v", d, maxBlock)
	}
	return nil
}

// A Checker is a limiter that cannot do every [limit.Take].
type Checker interface {
	limit.Limiter

	// Check returns an error if Take returns one for every key because of what take wants.
	Check(take limit.Take) error
}

// Check returns an error if a limiter cannot do a [limit.Take], such as a cooldown with MaxWait.
// Callers check what they want when they are built.
func Check(l limit.Limiter, take limit.Take) error {
	if c, ok := l.(Checker); ok {
		return c.Check(take)
	}
	return take.Validate()
}

// A Describer is a limiter that describes its limits, such as for the HTTP header RateLimit-Policy. All
// limiters of packages limit, memory, redis, postgres and durableobject are describers.
type Describer interface {
	limit.Limiter

	// Describe returns one Description, or several for [limit.AllOf].
	Describe() []limit.Description
}

// A Resetter is a limiter that can forget what a key has taken. [limit.AllOf] is one, even of limiters
// that are not all blockers.
type Resetter interface {
	limit.Limiter

	// Reset fills key's bucket.
	Reset(ctx context.Context, key limit.Key) error
}

// A Rememberer is a limiter on a remote store that remembers denials for a short time, so that a flood
// of denied calls does not reach the store.
type Rememberer interface {
	limit.Limiter

	// RemembersDenial returns the denial of a Take if it is known without asking the store.
	RemembersDenial(key limit.Key, take limit.Take) (limit.Decision, bool)
}

// A Batcher is a limiter that can decide several requests in one atomic step. [limit.AllOf] and
// [limit.ConsumeAll] call it.
type Batcher interface {
	limit.Limiter

	// BatchesWith reports whether TakeBatch of this limiter accepts requests to other.
	BatchesWith(other limit.Limiter) bool

	// TakeBatch takes the cost of every request, as Take does with MaxWait, Receipt and Lease of take,
	// or of none. It returns for each request the Decision that its limiter would make alone; if it
	// denies, an allowed Decision may have no number but Limit. No two requests have the same limiter
	// and key, and none has a denial that its limiter remembers. The take has no cost of its own; its
	// mode is Whole. TakeBatch returns nil without an error if it cannot decide about the requests in
	// one step: the caller then calls one limiter after the other.
	TakeBatch(ctx context.Context, requests []limit.Request, take limit.Take) ([]limit.Decision, error)
}

// InProcess marks a limiter that decides in this process, immediately and without failing. Callers need
// neither a deadline nor a breaker for it.
type InProcess interface {
	limit.Limiter

	// InProcess does nothing.
	InProcess()
}

// Stats counts the keys of a limiter that keeps them in this process. The limiters of package memory
// return it from a method Stats.
type Stats struct {
	Keys       int64 // stored at present
	Evicted    int64 // removed since the start, because their buckets were full again
	Overflowed int64 // calls since the start for new keys beyond the maximum, which shared a bucket
}

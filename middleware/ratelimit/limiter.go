package ratelimit

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// Never is the RetryAfter of a cost that no wait can make affordable. It is the
// largest duration, so code that forgets to ask for it waits for ever, which is right.
const Never time.Duration = errors.Never

// A Limiter decides who may spend how much: most keep one token bucket per key, all of
// one [Policy], and for those package ratelimittest checks every rule below. Others, such
// as cooldowns and [All], say where they differ.
type Limiter interface {
	// Consume takes cost tokens from key's bucket, or none of them.
	//
	//   - A key that was not seen before has a full bucket.
	//   - Tokens come back one by one, every Per/Refill, up to the capacity;
	//     no fraction of one is ever lost or minted.
	//   - Concurrent calls for one key never take more tokens than it holds.
	//   - A denied call takes nothing and delays nobody.
	//   - Keys do not influence each other, and neither do limiters whose
	//     policies have different names.
	//   - A cost of 0 is allowed and takes nothing; the Decision tells the state
	//     of the bucket. A negative cost is an error.
	//   - A cost above the capacity is denied with RetryAfter [Never].
	//   - Whoever waits exactly RetryAfter is admitted, if nobody else took
	//     tokens meanwhile; a millisecond less is never enough.
	//   - A clock that steps back mints no token and locks nobody out for longer
	//     than a full refill takes.
	//
	// The clock is the limiter's own. Consume returns soon after ctx is done. An
	// error means that the limiter could not decide, never that it denied; the
	// Decision is then the zero one. Consume is safe for concurrent use.
	Consume(ctx context.Context, key Key, cost int64) (Decision, error)
}

// An Adjustable limiter's buckets can be filled by hand. Limiters in memory and on
// Redis are adjustable. To look at a bucket, consume 0.
type Adjustable interface {
	Limiter

	// Refund gives tokens back to key's bucket, as when a handler finds that the work
	// was not done.
	//
	//   - A bucket never holds more than its capacity.
	//   - A refund of 0 does nothing. A negative one is an error.
	Refund(ctx context.Context, key Key, tokens int64) error

	// Reset fills key's bucket.
	Reset(ctx context.Context, key Key) error
}

// A Blocker lets an administrator ban a key for a while. Limiters in memory and on Redis
// are blockers. To block a key of limiters that are joined with [All], block it with one
// of them.
type Blocker interface {
	Adjustable

	// Block refuses key for d.
	//
	//   - Until d has passed, every cost is denied, 0 too, with the time that is left
	//     as RetryAfter and [Blocked] as Reason.
	//   - Refunds do nothing meanwhile. Another Block replaces this one, and Reset ends it.
	//   - Afterwards the bucket is full.
	//   - d must be from a microsecond to 365 days.
	Block(ctx context.Context, key Key, d time.Duration) error
}

// A Reserver lets callers wait for tokens in the order in which they came. Limiters in
// memory and on Redis are reservers.
type Reserver interface {
	Limiter

	// Reserve takes cost tokens from key's bucket, if it holds them or will within
	// maxWait, or none of them.
	//
	//   - If the Decision allows with a RetryAfter, the tokens are the caller's after that
	//     wait. They are taken from now on: whoever comes later stands behind.
	//   - If it denies, RetryAfter is the time until the same call can be allowed.
	//   - A maxWait of 0 makes it Consume; it must be at most an hour.
	//
	// Who does not want to wait any more gives the tokens back with Refund, which helps
	// who comes later, but nobody who is waiting.
	Reserve(ctx context.Context, key Key, cost int64, maxWait time.Duration) (Decision, error)
}

// Stats are what a limiter that keeps its keys in this process has of them. Those in
// package memory have a method Stats that returns them.
type Stats struct {
	Keys    int64 // that are kept
	Evicted int64 // that were dropped so far, because nothing had to be known of them any more
	Crowded int64 // messages of new keys so far that found no room, and shared what others have
}

// A Decision is the outcome of one Consume. The zero Decision denies.
type Decision struct {
	Allowed    bool
	Limit      int64         // the capacity of the bucket that decided
	Remaining  int64         // whole tokens left in it
	RetryAfter time.Duration // until the same cost can be allowed: 0 if Allowed, but by Reserve; [Never] if it is above the capacity
	ResetAfter time.Duration // until the bucket is full
	Reason     Reason        // of a denial, where there are several
}

// A Reason tells denials of one limiter apart.
type Reason uint8

// The reasons there are. A token bucket has the first and the last.
const (
	NoTokens      Reason = iota // the bucket does not hold the cost
	BurstExceeded               // a window was exceeded: a penalty starts now
	InCooldown                  // a penalty lasts
	Blocked                     // an administrator has blocked the key
)

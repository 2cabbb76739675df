package limit

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// Never is the RetryAfter of a cost that is never allowed. It is the largest
// duration: code that does not check for it waits forever.
const Never time.Duration = errors.Never

// A Limiter decides whether a key may spend tokens. Most limiters keep one token bucket per key, all
// with the same [Policy]; package limittest tests those against every rule below. Other
// limiters, such as cooldowns and [AllOf], document where they differ.
type Limiter interface {
	// Consume takes cost tokens from key's bucket, or none of them.
	//
	//   - The bucket of a key that was not used before is full.
	//   - Tokens return one by one, every Per/Refill, up to the capacity. No fraction of a
	//     token is ever lost or created.
	//   - Concurrent calls for one key never take more tokens than its bucket holds.
	//   - A denied call takes nothing and delays no other call.
	//   - Keys do not influence each other. Limiters whose policies have different names do
	//     not influence each other either.
	//   - A cost of 0 is allowed and takes nothing; the Decision describes the bucket. A
	//     negative cost is an error.
	//   - A cost above the capacity is denied with RetryAfter [Never].
	//   - The same call is allowed after exactly RetryAfter, if no other call took tokens
	//     meanwhile. A millisecond earlier it is never allowed.
	//   - A clock that goes backwards creates no tokens and denies no key for longer than a
	//     bucket takes to fill.
	//
	// The limiter has its own clock. Consume returns soon after ctx is done. An error means
	// that the limiter could not decide, never that it denied; the Decision is then the zero
	// one. Consume is safe for concurrent use.
	Consume(ctx context.Context, key Key, cost int64) (Decision, error)
}

// A Refunder is a limiter that can return tokens to its buckets. The limiters of packages
// memory and redis are refunders. To inspect a bucket, consume 0.
type Refunder interface {
	Limiter

	// Refund returns tokens to key's bucket, such as after a handler that did not do the
	// work that was charged.
	//
	//   - A bucket never holds more than its capacity.
	//   - A refund of 0 does nothing. A negative refund is an error.
	Refund(ctx context.Context, key Key, tokens int64) error

	// Reset fills key's bucket.
	Reset(ctx context.Context, key Key) error
}

// A Blocker is a limiter that can ban a key for some time. The limiters of packages memory
// and redis are blockers. To block a key of limiters that [AllOf] combines, block it with one
// of them.
type Blocker interface {
	Refunder

	// Block denies key for d.
	//
	//   - Until d has passed, every cost is denied, including 0, with the remaining time as
	//     RetryAfter and [Blocked] as Reason.
	//   - Refunds do nothing during a block. Another Block replaces it, and Reset ends it.
	//   - After the block, the bucket is full.
	//   - d must be from 1 microsecond to 365 days.
	Block(ctx context.Context, key Key, d time.Duration) error
}

// A Reserver is a limiter that can take tokens before its bucket holds them, in the order of
// the calls. The limiters of packages memory and redis are reservers.
type Reserver interface {
	Limiter

	// Reserve takes cost tokens from key's bucket if the bucket holds them, or will hold
	// them within maxWait, or none of them.
	//
	//   - If the Decision is allowed with a RetryAfter, the caller may proceed after that
	//     time. The tokens are taken immediately: later calls queue behind.
	//   - If it is denied, RetryAfter is the time until the same call can be allowed.
	//   - With a maxWait of 0, Reserve is Consume. maxWait must be at most an hour.
	//
	// A caller that gives up waiting returns the tokens with Refund. That helps later calls,
	// and none that already wait.
	Reserve(ctx context.Context, key Key, cost int64, maxWait time.Duration) (Decision, error)
}

// A BatchLimiter is a limiter that can decide together with other limiters in one call.
type BatchLimiter interface {
	Limiter

	// Batch returns a limiter that decides as [AllOf] does, or false if that is not possible
	// with these limiters.
	Batch(others []Limiter) (Limiter, bool)
}

// InProcess marks a limiter that decides in this process, immediately and without failing.
// Callers need neither a deadline nor a breaker for it.
type InProcess interface {
	Limiter

	// InProcess does nothing.
	InProcess()
}

// Stats counts the keys of a limiter that keeps them in this process. The limiters of
// package memory return it from a method Stats.
type Stats struct {
	Keys       int64 // stored at present
	Evicted    int64 // removed since the start, because their buckets were full again
	Overflowed int64 // calls since the start for new keys beyond the maximum, which shared a bucket
}

// A Decision is the outcome of one call. The zero Decision denies.
type Decision struct {
	Allowed    bool
	Limit      int64         // capacity of the bucket that decided
	Remaining  int64         // whole tokens left in it
	RetryAfter time.Duration // until the same cost can be allowed: 0 if Allowed, except by Reserve; [Never] if the cost is above the capacity
	ResetAfter time.Duration // until the bucket is full
	Reason     Reason        // of a denial
}

// A Reason says why a limiter denied a call.
type Reason uint8

// The reasons of denials. Token buckets use NoTokens and Blocked, cooldowns use NoTokens,
// BurstExceeded and InCooldown.
const (
	NoTokens      Reason = iota // the bucket does not hold the cost
	BurstExceeded               // the call exceeded a window, and starts a penalty
	InCooldown                  // a penalty is in effect
	Blocked                     // an administrator has blocked the key
)

// A FailurePolicy says what happens to a request if its limiter cannot decide.
type FailurePolicy uint8

// The failure policies. FailClosed is the default.
const (
	FailClosed FailurePolicy = iota // the request is rejected as unavailable
	FailOpen                        // the request is admitted without a limit
)

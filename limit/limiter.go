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

// A Refunder is a limiter that can return tokens to its buckets. The limiters of
// packages memory, redis and durableobject are refunders. To inspect a bucket, consume 0.
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

// A Blocker is a limiter that can ban a key for some time. The limiters of packages
// memory, redis and durableobject are blockers.
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
// the calls. The limiters of packages memory, redis and durableobject are reservers.
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

// A Keeper is a limiter that can leave a share of its buckets to more important calls. The
// token buckets of packages memory, redis and durableobject are keepers.
type Keeper interface {
	Limiter

	// ConsumeKeeping is Consume for a call that must leave at least keep tokens in the
	// bucket.
	//
	//   - The call is denied unless the bucket holds cost and keep. RetryAfter is the time
	//     until it does, or [Never] if their sum is above the capacity.
	//   - Only cost is taken. With a keep of 0, ConsumeKeeping is Consume. A negative keep is
	//     an error.
	ConsumeKeeping(ctx context.Context, key Key, cost, keep int64) (Decision, error)
}

// A PartialLimiter is a limiter that can grant a part of a cost. The token buckets of packages
// memory, redis and durableobject are partial limiters.
type PartialLimiter interface {
	Limiter

	// ConsumeUpTo takes as many tokens as key's bucket holds, but at most most of them, and
	// returns how many.
	//
	//   - The Decision is allowed if at least one token was taken, and otherwise has the time
	//     until one can be taken as RetryAfter.
	//   - With a most of 0, ConsumeUpTo is Consume of 0. A negative most is an error.
	ConsumeUpTo(ctx context.Context, key Key, most int64) (granted int64, d Decision, err error)
}

// A Charger is a limiter that can be charged for a call that another limiter has admitted. The
// token buckets of packages memory, redis and durableobject are chargers.
type Charger interface {
	Limiter

	// Charge takes cost tokens from key's bucket, also if the bucket holds less: the deficit
	// is then at most cost. A bucket with a larger deficit stays as it is.
	//
	//   - Later calls are denied until the deficit has returned.
	//   - A charge of 0, or of a blocked key, does nothing. A negative charge, and one above
	//     the capacity, are errors.
	Charge(ctx context.Context, key Key, cost int64) error
}

// A PolicySetter is a limiter whose policy can change while it is in use. The token buckets of
// packages memory, redis and durableobject are policy setters.
type PolicySetter interface {
	Limiter

	// SetPolicy replaces the numbers of the limiter's policy. The name must be the same.
	//
	//   - A change creates no tokens: a bucket lacks as many tokens as before. If it lacked
	//     more than the new capacity, calls are denied until enough tokens have returned.
	//   - However often the policy changes, and on however many processes with different
	//     policies at the same time, the tokens granted to a key in any interval are at most
	//     the largest capacity plus what the largest refill returns in that interval.
	//   - An error means that the policy is not valid or has another name; the limiter then
	//     keeps its policy.
	//
	// SetPolicy is safe for concurrent use. It affects this process only.
	SetPolicy(policy Policy) error
}

// A Description describes a limit for its clients: at most Limit at once, all of which returns
// within Window.
type Description struct {
	Name   string // that of the policy, which may be empty
	Limit  int64
	Window time.Duration // rounded up to a microsecond

	// Refill tokens of a token bucket return every Per, one by one, exactly. They are those of
	// the policy in lowest terms, with Per in whole microseconds: 1 every 10 ms for 100 per
	// second. Refill is 0 for limits that are not token buckets.
	Refill int64
	Per    time.Duration
}

// A Describer is a limiter that describes its limits, such as for the HTTP header
// RateLimit-Policy. All limiters of packages limit, memory, redis and durableobject are
// describers.
type Describer interface {
	Limiter

	// Describe returns one Description, or several for [AllOf].
	Describe() []Description
}

// A BatchLimiter is a limiter that can decide several requests in one atomic step. It is for
// adapters; [AllOf] and [ConsumeAll] call it.
type BatchLimiter interface {
	Limiter

	// BatchesWith reports whether ConsumeBatch of this limiter accepts requests to other.
	BatchesWith(other Limiter) bool

	// ConsumeBatch takes the cost of every request, as Reserve does with maxWait, or of none.
	// It returns for each request the Decision that its limiter would make alone; if it denies,
	// an allowed Decision may have no number but Limit. No two requests have the same limiter
	// and key. With a maxWait of 0, nothing is reserved.
	ConsumeBatch(ctx context.Context, requests []Request, maxWait time.Duration) ([]Decision, error)
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
	Policy     string        // name of the policy that decided; only [AllOf] and [ConsumeAll] set it
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

// String returns a word for clients and metrics: "burst", "cooldown" or "blocked", and "" for
// NoTokens, which needs no explanation.
func (r Reason) String() string {
	switch r {
	case NoTokens:
		return ""
	case BurstExceeded:
		return "burst"
	case InCooldown:
		return "cooldown"
	case Blocked:
		return "blocked"
	default:
		return "unknown"
	}
}

// A FailurePolicy says what happens to a request if its limiter cannot decide.
type FailurePolicy uint8

// The failure policies. FailClosed is the default.
const (
	FailClosed FailurePolicy = iota // the request is rejected as unavailable
	FailOpen                        // the request is admitted without a limit
)

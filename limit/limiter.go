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
// with the same [Policy]; package limittest tests those against every rule below and of [Take]. Other
// limiters, such as cooldowns and [AllOf], document where they differ.
//
// Applications call [Consume] and the other functions of this package, which are the usual ways to
// take tokens.
type Limiter interface {
	// Take takes tokens from key's bucket, as take says.
	//
	//   - The bucket of a key that was not used before is full.
	//   - Tokens return one by one, every Per/Refill, up to the capacity. No fraction of a
	//     token is ever lost or created.
	//   - Concurrent calls for one key never take more tokens than its bucket holds.
	//   - A denied call takes nothing and delays no other call.
	//   - Keys do not influence each other. Limiters whose policies have different names do
	//     not influence each other either.
	//   - A cost of 0 is allowed and takes nothing; the Decision describes the bucket.
	//   - A cost above the capacity is denied with RetryAfter [Never].
	//   - The same call is allowed after exactly RetryAfter, if no other call took tokens
	//     meanwhile. A millisecond earlier it is never allowed.
	//   - A clock that goes backwards creates no tokens and denies no key for longer than a
	//     bucket takes to fill.
	//
	// The limiter has its own clock. Take returns soon after ctx is done. An error means that the
	// limiter could not decide, or that the Take is invalid or not one that the limiter can do,
	// never that it denied; the Decision is then the zero one. Take is safe for concurrent use.
	Take(ctx context.Context, key Key, take Take) (Decision, error)
}

// A Blocker is a limiter that can ban a key for some time. The limiters of packages
// memory, redis, postgres and durableobject are blockers.
type Blocker interface {
	Limiter

	// Reset fills key's bucket, and ends a block.
	Reset(ctx context.Context, key Key) error

	// Block denies key for d.
	//
	//   - Until d has passed, every cost is denied, including 0, with the remaining time as
	//     RetryAfter and [Blocked] as Reason.
	//   - Refunds do nothing during a block. Another Block replaces it, and Reset ends it.
	//   - After the block, the bucket is full.
	//   - d must be from 1 microsecond to 365 days.
	Block(ctx context.Context, key Key, d time.Duration) error
}

// A PolicySetter is a limiter whose policy, of type P, can change while it is in use. The token
// buckets of packages memory, redis, postgres and durableobject are policy setters of a [Policy],
// the sliding windows of memory, redis and postgres of a [WindowPolicy], and their quotas of a
// [QuotaPolicy].
type PolicySetter[P any] interface {
	Limiter

	// SetPolicy replaces the numbers of the limiter's policy. The name must be the same.
	//
	//   - A change creates no tokens: a bucket is missing the same number of tokens after it as
	//     before. If it was missing more than the new capacity, calls are denied until enough
	//     tokens have returned.
	//     Sliding windows and quotas compare the tokens that count with the new Max.
	//   - However often the policy changes, and on however many processes with different
	//     policies at the same time, the tokens granted to a key in any interval are at most
	//     the largest capacity plus what the largest refill returns in that interval. For a
	//     sliding window, these are the largest Max and the largest Max/Window; a quota
	//     grants at most the largest Max, and as many again at each start of a period of one
	//     of the policies.
	//   - A [Receipt] from before the change returns nothing. The numbers that the limiter has are no
	//     change, except for a quota with Start.
	//   - An error means that the policy is not valid or has another name; the limiter then
	//     keeps its policy.
	//
	// SetPolicy is safe for concurrent use. It affects this process only.
	SetPolicy(policy P) error
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

// A Decision is the outcome of one call. The zero Decision denies.
type Decision struct {
	Allowed    bool
	Reason     Reason        // of a denial
	Limit      int64         // capacity of the bucket that decided
	Remaining  int64         // whole tokens left in it
	RetryAfter time.Duration // until the same cost can be allowed: 0 if Allowed, except with MaxWait; [Never] if the cost is above the capacity
	ResetAfter time.Duration // until the bucket is full
	Policy     string        // name of the policy that decided; only [AllOf] and [ConsumeAll] set it
	Granted    int64         // tokens that were taken; only of a Take with Partial
	Receipt    Receipt       // of what was taken; only of a Take with Receipt
}

// A Receipt says what a [Take] has taken, so that [Receipt.Undo] returns that and no other tokens. The zero
// Receipt is one of nothing. Only the limiter that issued a Receipt understands its fields, which are
// exported for adapters.
type Receipt struct {
	Tokens  int64
	Stamp   int64 // the time or the period to which the tokens belong, on the limiter's clock
	Version int64 // of the limiter's policy
	Lease   int64 // identifies the Take among those of its key that have a Lease; 0 without one

	// Parts is the receipt of the first limiter, if [AllOf] or [Take.All] took from several, and Next that of
	// the limiter after this one.
	Parts, Next *Receipt
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

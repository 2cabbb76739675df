package ratelimit

import (
	"net/netip"
	"strconv"
	"time"

	"github.com/penstock-go/penstock/internal/enforce"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/access"
	"github.com/penstock-go/penstock/limit/observe"
	"github.com/penstock-go/penstock/router"
)

// Options configure a limit. The zero value is a working configuration.
type Options struct {
	// Name identifies the limit in Observe and, if its policy has no name, for clients: in the
	// greeting and as details.policy of a rejection.
	Name string

	// Key returns the key of the bucket that a message is charged to. If nil, it is
	// [KeyPerUserOrIPPerType]. If the first part of the key is "user", "tenant", "conn" or "ip", the
	// next ones must identify that: it is also the scope that [Announce] sends to clients.
	Key func(router.IngressContext) limit.Key

	// Cost returns the cost of a message in tokens. If nil, every message costs 1, and a resumed
	// session 1 for each of its topics ([router.Work]). A message that costs 0 is not limited. A
	// negative cost is a programming error: the message is rejected with INVALID_ARGUMENT, and the
	// router's OnError receives the error.
	Cost func(router.IngressContext) int64

	// ChargeOnly reports whether a message is charged but never rejected, such as one that leaves
	// a topic or acknowledges, even if the limiter cannot decide. It takes what its bucket holds of the
	// cost; any shortfall is forgiven. A limiter that cannot take a part ([mode.Partial]), such as
	// [limit.AllOf], is charged nothing for a message that it denies. If nil, there are no such messages.
	ChargeOnly func(router.IngressContext) bool

	// Keep returns how many tokens a message must leave in its bucket, so that more important
	// messages find them: a message is admitted if the bucket holds its cost and these tokens, and
	// takes its cost. It returns 0 for the most important messages. If the sum is above the
	// capacity, the message is never admitted. A negative number is a programming error, as for
	// Cost. The limiter and the Fallback must be able to keep tokens, as token buckets are. Keep does
	// not apply to ChargeOnly messages, and cannot be combined with MaxWait. If nil, it is 0.
	Keep func(router.IngressContext) int64

	// Access names clients that are not limited, and clients whose messages are rejected with
	// PERMISSION_DENIED, whatever they cost. Neither are charged. A dry run rejects no message of
	// them either. If nil, there are none.
	Access *access.List

	// AccessKey returns the key of a message that Access looks up. If nil, it is [KeyPerUser].
	AccessKey func(router.IngressContext) limit.Key

	// MaxWait lets a message wait for tokens instead of being rejected, for at most this time and
	// in the order of arrival. Later messages of its connection wait behind it. A message whose
	// connection ends while it waits is charged. The limiter and the Fallback must be able to wait,
	// as all but cooldowns are. If 0, no message waits; it must be at most an hour. A call whose
	// deadline passes while it waits is answered with that error and is not handled, but is
	// charged: MaxWait should be much shorter than the router's Timeouts.Call.
	MaxWait time.Duration

	// Refund returns the tokens of a message that is then rejected by a concurrency limit: [Concurrency],
	// or Limits.Concurrency of the router. If false, such a message is charged, as one that its handler
	// rejects is. A message that the limiter has not charged, because it could not decide for example,
	// returns nothing. Only the tokens of the message return, and none that have returned with time
	// meanwhile, or with the next period of a quota; see [mode.Undoing]. With [Tiers], those of the other
	// tiers do not return.
	Refund bool

	// Jitter adds a random time below Jitter to the RetryAfter of every rejection, so that
	// clients that were rejected at the same moment do not return at the same moment. It never
	// shortens it, and does not apply to [limit.Never]. If 0, RetryAfter is exact.
	Jitter time.Duration

	// DryRun makes the limit decide, charge and report, but reject no message. What it would reject goes to the
	// router's OnLimitExceeded, with LimitExceeded.DryRun. Use it to test a policy before enforcing it.
	DryRun bool

	// FailOpen admits a message if the limiter cannot decide, and reports why to the router's OnError. If false,
	// the message is rejected with UNAVAILABLE.
	FailOpen bool

	// Fallback decides if the limiter cannot, which the router's OnError learns. FailOpen applies if the Fallback cannot
	// decide either. If nil, FailOpen applies immediately.
	Fallback limit.Limiter

	// Observe is called with the outcome of every message that costs something, and of every
	// message of a client that Access names. It may be nil. Many goroutines call it concurrently;
	// it must not block or panic. Package middleware/metrics provides one.
	Observe func(observe.Observation)

	// Timeout bounds a call of the limiter. If 0, it is 50 ms. It does not apply to limiters
	// that implement [adapter.InProcess]. After five failures in a row, calls are paused and fail
	// immediately, except one every 250 to 375 ms.
	Timeout time.Duration
}

// charges returns the options as package enforce knows them.
func (o *Options) charges() enforce.Charges[router.IngressContext] {
	return enforce.Charges[router.IngressContext]{
		Options: enforce.Options{
			Package: "ratelimit", Name: o.Name, MaxWait: o.MaxWait, Jitter: o.Jitter, DryRun: o.DryRun,
			FailOpen: o.FailOpen, Fallback: o.Fallback, Observe: o.Observe, Timeout: o.Timeout, Refunds: o.Refund,
		},
		Key: o.Key, Cost: o.Cost, ChargeOnly: o.ChargeOnly, Keep: o.Keep, Access: o.Access, AccessKey: o.AccessKey,
		DefaultKey: KeyPerUserOrIPPerType, DefaultAccessKey: KeyPerUser, DefaultCost: defaultCost,
		IP:   func(in router.IngressContext) netip.Addr { return in.IP },
		Text: func(in router.IngressContext) string { return strconv.Quote(in.Type) },
	}
}

// defaultCost returns 1, or the number of topics that a message of the protocol subscribes.
func defaultCost(in router.IngressContext) int64 { return int64(max(1, in.Work.Topics)) }

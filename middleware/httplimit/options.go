package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/penstock-go/penstock/clientip"
	"github.com/penstock-go/penstock/internal/enforce"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/access"
	"github.com/penstock-go/penstock/limit/observe"
)

// Options configure a limit. The zero value is a working configuration.
type Options struct {
	// Name identifies the limit in Observe and, if its policy has no name, in the response. If "",
	// it is "http".
	Name string

	// TrustedProxies are the reverse proxies that report the address of the client. If a router is
	// served too, give both the same. Without any, the address is that of the socket.
	TrustedProxies clientip.TrustedProxies

	// Key returns the key of the bucket that a request is charged to. The address is that of the
	// client, and invalid if it is unknown. If nil, it is [KeyPerIP].
	Key func(*http.Request, netip.Addr) limit.Key

	// Cost returns the cost of a request in tokens. If nil, every request costs 1. A request that
	// costs 0 is not limited. A negative cost is a programming error: the request is rejected with
	// 503, and OnError receives the error.
	Cost func(*http.Request) int64

	// ChargeOnly reports whether a request is charged but never rejected, even if the limiter cannot
	// decide. It takes what its bucket holds of the cost; any shortfall is forgiven. A limiter that
	// cannot take a part ([mode.Partial]), such as [limit.AllOf], is charged nothing for a request that
	// it denies. If nil, there are no such requests.
	ChargeOnly func(*http.Request) bool

	// Keep returns how many tokens a request must leave in its bucket, so that more important
	// requests find them: a request is admitted if the bucket holds its cost and these tokens, and
	// takes its cost. It returns 0 for the most important requests. If the sum is above the
	// capacity, the request is never admitted. A negative number is a programming error, as for
	// Cost. The limiter and the Fallback must be able to keep tokens, as token buckets are. Keep does
	// not apply to ChargeOnly requests, and cannot be combined with MaxWait. If nil, it is 0.
	Keep func(*http.Request) int64

	// Access names clients that are not limited, and clients whose requests are rejected with 403,
	// whatever they cost. Neither are charged. A dry run rejects no request of them either. If nil,
	// there are none. The list may also be that of a router's limits.
	Access *access.List

	// AccessKey returns the key of a request that Access looks up. If nil, it is Key.
	AccessKey func(*http.Request, netip.Addr) limit.Key

	// MaxWait lets a request wait for tokens instead of being rejected, for at most this time and in
	// the order of arrival. A request whose client leaves while it waits is charged. The limiter and
	// the Fallback must be able to wait, as token buckets are. If 0, no request waits; it must be at
	// most an hour.
	MaxWait time.Duration

	// Jitter adds a random time below Jitter to the Retry-After of every rejection, so that
	// clients that were rejected at the same moment do not return at the same moment. It never
	// shortens it. If 0, Retry-After is exact, but rounded up.
	Jitter time.Duration

	// DryRun makes the limit decide, charge and report, but reject no request. Use it to test
	// a policy before enforcing it.
	DryRun bool

	// OnDryRun is called with every request that a dry run would have rejected, and the denial. It
	// may be nil, and must be nil without DryRun.
	OnDryRun func(*http.Request, limit.Decision)

	// FailOpen admits a request if the limiter cannot decide. If false, the request is rejected with
	// 503.
	FailOpen bool

	// Fallback decides if the limiter cannot. FailOpen applies if the Fallback cannot
	// decide either. If nil, FailOpen applies immediately.
	Fallback limit.Limiter

	// OnError is called with every error of the limiter, before Fallback and FailOpen
	// apply, and with those of Cost and Keep. It may be nil.
	OnError func(error)

	// Observe is called with the outcome of every request that costs something, and of every
	// request of a client that Access names. It may be nil. Many goroutines call it concurrently;
	// it must not block or panic. Package middleware/metrics provides one.
	Observe func(observe.Observation)

	// Timeout bounds a call of the limiter. If 0, it is 50 ms. It does not apply to limiters
	// that implement [adapter.InProcess]. After five failures in a row, calls are paused and fail
	// immediately, except one every 250 to 375 ms.
	Timeout time.Duration
}

// newOptions returns a limit that has its options, but no limiter yet. It panics if one is invalid,
// except for those of enforcement.
func newOptions(opts *Options) *httpLimit {
	h := &httpLimit{}
	if opts != nil {
		h.Options = *opts
	}
	if h.Name == "" {
		h.Name = "http"
	}
	switch err := h.TrustedProxies.Validate(); {
	case err != nil:
		panic(fmt.Sprintf("httplimit: %v", err))
	case !isHeaderName(h.Name):
		panic(fmt.Sprintf("httplimit: Name is %q; it must be printable ASCII without quotes and backslashes", h.Name))
	case h.OnDryRun != nil && !h.DryRun:
		panic("httplimit: OnDryRun is set, but DryRun is false; set DryRun too")
	case h.AccessKey != nil && h.Access == nil:
		panic("httplimit: AccessKey is set, but Access is nil; set Access too")
	}
	return h
}

// enforcement returns the options that do not depend on requests.
func (o *Options) enforcement() enforce.Options {
	return enforce.Options{
		Package: "httplimit", Name: o.Name, MaxWait: o.MaxWait, Jitter: o.Jitter, DryRun: o.DryRun,
		FailOpen: o.FailOpen, Fallback: o.Fallback, Observe: o.Observe, Timeout: o.Timeout, Keeps: o.Keep != nil,
	}
}

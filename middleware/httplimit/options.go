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

// Options configure a limit. The zero value is a working configuration. The fields that package
// ratelimit has too follow the rules that [ratelimit.Options] states in full, with requests in place of
// messages. A request is rejected with 503 if the limiter cannot decide, or if Cost or Keep returns a
// negative number.
//
// [ratelimit.Options]: https://pkg.go.dev/github.com/penstock-go/penstock/middleware/ratelimit#Options
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
	// costs 0 is not limited. A negative cost goes to OnError.
	Cost func(*http.Request) int64

	// ChargeOnly reports whether a request is charged but never rejected.
	ChargeOnly func(*http.Request) bool

	// Keep returns how many tokens a request must leave to more important ones.
	Keep func(*http.Request) int64

	// Access names clients that are not limited, and clients whose requests are rejected with 403.
	// The list may also be that of a router's limits.
	Access *access.List

	// AccessKey returns the key of a request that Access looks up. If nil, it is Key.
	AccessKey func(*http.Request, netip.Addr) limit.Key

	// MaxWait lets a request wait for tokens instead of being rejected, for at most this time. A
	// request whose client leaves while it waits is charged.
	MaxWait time.Duration

	// Jitter is the most that is added at random to the Retry-After of a rejection.
	Jitter time.Duration

	// DryRun makes the limit decide, charge and report, but reject no request.
	DryRun bool

	// OnDryRun is called with every request that a dry run would have rejected, and the denial. It
	// may be nil, and must be nil without DryRun.
	OnDryRun func(*http.Request, limit.Decision)

	// FailOpen admits a request if the limiter cannot decide.
	FailOpen bool

	// Fallback decides if the limiter cannot.
	Fallback limit.Limiter

	// OnError is called with every error of the limiter, before Fallback and FailOpen
	// apply, and with those of Cost and Keep. It may be nil.
	OnError func(error)

	// Observe is called with the outcome of every request that costs something, and of every
	// request of a client that Access names.
	Observe func(observe.Observation)

	// Timeout bounds a call of the limiter. If 0, it is 50 ms.
	Timeout time.Duration
}

// newOptions returns a limit that has its options, but no limiter yet. It panics if one is invalid,
// except for those that package enforce checks.
func newOptions(opts *Options) *httpLimit {
	o := Options{}
	if opts != nil {
		o = *opts
	}
	if o.Name == "" {
		o.Name = "http"
	}
	switch err := o.TrustedProxies.Validate(); {
	case err != nil:
		panic(fmt.Sprintf("httplimit: %v", err))
	case !isHeaderName(o.Name):
		panic(fmt.Sprintf("httplimit: Name is %q; it must be printable ASCII without quotes and backslashes", o.Name))
	case o.OnDryRun != nil && !o.DryRun:
		panic("httplimit: OnDryRun is set, but DryRun is false; set DryRun too")
	}
	return &httpLimit{Charges: o.charges(), proxies: o.TrustedProxies, onDryRun: o.OnDryRun, onError: o.OnError}
}

// A request is an HTTP request with the address of its client.
type request struct {
	*http.Request

	ip netip.Addr
}

// charges returns the options as package enforce knows them.
func (o *Options) charges() enforce.Charges[request] {
	return enforce.Charges[request]{
		Options: enforce.Options{
			Package: "httplimit", Name: o.Name, MaxWait: o.MaxWait, Jitter: o.Jitter, DryRun: o.DryRun,
			FailOpen: o.FailOpen, Fallback: o.Fallback, Observe: o.Observe, Timeout: o.Timeout,
		},
		Key: keyOf(o.Key), Cost: ofRequest(o.Cost), ChargeOnly: ofRequest(o.ChargeOnly), Keep: ofRequest(o.Keep),
		Access: o.Access, AccessKey: keyOf(o.AccessKey), DefaultKey: keyOf(KeyPerIP),
		DefaultCost: func(request) int64 { return 1 },
		IP:          func(r request) netip.Addr { return r.ip },
		Text:        func(r request) string { return r.Method + " " + r.URL.Path },
	}
}

// keyOf and ofRequest return functions of a request for those of an application, and nil for nil.
func keyOf(f func(*http.Request, netip.Addr) limit.Key) func(request) limit.Key {
	if f == nil {
		return nil
	}
	return func(r request) limit.Key { return f(r.Request, r.ip) }
}

func ofRequest[T any](f func(*http.Request) T) func(request) T {
	if f == nil {
		return nil
	}
	return func(r request) T { return f(r.Request) }
}

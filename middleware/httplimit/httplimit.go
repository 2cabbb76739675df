// Package httplimit puts limiters of package limit in front of HTTP handlers. It links neither the
// router nor a WebSocket library.
//
//	limiter := memory.NewLimiter(limit.PerSecond(10).Burst(20))
//	limitRequests := httplimit.New(limiter, nil)
//	http.Handle("/search", limitRequests(search))
//
// The functions are middlewares of net/http, chi and similar packages. In front of a router, they
// limit connection attempts, so that reconnecting grants no additional tokens. [NewAll] combines
// limits with different keys, such as per address and per user.
//
// # Responses
//
// A request over the limit is answered with 429 and Retry-After in whole seconds, rounded up. If no
// wait can help, there is no Retry-After. A client that Access denies is answered with 403. A
// request that is rejected because FailOpen is false, or whose cost is negative, is answered with
// 503.
//
// If the limiter has decided, the response has the fields of
// draft-ietf-httpapi-ratelimit-headers-11:
//
//	RateLimit-Policy: "second";q=10;w=2, "day";q=5000;w=86400
//	RateLimit: "second";r=7;t=1
//
// RateLimit-Policy lists all policies of the limiter: the capacity of the bucket (q), and the
// time in which an empty bucket fills, in seconds and rounded up (w). RateLimit describes the
// policy that decided: whole tokens left (r), and the seconds until the bucket is full or, in a
// rejection, those of Retry-After (t). A policy without a name is called Name. Several of these
// middlewares around one handler add their fields.
package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/penstock-go/penstock/internal/enforce"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/access"
	"github.com/penstock-go/penstock/limit/adapter"
)

// New returns a middleware that calls the handler if the request's bucket holds the cost, and
// otherwise rejects the request. It panics if limiter is nil or an option is invalid.
func New(limiter limit.Limiter, opts *Options) func(http.Handler) http.Handler {
	h := newOptions(opts)
	if h.Key == nil {
		h.Key = KeyPerIP
	}
	if h.AccessKey == nil {
		h.AccessKey = h.Key
	}
	h.enforced = enforce.New(limiter, h.enforcement())
	h.describe(limiter)
	return h.wrap
}

// An httpLimit is a limiter, or several that decide together, with options.
type httpLimit struct {
	Options

	enforced   *enforce.Limit
	rules      []Rule              // of NewAll
	describers []adapter.Describer // the limiters that are
}

func (h *httpLimit) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if h.admit(w, req) {
			next.ServeHTTP(w, req)
		}
	})
}

// admit reports whether the request is admitted, and otherwise responds to it.
func (h *httpLimit) admit(w http.ResponseWriter, req *http.Request) bool {
	ip := h.TrustedProxies.ClientIP(req)
	exempt, err := h.enforced.CheckAccess(h.access(req, ip))
	if err != nil {
		http.Error(w, "access is denied", http.StatusForbidden)
		return false
	}
	if exempt {
		return true
	}
	q, err := h.request(req, ip)
	switch {
	case err != nil:
		if h.OnError != nil {
			h.OnError(err)
		}
		respondUnavailable(w)
		return false
	case q.Take.Cost == 0:
		return true
	}
	d, err := h.enforced.Decide(req.Context(), &q)
	if q.Failure != nil && h.OnError != nil {
		h.OnError(q.Failure)
	}
	if err != nil {
		respondUnavailable(w)
		return false
	}
	denied := !d.Allowed && !h.DryRun
	h.addFields(w.Header(), &d, denied)
	if denied {
		respondDenied(w, &d)
		return false
	}
	if q.DeniedCost > 0 && h.OnDryRun != nil {
		d.Policy = q.DeniedBy
		h.OnDryRun(req, d)
	}
	return true
}

// access returns how Options.Access treats the client of a request.
func (h *httpLimit) access(req *http.Request, ip netip.Addr) access.Access {
	if h.Access == nil {
		return access.Limited
	}
	return h.Access.Lookup(h.AccessKey(req, ip), ip)
}

// request returns what the request takes; if its cost is 0, it is not limited.
func (h *httpLimit) request(req *http.Request, ip netip.Addr) (q enforce.Request, err error) {
	if h.rules != nil {
		q, err = jointRequest(h.rules, req, ip)
	} else {
		q.Take.Cost, err = costOf(h.Cost, req)
	}
	if err != nil || q.Take.Cost == 0 {
		return q, err
	}
	q.ChargeOnly = h.ChargeOnly != nil && h.ChargeOnly(req)
	if h.rules != nil {
		return q, nil
	}
	q.Key = h.Key(req, ip)
	if h.Keep != nil && !q.ChargeOnly {
		q.Take.Keep, err = notNegative("Keep", h.Keep(req), req)
	}
	return q, err
}

// costOf returns the result of a function, which may be nil, for the cost of a request.
func costOf(cost func(*http.Request) int64, req *http.Request) (int64, error) {
	if cost == nil {
		return 1, nil
	}
	return notNegative("Cost", cost(req), req)
}

func notNegative(function string, result int64, req *http.Request) (int64, error) {
	if result < 0 {
		return 0, fmt.Errorf("httplimit: %s returned %d for %s %s; it must not be negative", function, result, req.Method, req.URL.Path)
	}
	return result, nil
}

func respondUnavailable(w http.ResponseWriter) {
	http.Error(w, "limits cannot be checked", http.StatusServiceUnavailable)
}

func respondDenied(w http.ResponseWriter, d *limit.Decision) {
	text := "too many requests"
	switch {
	case d.RetryAfter == limit.Never:
		text = "the request costs more than the limit can ever allow"
	case d.RetryAfter > 0:
		w.Header().Set("Retry-After", strconv.FormatInt(wholeSeconds(d.RetryAfter), 10))
	}
	http.Error(w, text, http.StatusTooManyRequests)
}

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
	"net/http"
	"strconv"

	"github.com/penstock-go/penstock/clientip"
	"github.com/penstock-go/penstock/internal/enforce"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// New returns a middleware that calls the handler if the request's bucket holds the cost, and
// otherwise rejects the request. It panics if limiter is nil or an option is invalid.
func New(limiter limit.Limiter, opts *Options) func(http.Handler) http.Handler {
	h := newOptions(opts)
	h.enforced = h.Limit(limiter)
	h.describe(limiter)
	return h.wrap
}

// An httpLimit is a limiter, or several that decide together, with options.
type httpLimit struct {
	enforce.Charges[request]

	proxies  clientip.TrustedProxies
	onDryRun func(*http.Request, limit.Decision)
	onError  func(error)

	enforced   *enforce.Limit
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
	r := request{req, h.proxies.ClientIP(req)}
	exempt, err := h.enforced.CheckAccess(h.AccessOf(&r))
	if err != nil {
		http.Error(w, "access is denied", http.StatusForbidden)
		return false
	}
	if exempt {
		return true
	}
	q, err := h.Request(&r)
	switch {
	case err != nil:
		h.fail(w, err)
		return false
	case q.Take.Cost == 0:
		return true
	}
	d, err := h.enforced.Decide(req.Context(), &q)
	if err != nil {
		h.fail(w, q.Failure)
		return false
	}
	h.report(q.Failure)
	denied := !d.Allowed && !h.DryRun
	h.addFields(w.Header(), &d, denied)
	if denied {
		respondDenied(w, &d)
		return false
	}
	if q.DeniedCost > 0 && h.onDryRun != nil {
		d.Policy = q.DeniedBy
		h.onDryRun(req, d)
	}
	return true
}

// report calls OnError, unless err is nil.
func (h *httpLimit) report(err error) {
	if err != nil && h.onError != nil {
		h.onError(err)
	}
}

// fail reports err and rejects the request.
func (h *httpLimit) fail(w http.ResponseWriter, err error) {
	h.report(err)
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

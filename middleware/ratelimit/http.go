package ratelimit

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/penstock-go/penstock/clientip"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
)

// HTTPOptions configure [HTTP]. The zero value is a working configuration.
type HTTPOptions struct {
	// Options are those of a limit of messages. Their functions receive the address, the time
	// and the results of Identify and Type; the size is 0. If Key is nil, it is [KeyPerIP]. If
	// Name is "", it is "http".
	Options

	// Identify returns the identity of a request. It must not call other services. If nil,
	// every request is anonymous.
	Identify func(*http.Request) router.Identity

	// Type returns the type of a request, for Key and Cost: its method and path, for example.
	// Map the paths that no handler serves to one type, because a client can invent them.
	// If nil, the type is "".
	Type func(*http.Request) string

	// TrustedProxies are as in router.Options. Requests whose client has no address share a
	// bucket unless Key separates them.
	TrustedProxies clientip.TrustedProxies
}

// HTTP returns a middleware that limits the requests of any HTTP handler: it calls the handler
// if the request's bucket holds the cost.
//
//	http.Handle("/search", ratelimit.HTTP(limiter, nil)(search))
//
// In front of a router, it limits connection attempts, so that reconnecting grants no additional
// tokens. The function is a middleware of net/http, chi and similar packages.
//
// # Responses
//
// A request over the limit is answered with 429 and Retry-After in whole seconds, rounded up. If
// no wait can help, there is no Retry-After. A client that Access denies is answered with 403. A
// request that is rejected because of FailurePolicy is answered with 503.
//
// If the limiter has decided, the response has the fields of draft-ietf-httpapi-ratelimit-headers-11:
//
//	RateLimit-Policy: "second";q=10;w=2, "day";q=5000;w=86400
//	RateLimit: "second";r=7;t=1
//
// RateLimit-Policy lists all policies of the limiter: the capacity of the bucket (q), and the
// time in which an empty bucket fills, in seconds and rounded up (w). RateLimit describes the
// policy that decided: whole tokens left (r), and the seconds until the bucket is full or, in a
// rejection, those of Retry-After (t). A policy without a name is called Name. Several of these
// middlewares around one handler add their fields.
//
// No router receives these rejections: use Observe, and OnError, which also receives the error
// of a negative cost. HTTP panics as [New] does.
func HTTP(limiter limit.Limiter, opts *HTTPOptions) func(http.Handler) http.Handler {
	h := httpLimit{}
	if opts != nil {
		h.HTTPOptions = *opts
	}
	if h.Key == nil {
		h.Key = KeyPerIP
	}
	if h.Name == "" {
		h.Name = "http"
	}
	if !isHeaderName(h.Name) {
		panic(fmt.Sprintf("ratelimit: Name is %q; it must be printable ASCII without quotes and backslashes", h.Name))
	}
	if err := h.TrustedProxies.Validate(); err != nil {
		panic(fmt.Sprintf("ratelimit: %v", err))
	}
	h.limit = newRateLimit(limiter, &h.Options)
	h.describer, _ = limiter.(limit.Describer)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { h.serve(w, req, next) })
	}
}

type httpLimit struct {
	HTTPOptions

	limit     *rateLimit
	describer limit.Describer // nil if the limiter is none
}

func (h *httpLimit) serve(w http.ResponseWriter, req *http.Request, next http.Handler) {
	in := h.ingressContext(req)
	d, exceeded, err := h.admit(req.Context(), &in)
	h.addFields(w.Header(), d, exceeded)
	switch {
	case exceeded != nil:
		respondExceeded(w, exceeded)
	case err == nil:
		next.ServeHTTP(w, req)
	case errors.CodeOf(err) == errors.PermissionDenied:
		http.Error(w, "access is denied", http.StatusForbidden)
	default:
		if errors.CodeOf(err) == errors.InvalidArgument && h.OnError != nil {
			h.OnError(err)
		}
		http.Error(w, "limits cannot be checked", http.StatusServiceUnavailable)
	}
}

// admit decides about a request. exceeded is nil if the request is not rejected.
func (h *httpLimit) admit(ctx context.Context, in *router.IngressContext) (d limit.Decision, exceeded *router.LimitExceeded, err error) {
	if exempt, err := h.limit.enforced.CheckAccess(h.limit.access(in)); exempt || err != nil {
		return d, nil, err
	}
	q, err := h.limit.request(in)
	if err != nil || q.Take.Cost == 0 {
		return d, nil, err
	}
	d, err = h.limit.enforced.Decide(ctx, &q)
	if err != nil || d.Allowed || q.DeniedCost == 0 {
		return d, nil, err
	}
	exceeded = exceededBy(&q, d)
	if !h.DryRun {
		return d, exceeded, nil
	}
	if h.OnDryRun != nil {
		h.OnDryRun(*in, exceeded)
	}
	return d, nil, nil
}

func (h *httpLimit) ingressContext(req *http.Request) router.IngressContext {
	in := router.IngressContext{IP: h.TrustedProxies.ClientIP(req), ReceivedAt: time.Now()}
	if !in.IP.IsValid() {
		in.ConnID = req.RemoteAddr // KeyPerIP uses it instead
	}
	if h.Identify != nil {
		in.Identity = h.Identify(req)
	}
	if h.Type != nil {
		in.Type = h.Type(req)
	}
	return in
}

func respondExceeded(w http.ResponseWriter, l *router.LimitExceeded) {
	text := "too many requests"
	switch {
	case l.RetryAfter == limit.Never:
		text = "the request costs more than the limit can ever allow"
	case l.RetryAfter > 0:
		w.Header().Set("Retry-After", strconv.FormatInt(wholeSeconds(l.RetryAfter), 10))
	}
	http.Error(w, text, http.StatusTooManyRequests)
}

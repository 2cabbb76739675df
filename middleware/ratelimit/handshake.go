package ratelimit

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
)

// HandshakeOptions configure a limit of connection attempts. The zero value is a working
// configuration.
type HandshakeOptions struct {
	// Options are those of a limit of messages. Their functions receive the address, the time
	// and the result of Identify; the type is "" and the size 0. If Key is nil, it is
	// [KeyPerIP]. If Name is "", it is "handshake".
	Options

	// Identify returns the identity of a request. It must not call other services. If nil,
	// every request is anonymous.
	Identify func(*http.Request) router.Identity

	// TrustedProxies are as in router.Options. Requests whose client has no address share a
	// bucket unless Key separates them.
	TrustedProxies router.TrustedProxies
}

// Handshake returns a middleware that admits a request if its bucket holds the cost, so that
// reconnecting grants no additional tokens:
//
//	http.Handle("/ws", ratelimit.Handshake(limiter, nil)(r))
//
// A request over the limit is answered with 429 and Retry-After in whole seconds, rounded up.
// A request that is rejected because of FailurePolicy is answered with 503. If the limiter has
// decided, the response has the headers RateLimit-Policy and RateLimit of
// draft-ietf-httpapi-ratelimit-headers-10.
//
// No router receives these rejections: use Observe, and OnError, which also receives the error
// of a negative cost. Handshake panics as [New] does.
func Handshake(limiter limit.Limiter, opts *HandshakeOptions) func(http.Handler) http.Handler {
	h := handshake{}
	if opts != nil {
		h.HandshakeOptions = *opts
	}
	if h.Key == nil {
		h.Key = KeyPerIP
	}
	if h.Name == "" {
		h.Name = "handshake"
	}
	if strings.ContainsFunc(h.Name, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) {
		panic(fmt.Sprintf("ratelimit: Name is %q; it must be printable ASCII without quotes and backslashes", h.Name))
	}
	if err := h.TrustedProxies.Validate(); err != nil {
		panic(fmt.Sprintf("ratelimit: %v", err))
	}
	h.limit = newRateLimit(limiter, &h.Options)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { h.serve(w, req, next) })
	}
}

type handshake struct {
	HandshakeOptions

	limit *rateLimit
}

func (h *handshake) serve(w http.ResponseWriter, req *http.Request, next http.Handler) {
	in := router.IngressContext{IP: h.TrustedProxies.ClientIP(req), ReceivedAt: time.Now()}
	if !in.IP.IsValid() {
		in.ConnID = req.RemoteAddr // KeyPerIP uses it instead
	}
	if h.Identify != nil {
		in.Identity = h.Identify(req)
	}
	d, err := h.limit.admit(req.Context(), in)
	h.setHeaders(w.Header(), d)
	if err == nil {
		next.ServeHTTP(w, req)
		return
	}
	if exceeded, ok := errors.AsType[*router.LimitExceeded](err); ok {
		if exceeded.RetryAfter != limit.Never {
			w.Header().Set("Retry-After", seconds(exceeded.RetryAfter))
		}
		http.Error(w, "too many connection attempts", http.StatusTooManyRequests)
		return
	}
	if errors.CodeOf(err) == errors.InvalidArgument && h.OnError != nil {
		h.OnError(err)
	}
	http.Error(w, "limits cannot be checked", http.StatusServiceUnavailable)
}

// setHeaders sets the RateLimit headers, unless the limiter has not decided.
func (h *handshake) setHeaders(header http.Header, d limit.Decision) {
	if d.Limit == 0 {
		return
	}
	header.Set("RateLimit-Policy", fmt.Sprintf("%q;q=%d", h.Name, d.Limit))
	header.Set("RateLimit", fmt.Sprintf("%q;r=%d;t=%s", h.Name, d.Remaining, seconds(d.ResetAfter)))
}

// seconds rounds up: a client that returns too early would be rejected again.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64(math.Ceil(d.Seconds())), 10)
}

package ratelimit

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// HandshakeOptions configure a limit of connection attempts, or of any HTTP requests.
// The zero value is a working configuration.
type HandshakeOptions struct {
	// Options are those of a limit of messages. Their functions see the address, the
	// time, and what Identify returned; the type is "" and the size 0. If Key is nil, it
	// is [KeyPerIP], and if Name is "", it is "handshake".
	Options

	// Identify says who a request comes from, if that is known without asking anybody.
	// If nil, every request is anonymous.
	Identify func(*http.Request) router.Identity

	// TrustedProxies are as in router.Options. Requests whose client has no address share a
	// bucket unless Key tells them apart.
	TrustedProxies router.TrustedProxies
}

// Handshake returns a middleware that lets a request through if its bucket can pay for
// it, so that connecting again never buys more than the bucket holds:
//
//	http.Handle("/ws", ratelimit.Handshake(limiter, nil)(r))
//
// A request over the limit is answered with 429 and Retry-After in whole seconds,
// rounded up; one for which the limiter cannot decide, as OnUnavailable says, with 503.
// Every response has the headers RateLimit-Policy and RateLimit of
// draft-ietf-httpapi-ratelimit-headers-10, if the limiter has decided. No router is told: that
// is for Observe, and for OnError, which gets a negative cost, too. It panics as [New] does.
func Handshake(limiter Limiter, opts *HandshakeOptions) func(http.Handler) http.Handler {
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
	h.limit = newLimit(limiter, &h.Options)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { h.serve(w, req, next) })
	}
}

type handshake struct {
	HandshakeOptions

	limit *limit
}

func (h *handshake) serve(w http.ResponseWriter, req *http.Request, next http.Handler) {
	in := router.IngressContext{IP: h.TrustedProxies.ClientIP(req), ReceivedAt: time.Now()}
	if !in.IP.IsValid() {
		in.ConnID = req.RemoteAddr // which then is whose bucket it is
	}
	if h.Identify != nil {
		in.Identity = h.Identify(req)
	}
	d, err := h.limit.decide(req.Context(), in)
	h.tell(w.Header(), d)
	if err == nil {
		next.ServeHTTP(w, req)
		return
	}
	if exceeded, ok := errors.AsType[*router.LimitExceeded](err); ok {
		if exceeded.RetryAfter != Never {
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

// tell sets the standard headers, unless nothing was decided.
func (h *handshake) tell(header http.Header, d Decision) {
	if d.Limit == 0 {
		return
	}
	header.Set("RateLimit-Policy", fmt.Sprintf("%q;q=%d", h.Name, d.Limit))
	header.Set("RateLimit", fmt.Sprintf("%q;r=%d;t=%s", h.Name, d.Remaining, seconds(d.ResetAfter)))
}

// seconds rounds up: who comes back a moment too early is refused again.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64(math.Ceil(d.Seconds())), 10)
}

package outbound

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

const (
	maxDuration = 31 * 24 * time.Hour // a longer duration is ignored as malformed
	maxLimit    = 1_000_000_000

	// defaultRetryAfter is for a 429 that does not say how long to wait. The Transport doubles it for each further one
	// of a route, up to maxRetryAfter.
	defaultRetryAfter = time.Second
	maxRetryAfter     = time.Minute
)

// ParseHeaders returns the rate limit status in a response with the given status code and
// headers. It reads RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers-11):
//
//   - RateLimit states the remaining quota r of each policy and the seconds t until it is
//     restored. If t is missing and nothing remains, it is the policy's window w.
//   - RateLimit-Policy states the quota q and the window w of each policy. Without RateLimit,
//     only the quota is known. A quota of other units than requests is obeyed while nothing of
//     it remains.
//   - Of several policies, the one that is exhausted for longest applies; if none is exhausted,
//     the one of which least remains. A [Transport] obeys each of them.
//   - A malformed field is ignored as a whole, as RFC 9651 demands.
//
// Without such policies, it reads the first of these that the response has:
//
//   - Drafts 3 to 7: RateLimit with limit, remaining and reset, and RateLimit-Policy with quotas
//     and windows; or RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset, as Kong and GitLab
//     send them.
//   - X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset, and Discord's
//     X-RateLimit-Reset-After, in seconds with optional decimals, which replaces Reset
//     (https://discord.com/developers/docs/topics/rate-limits).
//   - X-Rate-Limit-Limit, -Remaining and -Reset.
//   - X-RateLimit-Limit-Minute and -Remaining-Minute, for any period from a second to a year, and
//     X-RateLimit-Limit-Requests, -Remaining-Requests and -Reset-Requests. Each is a policy.
//
// A limit of 0 becomes a limit of 1 of which nothing remains. A reset is a number of seconds, a
// duration such as 6m0s, or a time, which is compared with Date, or with the clock of this machine if
// there is none: the seconds or milliseconds since 1970, or a date as in RFC 3339, RFC 9110 or JavaScript. Whole seconds may have been rounded
// down, so that a second is added, except to a window whose length is known; and Date has no
// decimals. A reset may therefore be up to two seconds too long. It is never too short. The t of
// RateLimit and X-RateLimit-Reset-After are exact, except that whole seconds last at least one.
//
// It also reads, of a response that rejects the request:
//
//   - Retry-After of a 429, 503 or 403, in seconds with optional decimals, as a duration, or as a date
//     (RFC 9110, section 10.2.3). It lasts at least a second if it has no decimals, and until the
//     window ends if nothing remains in that. A 429 without any duration lasts one second, and a
//     [Transport] doubles that.
//   - X-RateLimit-Global and X-RateLimit-Scope of a 429. If the rejection is global, the
//     other X-RateLimit headers describe the global limit and are not the route's.
//
// Malformed and negative values, and durations above 31 days, are ignored. A response with a
// status code below 400 returns the limit [Unlimited] if it has none of these headers, and no other
// one whose name contains RateLimit or Rate-Limit.
func ParseHeaders(code int, h http.Header) Status { return parseResponse(code, h).status }

// A response is what the headers of an API's response say about its limits.
type response struct {
	status   Status   // of all policies, the most restrictive one
	policies []policy // those of RateLimit-Policy and RateLimit, or of several periods
	bucket   string   // X-RateLimit-Bucket
	open     bool     // policy.open, if there are no policies
	guessed  bool     // status.RetryAfter is that of a 429 that does not have one
}

func parseResponse(code int, h http.Header) response {
	var r response
	s := &r.status
	policies, understood := policiesOf(h)
	if r.policies = policies; len(policies) == 0 {
		var ok bool
		if *s, r.open, ok = fieldsOf(h); !ok {
			r.policies = periodsOf(h)
		}
	}
	if len(r.policies) > 0 {
		*s = slices.MinFunc(r.policies, byRestriction).status
	}
	if bucket := h.Get("X-RateLimit-Bucket"); len(bucket) <= maxNameBytes {
		r.bucket = bucket
	}
	retry, hasRetry := retryAfter(h)
	rejected := code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable && hasRetry || code == http.StatusForbidden && hasRetry
	if rejected {
		s.RetryAfter, r.guessed = retry, !hasRetry && s.ResetAfter == 0
		switch {
		case r.guessed:
			s.RetryAfter = defaultRetryAfter
		case !hasRetry || s.Remaining == 0:
			s.RetryAfter = max(retry, s.ResetAfter)
		}
	}
	isGlobal := strings.EqualFold(h.Get("X-RateLimit-Global"), "true") || strings.EqualFold(h.Get("X-RateLimit-Scope"), "global")
	if isGlobal && code == http.StatusTooManyRequests {
		return response{status: Status{RetryAfter: s.RetryAfter, Global: true}, guessed: r.guessed}
	}
	if s.Limit == 0 && code < http.StatusBadRequest && !hasRetry && s.ResetAfter == 0 && !mentionsLimit(h, understood) {
		s.Limit = Unlimited
	}
	return r
}

// mentionsLimit reports whether a header may be about a limit that ParseHeaders has not found. understood is true if
// the policies in RateLimit and RateLimit-Policy, if there are any, are of other units and not exhausted.
func mentionsLimit(h http.Header, understood bool) bool {
	for name := range h {
		switch compact := strings.ReplaceAll(strings.ToLower(name), "-", ""); {
		case !strings.Contains(compact, "ratelimit"), compact == "xratelimitglobal", compact == "xratelimitscope":
		case understood && (compact == "ratelimit" || compact == "ratelimitpolicy"):
		default:
			return true
		}
	}
	return false
}

package outbound

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	maxDuration       = 31 * 24 * time.Hour // a longer duration is ignored as malformed
	maxLimit          = 1_000_000_000
	defaultRetryAfter = time.Second // for a 429 that does not say how long to wait
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
// It also reads Discord's headers (https://discord.com/developers/docs/topics/rate-limits), most
// of which other APIs send too. Limit, Remaining and Reset are ignored if the response has
// policies:
//
//   - X-RateLimit-Limit and X-RateLimit-Remaining. A limit of 0 becomes a limit of 1 of which
//     nothing remains.
//   - X-RateLimit-Reset-After, in seconds with optional decimals. Without it,
//     X-RateLimit-Reset, in seconds since 1970 with optional decimals, minus Date. Date has no
//     decimals, so this difference may be up to two seconds too long. It is never too short.
//   - Retry-After of a 429 or 503, in seconds with optional decimals, or as a date
//     (RFC 9110, section 10.2.3). A 429 without any duration lasts one second.
//   - X-RateLimit-Global and X-RateLimit-Scope of a 429. If the rejection is global, the
//     other X-RateLimit headers describe the global limit and are not the route's.
//
// Malformed and negative values, and durations above 31 days, are ignored. A response with a
// status code below 400 and without any of these headers returns the limit [Unlimited].
func ParseHeaders(code int, h http.Header) Status { return parseResponse(code, h).status }

// A response is what the headers of an API's response say about its limits.
type response struct {
	status   Status   // of all policies, the most restrictive one
	policies []policy // those of RateLimit-Policy and RateLimit
	bucket   string   // X-RateLimit-Bucket
}

func parseResponse(code int, h http.Header) response {
	r := response{policies: policiesOf(h)}
	if bucket := h.Get("X-RateLimit-Bucket"); len(bucket) <= maxNameBytes {
		r.bucket = bucket
	}
	s := &r.status
	if len(r.policies) > 0 {
		*s = slices.MinFunc(r.policies, byRestriction).status
	} else {
		s.Limit, s.Remaining = limitOf(h)
		s.ResetAfter, _ = resetAfter(h)
	}
	retry, hasRetry := retryAfter(h)
	switch {
	case code != http.StatusTooManyRequests && code != http.StatusServiceUnavailable:
	case hasRetry:
		s.RetryAfter = retry
	case code == http.StatusServiceUnavailable:
	case s.ResetAfter > 0:
		s.RetryAfter = s.ResetAfter
	default:
		s.RetryAfter = defaultRetryAfter
	}
	isGlobal := strings.EqualFold(h.Get("X-RateLimit-Global"), "true") || strings.EqualFold(h.Get("X-RateLimit-Scope"), "global")
	if isGlobal && code == http.StatusTooManyRequests {
		return response{status: Status{RetryAfter: s.RetryAfter, Global: true}}
	}
	if s.Limit == 0 && code < http.StatusBadRequest && !hasRetry && s.ResetAfter == 0 {
		s.Limit = Unlimited
	}
	return r
}

// limitOf returns 0, 0 if the headers contain no limit.
func limitOf(h http.Header) (limit, remaining int64) {
	limit, hasLimit := number(h.Get("X-RateLimit-Limit"))
	remaining, hasRemaining := number(h.Get("X-RateLimit-Remaining"))
	switch {
	case !hasLimit && !hasRemaining:
		return 0, 0
	case !hasLimit:
		limit = remaining + 1 // the answered request is already deducted
	case !hasRemaining:
		remaining = limit
	}
	remaining = min(remaining, limit)
	return max(limit, 1), remaining
}

func number(text string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return n, err == nil && n >= 0 && n <= maxLimit
}

func retryAfter(h http.Header) (time.Duration, bool) {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if d, _, ok := seconds(text); ok {
		return checkDuration(d)
	}
	at, err := http.ParseTime(text)
	date, hasDate := dateOf(h)
	if err != nil || !hasDate {
		return 0, false
	}
	return checkDuration(at.Sub(date) + time.Second)
}

func resetAfter(h http.Header) (time.Duration, bool) {
	if d, _, ok := seconds(strings.TrimSpace(h.Get("X-RateLimit-Reset-After"))); ok {
		return checkDuration(d)
	}
	since1970, whole, ok := seconds(strings.TrimSpace(h.Get("X-RateLimit-Reset")))
	date, hasDate := dateOf(h)
	if !ok || !hasDate {
		return 0, false
	}
	after := since1970 - time.Duration(date.Unix())*time.Second
	switch {
	case after < 0: // a reset time in the past is malformed
		return 0, false
	case whole: // the window may end at any time within that second
		after += time.Second
	}
	return checkDuration(after)
}

// dateOf ignores dates whose distance from 1970 time.Duration cannot represent.
func dateOf(h http.Header) (time.Time, bool) {
	date, err := http.ParseTime(h.Get("Date"))
	return date, err == nil && date.Year() >= 1970 && date.Year() < 2200
}

// checkDuration reports whether d is valid. It returns 1ns for 0, because a 0 in a Status means
// that the duration is unknown.
func checkDuration(d time.Duration) (time.Duration, bool) {
	return max(d, time.Nanosecond), d >= 0 && d <= maxDuration
}

// seconds parses a decimal number of seconds and rounds it up to the nanosecond. whole reports
// that text has no decimal point.
func seconds(text string) (d time.Duration, whole, ok bool) {
	const digits = 9 // a nanosecond is the ninth decimal
	before, after, hasPoint := strings.Cut(text, ".")
	if !areDigits(before) || len(before) > 10 || hasPoint && !areDigits(after) {
		return 0, false, false
	}
	n, err := strconv.ParseInt(before, 10, 64)
	if err != nil || n > maxSeconds {
		return 0, false, false
	}
	d = time.Duration(n) * time.Second
	if !hasPoint {
		return d, true, true
	}
	kept := (after + strings.Repeat("0", digits))[:digits]
	nanos, err := strconv.ParseInt(kept, 10, 64)
	if err != nil {
		return 0, false, false
	}
	if len(after) > digits && strings.Trim(after[digits:], "0") != "" {
		nanos++
	}
	return d + time.Duration(nanos), false, true
}

// maxSeconds is the start of the year 2200 as a Unix time. time.Duration can represent it.
const maxSeconds = 7_258_118_400

func areDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

package outbound

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	maxTold      = 31 * 24 * time.Hour // longer is nonsense, and told nothing
	maxLimit     = 1_000_000_000
	refusedAfter = time.Second // where a refusal does not say how long it lasts
)

// ParseHeaders returns what a response with a status code and headers tells of limits. It
// understands those of Discord (https://discord.com/developers/docs/topics/rate-limits),
// most of which many others send too:
//
//   - X-RateLimit-Limit and X-RateLimit-Remaining. A limit of 0 is told as one of 1 of
//     which nothing remains.
//   - X-RateLimit-Reset-After, in seconds with decimals; else X-RateLimit-Reset, seconds
//     since 1970 with or without decimals, minus Date. Date has no decimals, so the
//     difference may be up to two seconds too long, and is never too short.
//   - Retry-After, in seconds with or without decimals, or a date, of a 429 or 503
//     (RFC 9110, section 10.2.3).
//   - X-RateLimit-Global and X-RateLimit-Scope, of a 429. If it is global, the others
//     speak of that limit, not of the route's.
//
// What is malformed, negative or longer than 31 days told nothing. A response below 400
// without any of them shows that its route is [Unlimited].
func ParseHeaders(code int, h http.Header) Status {
	retry, hasRetry := retryAfter(h)
	reset, hasReset := resetAfter(h)
	var s Status
	switch {
	case code != http.StatusTooManyRequests && code != http.StatusServiceUnavailable:
	case hasRetry:
		s.RetryAfter = retry
	case code == http.StatusServiceUnavailable:
	case hasReset:
		s.RetryAfter = reset
	default:
		s.RetryAfter = refusedAfter
	}
	if code == http.StatusTooManyRequests {
		s.Global = strings.EqualFold(h.Get("X-RateLimit-Global"), "true") ||
			strings.EqualFold(h.Get("X-RateLimit-Scope"), "global")
	}
	if s.Global {
		return s
	}
	if hasReset {
		s.ResetAfter = reset
	}
	s.Limit, s.Remaining = limitOf(h)
	if s.Limit == 0 && code < http.StatusBadRequest && !hasRetry && !hasReset {
		s.Limit = Unlimited
	}
	return s
}

// limitOf returns 0, 0 if the headers do not tell.
func limitOf(h http.Header) (limit, remaining int64) {
	limit, hasLimit := number(h.Get("X-RateLimit-Limit"))
	remaining, hasRemaining := number(h.Get("X-RateLimit-Remaining"))
	switch {
	case !hasLimit && !hasRemaining:
		return 0, 0
	case !hasLimit:
		limit = remaining + 1 // this request counted
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
		return told(d)
	}
	at, err := http.ParseTime(text)
	date, hasDate := dateOf(h)
	if err != nil || !hasDate {
		return 0, false
	}
	return told(at.Sub(date) + time.Second)
}

func resetAfter(h http.Header) (time.Duration, bool) {
	if d, _, ok := seconds(strings.TrimSpace(h.Get("X-RateLimit-Reset-After"))); ok {
		return told(d)
	}
	since1970, whole, ok := seconds(strings.TrimSpace(h.Get("X-RateLimit-Reset")))
	date, hasDate := dateOf(h)
	if !ok || !hasDate {
		return 0, false
	}
	after := since1970 - time.Duration(date.Unix())*time.Second
	switch {
	case after < 0: // nothing lasts until the past
		return 0, false
	case whole: // it may be later in that second
		after += time.Second
	}
	return told(after)
}

// dateOf ignores dates that time.Duration cannot count to.
func dateOf(h http.Header) (time.Time, bool) {
	date, err := http.ParseTime(h.Get("Date"))
	return date, err == nil && date.Year() >= 1970 && date.Year() < 2200
}

// told makes 0, which would tell nothing, the shortest there is.
func told(d time.Duration) (time.Duration, bool) {
	return max(d, time.Nanosecond), d >= 0 && d <= maxTold
}

// seconds parses a decimal number, rounding up to the nanosecond.
func seconds(text string) (d time.Duration, whole, ok bool) {
	const digits = 9 // of a nanosecond
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

// maxSeconds is in the year 2200, and far from what time.Duration can count to.
const maxSeconds = 7_258_118_400

func areDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

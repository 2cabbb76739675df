package outbound

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// This file reads headers with one value for each of limit, remaining and reset: those of drafts 3 to 7 of
// draft-ietf-httpapi-ratelimit-headers, and those of gateways that follow no draft.

// A quota is a number of requests, and the window that it is for, which is 0 if it is not stated.
type quota struct {
	n      int64
	window time.Duration
}

// A triple is what a family of headers states.
type triple struct {
	limits    []quota // the first one is the limit; the others are those of the policies behind it
	remaining []quota // the smallest one counts
	reset     string
	after     string // replaces reset, and is exact
}

// fieldsOf returns the status of the first family of headers that has one. open reports that it does not state the
// limit.
func fieldsOf(h http.Header) (s Status, open, ok bool) {
	policies := quotasOf(h.Values("RateLimit-Policy"))
	reset := time.Duration(0) // the first one, of whatever family
	for _, t := range []triple{dictionaryOf(h), familyOf(h, "RateLimit-"), familyOf(h, "X-RateLimit-"), familyOf(h, "X-Rate-Limit-")} {
		stated, hasLimit := t.status(h, policies)
		if hasLimit && !ok {
			s, open, ok = stated, len(t.limits) == 0, true
		}
		if reset == 0 {
			reset = stated.ResetAfter
		}
	}
	if !ok && len(policies) > 0 { // they bound bursts, even if the state is unknown
		least := slices.MinFunc(policies, func(a, b quota) int { return int(a.n - b.n) })
		s, ok = Status{Limit: max(least.n, 1), Remaining: least.n}, true
	}
	if s.ResetAfter == 0 {
		s.ResetAfter = reset
	}
	return s, open, ok || reset > 0
}

// dictionaryOf reads RateLimit of draft 7, such as limit=100, remaining=50, reset=30.
func dictionaryOf(h http.Header) triple {
	members, err := httpsfv.UnmarshalDictionary(h.Values("RateLimit"))
	if err != nil {
		return triple{}
	}
	integer := func(name string) string {
		member, _ := members.Get(name)
		item, _ := member.(httpsfv.Item)
		n, isInteger := item.Value.(int64)
		if !isInteger {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	return triple{quotasOf([]string{integer("limit")}), quotasOf([]string{integer("remaining")}), integer("reset"), ""}
}

// familyOf reads headers whose names begin with a prefix.
func familyOf(h http.Header, prefix string) triple {
	return triple{
		quotasOf(h.Values(prefix + "Limit")), quotasOf(h.Values(prefix + "Remaining")),
		h.Get(prefix + "Reset"), h.Get(prefix + "Reset-After"),
	}
}

// status returns the status. It is not ok without a limit and a remaining number; the status may then have a reset.
// policies may have the window.
func (t triple) status(h http.Header, policies []quota) (s Status, ok bool) {
	window := time.Duration(0)
	if len(t.limits) > 0 {
		s.Limit = t.limits[0].n
		window = windowOf(s.Limit, slices.Concat(t.limits, policies))
	}
	if after, p, isExact := delay(t.after, h); isExact {
		if p != exact {
			after = max(after, time.Second)
		}
		s.ResetAfter, _ = checkDuration(after)
	} else {
		s.ResetAfter, _ = resetAfter(t.reset, h, window)
	}
	switch {
	case len(t.limits) == 0 && len(t.remaining) == 0:
		return s, false
	case len(t.remaining) == 0:
		s.Remaining = s.Limit
	default:
		s.Remaining = slices.MinFunc(t.remaining, func(a, b quota) int { return int(a.n - b.n) }).n
	}
	if len(t.limits) == 0 {
		s.Limit = s.Remaining + 1 // the answered request is already deducted
	}
	s.Remaining = min(s.Remaining, s.Limit)
	s.Limit = max(s.Limit, 1)
	if s.Remaining == 0 && s.ResetAfter == 0 {
		s.ResetAfter = window // the end cannot be later
	}
	return s, true
}

// windowOf returns the longest window that a limit is for, or 0.
func windowOf(limit int64, quotas []quota) (window time.Duration) {
	for _, q := range quotas {
		if q.n == limit {
			window = max(window, q.window)
		}
	}
	return window
}

// quotasOf parses numbers with windows, such as 100 or 100, 100;w=60. It returns nil if one is malformed.
func quotasOf(lines []string) (all []quota) {
	for text := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		text, params, _ := strings.Cut(text, ";")
		n, ok := number(text)
		if !ok {
			return nil
		}
		q := quota{n: n}
		for param := range strings.SplitSeq(params, ";") {
			if w, isWindow := strings.CutPrefix(strings.TrimSpace(param), "w="); isWindow {
				length, _ := number(w)
				q.window = secondsOf(length)
			}
		}
		all = append(all, q)
	}
	return all
}

// number parses a number that is not negative, without its decimals. It returns at most maxLimit.
func number(text string) (int64, bool) {
	whole, decimals, hasPoint := strings.Cut(strings.TrimSpace(text), ".")
	if !areDigits(whole) || len(whole) > 15 || hasPoint && !areDigits(decimals) {
		return 0, false
	}
	n, err := strconv.ParseInt(whole, 10, 64)
	return min(n, maxLimit), err == nil
}

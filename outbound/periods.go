package outbound

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// This file reads headers of several limits, whose names say what each is for: X-RateLimit-Limit-Minute and
// X-RateLimit-Limit-Hour of Kong, X-RateLimit-Limit-Requests of OpenAI, Anthropic-RateLimit-Requests-Limit.

// limitName matches such a header: what it states, and before or after that, what it is for.
var limitName = regexp.MustCompile(`^([a-z-]*)rate-?limit-(?:(limit|remaining|reset)-(.+)|(.+)-(limit|remaining|reset))$`)

// periodsOf returns the policies that such headers state.
func periodsOf(h http.Header) (policies []policy) {
	triples := map[string]*triple{}
	for name, lines := range h {
		match := limitName.FindStringSubmatch(strings.ToLower(name))
		if match == nil {
			continue
		}
		field, purpose := match[2]+match[5], match[3]+match[4]
		t := triples[match[1]+purpose]
		if t == nil {
			t = &triple{}
			triples[match[1]+purpose] = t
		}
		switch field {
		case "limit":
			t.limits = quotasOf(lines)
		case "remaining":
			t.remaining = quotasOf(lines)
		default:
			t.reset = lines[0]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(triples)) {
		if p, ok := policyFor(name, *triples[name], h); ok && len(policies) < maxPolicies {
			policies = append(policies, p)
		}
	}
	return policies
}

// policyFor returns the policy of headers with a name. It is not ok if it is unknown what the name means.
func policyFor(name string, t triple, h http.Header) (policy, bool) {
	p := policy{name: name}
	for word := range strings.SplitSeq(name, "-") {
		seconds, isNumber := number(word)
		switch length, isPeriod := periods[word]; {
		case isPeriod:
			p.window = length
		case isNumber:
			p.window = secondsOf(seconds)
		case word == "tokens":
			p.other = true
		case word == "requests", word == "x", word == "anthropic", word == "input", word == "output":
		default:
			return policy{}, false
		}
	}
	for i := range t.limits {
		t.limits[i].window = max(t.limits[i].window, p.window)
	}
	var ok bool
	p.open = len(t.limits) == 0
	p.status, ok = t.status(h, nil)
	return p, ok && len(name) <= maxNameBytes && !p.isUseless()
}

// periods are those of Kong. A month and a year are the longest ones.
//
//nolint:gochecknoglobals // never changed
var periods = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour,
	"week": 7 * 24 * time.Hour, "month": maxDuration, "year": maxDuration,
}

package outbound

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/dunglas/httpsfv"
)

// A policy is a quota policy of an API and its state in one response, from the fields
// RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers-11, sections 3 and 4).
type policy struct {
	name   string
	window time.Duration // 0 if unknown
	other  bool          // it counts other units than requests
	open   bool          // the limit is not stated: status.Limit is what has remained before the request
	status Status        // Limit, Remaining and ResetAfter
}

const (
	maxPolicies  = 8   // of a response; of more, the most restrictive ones apply
	maxNameBytes = 128 // of a policy or a bucket; others are ignored
)

// policiesOf returns the policies that a response reports, in the order of the fields. A field
// that is not a list of named items with valid parameters is ignored as a whole; understood is then false.
func policiesOf(h http.Header) (policies []policy, understood bool) {
	announced, ok1 := parseField(h.Values("RateLimit-Policy"), parseQuota)
	reported, ok2 := parseField(h.Values("RateLimit"), parseState)
	for _, p := range reported {
		if at := slices.IndexFunc(announced, func(a policy) bool { return a.name == p.name }); at >= 0 {
			p.window, p.other, p.status.Limit = announced[at].window, announced[at].other, announced[at].status.Limit
		}
		policies = append(policies, p.complete())
	}
	if len(reported) == 0 {
		policies = announced // the quotas bound bursts, even if the state is unknown
	}
	policies = slices.DeleteFunc(policies, policy.isUseless)
	if len(policies) > maxPolicies {
		slices.SortStableFunc(policies, byRestriction)
		policies = policies[:maxPolicies]
	}
	return policies, ok1 && ok2
}

// complete derives what the response does not say.
func (p policy) complete() policy {
	s := &p.status
	if s.Limit == 0 {
		s.Limit, p.open = s.Remaining+1, true // the answered request is already deducted
	}
	s.Remaining = min(s.Remaining, s.Limit)
	if s.Remaining == 0 && s.ResetAfter == 0 {
		s.ResetAfter = p.window // no part of the quota returns later than that
	}
	return p
}

// isUseless reports whether a policy says nothing about when a request may be sent: other units
// than requests only do so when they are exhausted.
func (p policy) isUseless() bool {
	return p.other && (p.status.Remaining > 0 || p.status.ResetAfter == 0)
}

// byRestriction orders an exhausted policy before others, then the one that is exhausted for
// longer, then the one of which less remains.
func byRestriction(a, b policy) int {
	if a.status.Remaining == 0 && b.status.Remaining == 0 {
		return cmp.Compare(b.status.ResetAfter, a.status.ResetAfter)
	}
	return cmp.Or(cmp.Compare(a.status.Remaining, b.status.Remaining), cmp.Compare(b.status.ResetAfter, a.status.ResetAfter))
}

// parseField parses a structured field (RFC 9651) whose members are strings with parameters.
func parseField(lines []string, parse func(*policy, *httpsfv.Params) bool) (policies []policy, ok bool) {
	list, err := httpsfv.UnmarshalList(lines)
	if err != nil {
		return nil, false
	}
	for _, member := range list {
		item, isItem := member.(httpsfv.Item)
		name, isString := item.Value.(string)
		p := policy{name: name}
		if !isItem || !isString || !parse(&p, item.Params) {
			return nil, false
		}
		if len(name) <= maxNameBytes {
			policies = append(policies, p)
		}
	}
	return policies, true
}

// parseQuota reads the parameters of RateLimit-Policy: the quota q and the window w in seconds.
// A quota of other units says nothing about the number of requests.
func parseQuota(p *policy, params *httpsfv.Params) bool {
	quota, hasQuota, ok1 := integer(params, "q")
	window, _, ok2 := integer(params, "w")
	unit, hasUnit := params.Get("qu")
	text, isString := unit.(string)
	if !hasQuota || !ok1 || !ok2 || hasUnit && !isString || !isPartition(params) {
		return false
	}
	p.window, p.other = secondsOf(window), hasUnit && text != "requests"
	if !p.other {
		p.status.Limit = max(min(quota, maxLimit), 1)
		p.status.Remaining = min(quota, p.status.Limit)
	}
	return true
}

// parseState reads the parameters of RateLimit: the remaining quota r, and the time t in seconds
// until the quota is restored.
func parseState(p *policy, params *httpsfv.Params) bool {
	remaining, hasRemaining, ok1 := integer(params, "r")
	reset, hasReset, ok2 := integer(params, "t")
	if !hasRemaining || !ok1 || !ok2 || !isPartition(params) {
		return false
	}
	p.status.Remaining = min(remaining, maxLimit)
	if hasReset {
		p.status.ResetAfter = max(secondsOf(reset), time.Second) // 0 is rounded down, and would mean unknown
	}
	return true
}

// integer returns a parameter, which must be an integer of 0 or more if it exists.
func integer(params *httpsfv.Params, name string) (n int64, exists, ok bool) {
	value, exists := params.Get(name)
	n, isInteger := value.(int64)
	return n, exists, !exists || isInteger && n >= 0
}

// isPartition reports whether the partition key is a byte sequence, if it exists.
func isPartition(params *httpsfv.Params) bool {
	value, exists := params.Get("pk")
	_, isBytes := value.([]byte)
	return !exists || isBytes
}

// secondsOf returns at most maxDuration.
func secondsOf(n int64) time.Duration {
	return time.Duration(min(n, int64(maxDuration/time.Second))) * time.Second
}

package replay

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/policytext"
)

// ParsePolicy parses a policy: a rule, or several rules that must all admit a request, optionally
// preceded by a name and a colon, as in package limit.
//
//	10/s burst 20                 a token bucket, in the syntax of limit.ParsePolicy
//	10/s burst 20 wait 2s         a token bucket for which requests wait up to 2 seconds
//	sliding-log 10/m              at most 10 in any minute
//	sliding-counter 1000/h        about 1000 in any hour
//	quota 1000/day Europe/Berlin  1000 per calendar hour, day, week or month; without a zone in UTC
//	cooldown 10/m penalty 5m      a penalty of 5 minutes after more than 10 in any minute
//	10/s + quota 1000/day         both
//
// Without an error, the policy is valid.
func ParsePolicy(text string) (Policy, error) {
	p, err := parsePolicy(text)
	if err != nil {
		return Policy{}, fmt.Errorf("policy %q: %w", text, err)
	}
	return p, nil
}

func parsePolicy(text string) (p Policy, err error) {
	var rest string
	if p.name, rest, err = policytext.CutName(strings.TrimSpace(text)); err != nil {
		return Policy{}, err
	}
	words := strings.Fields(rest)
	if words, p.maxWait, err = cutWait(words); err != nil {
		return Policy{}, err
	}
	for {
		plus := slices.Index(words, "+")
		last := plus < 0
		if last {
			plus = len(words)
		}
		if plus == 0 && (!last || len(p.rules) > 0) {
			return Policy{}, errors.New("a + must be between two limits, as in 10/s + quota 1000/day")
		}
		r, err := parseRule(words[:plus])
		if err != nil {
			return Policy{}, err
		}
		p.rules = append(p.rules, r)
		if last {
			return p, p.validate()
		}
		words = words[plus+1:]
	}
}

// cutWait splits "wait 2s" from the end.
func cutWait(words []string) (rest []string, wait time.Duration, err error) {
	at := slices.Index(words, "wait")
	switch {
	case at < 0:
		return words, 0, nil
	case at != len(words)-2:
		return nil, 0, errors.New("wait must be followed by a time and end the policy, as in 10/s burst 20 wait 2s")
	}
	wait, err = policytext.Duration(words[at+1])
	return words[:at], wait, err
}

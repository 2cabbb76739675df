package replay

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
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
	if p.name, rest, err = cutName(strings.TrimSpace(text)); err != nil {
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

// cutName splits text at the colon after the name. Without a colon, the name is "".
func cutName(text string) (name, rest string, err error) {
	quoted, err := strconv.QuotedPrefix(text)
	if err != nil { // the text begins with no quoted name
		quoted = ""
	}
	before, rest, ok := strings.Cut(text[len(quoted):], ":")
	switch {
	case !ok && quoted == "" && !strings.HasPrefix(text, `"`):
		return "", text, nil
	case !ok:
		_, err := limit.ParsePolicy(text)
		return "", "", reason(err)
	case strings.Contains(rest, ":"):
		return "", "", errors.New("there is more than one colon; write one, after the name, as in chat: 10/s")
	}
	named, err := limit.ParsePolicy(quoted + before + ": 1/s")
	return named.Name, rest, reason(err)
}

// reason removes the text that was passed to package limit from its error: it is only a part of
// the policy.
func reason(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
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
	wait, err = parseDuration(words[at+1])
	return words[:at], wait, err
}

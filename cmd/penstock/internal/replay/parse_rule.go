package replay

import (
	"fmt"
	"strings"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/policytext"
	"github.com/penstock-go/penstock/limit"
)

// form returns how a rule that begins with the keyword is written, or "".
func form(keyword string) string {
	switch keyword {
	case "sliding-log":
		return policytext.LogForm
	case "sliding-counter":
		return policytext.CounterForm
	case "quota":
		return policytext.QuotaForm
	case "cooldown":
		return "cooldown 10/m penalty 5m"
	}
	return ""
}

func parseRule(words []string) (rule, error) {
	if len(words) == 0 {
		return nil, errors.New("there is no limit; write one such as 10/s")
	}
	switch keyword, n := words[0], len(words); {
	case keyword == "sliding-log" && n == 2:
		return parseLog(words[1])
	case keyword == "sliding-counter" && n == 2:
		return parseCounter(words[1])
	case keyword == "quota" && (n == 2 || n == 3):
		return parseQuota(words[1:])
	case keyword == "cooldown" && n == 4 && words[2] == "penalty":
		return parseCooldown(words[1], words[3])
	case form(keyword) != "":
		return nil, fmt.Errorf("%q must be written as %s", strings.Join(words, " "), form(keyword))
	}
	return parseBucket(words)
}

func parseBucket(words []string) (rule, error) {
	switch {
	case !strings.Contains(words[0], "/"):
		return nil, fmt.Errorf("%q is not a rate, such as 10/s, and not sliding-log, sliding-counter, quota or cooldown", words[0])
	case strings.Contains(words[0], "+"):
		return nil, fmt.Errorf("%q has a + without spaces; write it as in 10/s + quota 1000/day", words[0])
	}
	p, err := limit.ParsePolicy(strings.Join(words, " "))
	if err != nil {
		return nil, policytext.Reason(err)
	}
	return tokenBucket{p}, nil
}

func parseLog(rate string) (rule, error) {
	w, err := policytext.Window(rate)
	if err == nil {
		err = w.ValidateLog()
	}
	return slidingLog{w}, err
}

func parseCounter(rate string) (rule, error) {
	w, err := policytext.Window(rate)
	if err == nil {
		err = w.Validate()
	}
	return slidingCounter{w}, err
}

func parseCooldown(rate, penalty string) (rule, error) {
	w, err := policytext.Window(rate)
	if err != nil {
		return nil, err
	}
	p := limit.CooldownPolicy{Max: w.Max, Window: w.Window}
	if p.Penalty, err = policytext.Duration(penalty); err != nil {
		return nil, err
	}
	return cooldown{p}, p.Validate()
}

// parseQuota parses a rate per period, and optionally a time zone.
func parseQuota(words []string) (rule, error) {
	p, err := policytext.Quota(words)
	return quota{p}, err
}

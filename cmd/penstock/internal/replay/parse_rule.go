package replay

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
)

// form returns how a rule that begins with the keyword is written, or "".
func form(keyword string) string {
	switch keyword {
	case "sliding-log":
		return "sliding-log 10/m"
	case "sliding-counter":
		return "sliding-counter 1000/h"
	case "quota":
		return "quota 1000/day, or quota 1000/day Europe/Berlin"
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
		return nil, reason(err)
	}
	return tokenBucket{p}, nil
}

func parseLog(rate string) (rule, error) {
	w, err := parseWindow(rate)
	if err == nil {
		err = w.ValidateLog()
	}
	return slidingLog{w}, err
}

func parseCounter(rate string) (rule, error) {
	w, err := parseWindow(rate)
	if err == nil {
		err = w.Validate()
	}
	return slidingCounter{w}, err
}

func parseCooldown(rate, penalty string) (rule, error) {
	w, err := parseWindow(rate)
	if err != nil {
		return nil, err
	}
	p := limit.CooldownPolicy{Max: w.Max, Window: w.Window}
	if p.Penalty, err = parseDuration(penalty); err != nil {
		return nil, err
	}
	return cooldown{p}, p.Validate()
}

// parseQuota parses a rate per period, and optionally a time zone.
func parseQuota(words []string) (rule, error) {
	count, period, ok := strings.Cut(words[0], "/")
	if !ok {
		return nil, fmt.Errorf("%q is not a quota; write %s", words[0], form("quota"))
	}
	var p limit.QuotaPolicy
	var err error
	if p.Max, err = parseCount(count); err != nil {
		return nil, err
	}
	switch period {
	case "hour":
		p.Period = limit.Hour
	case "day":
		p.Period = limit.Day
	case "week":
		p.Period = limit.Week
	case "month":
		p.Period = limit.Month
	default:
		return nil, fmt.Errorf("%q is not a period of the calendar; write hour, day, week or month, as in quota %s/day", period, count)
	}
	if len(words) == 2 {
		if p.Location, err = time.LoadLocation(words[1]); err != nil {
			return nil, fmt.Errorf("%q is not a time zone; write a name such as Europe/Berlin, or none for UTC", words[1])
		}
	}
	return quota{p}, p.Validate()
}

// parseWindow parses a rate such as 10/m or 5/1h30m.
func parseWindow(rate string) (w limit.WindowPolicy, err error) {
	count, window, ok := strings.Cut(rate, "/")
	if !ok {
		return w, fmt.Errorf("%q is not a rate; write a number, a slash and a time, such as 10/m", rate)
	}
	if w.Max, err = parseCount(count); err != nil {
		return w, err
	}
	w.Window, err = parseDuration(window)
	return w, err
}

func parseCount(digits string) (int64, error) {
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a number of requests; write digits, at least 1 and below 2^63, such as 10", digits)
	}
	return int64(n), nil
}

// parseDuration parses the time of a rate, such as m, 250ms or 1h30m.
func parseDuration(text string) (time.Duration, error) {
	p, err := limit.ParsePolicy("1/" + text)
	return p.Per, reason(err)
}

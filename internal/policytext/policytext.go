// Package policytext parses the parts of policies as people write them, for files of limits and
// for the simulator. Package limit has the syntax of token buckets.
package policytext

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
)

// How the limits that are not token buckets are written.
const (
	LogForm     = "sliding-log 10/m"
	CounterForm = "sliding-counter 1000/h"
	QuotaForm   = "quota 1000/day, or quota 1000/day Europe/Berlin"
)

// CutName splits text at the colon after the name. Without a colon, the name is "".
func CutName(text string) (name, rest string, err error) {
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
		return "", "", Reason(err)
	case strings.Contains(rest, ":"):
		return "", "", errors.New("there is more than one colon; write one, after the name, as in chat: 10/s")
	}
	named, err := limit.ParsePolicy(quoted + before + ": 1/s")
	return named.Name, rest, Reason(err)
}

// Named returns the text of a policy with a name before it, in quotes where they are needed.
func Named(name, text string) string {
	return strings.TrimSuffix(limit.PerSecond(1).Named(name).String(), "1/s") + text
}

// Reason removes the text that was passed to package limit from its error: it is only a part of
// the policy.
func Reason(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}

// Quota parses a rate per period, and optionally a time zone, split at spaces.
func Quota(words []string) (p limit.QuotaPolicy, err error) {
	count, period, ok := strings.Cut(words[0], "/")
	if !ok {
		return p, fmt.Errorf("%q is not a quota; write %s", words[0], QuotaForm)
	}
	if p.Max, err = number(count); err != nil {
		return p, err
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
		return p, fmt.Errorf("%q is not a period of the calendar; write hour, day, week or month, as in quota %s/day", period, count)
	}
	if len(words) == 2 {
		if p.Location, err = time.LoadLocation(words[1]); err != nil {
			return p, fmt.Errorf("%q is not a time zone; write a name such as Europe/Berlin, or none for UTC", words[1])
		}
	}
	return p, p.Validate()
}

// FormatQuota returns the text that [Quota] parses, after the word quota.
func FormatQuota(p limit.QuotaPolicy) string {
	text := fmt.Sprintf("quota %d/%v", p.Max, p.Period)
	if p.Location != nil && p.Location != time.UTC {
		text += " " + p.Location.String()
	}
	return text
}

// Window parses a rate such as 10/m or 5/1h30m. The policy may not be valid.
func Window(rate string) (w limit.WindowPolicy, err error) {
	count, window, ok := strings.Cut(rate, "/")
	if !ok {
		return w, fmt.Errorf("%q is not a rate; write a number, a slash and a time, such as 10/m", rate)
	}
	if w.Max, err = number(count); err != nil {
		return w, err
	}
	w.Window, err = Duration(window)
	return w, err
}

// FormatRate returns the text that [Window] parses.
func FormatRate(n int64, per time.Duration) string { return limit.Per(n, per).String() }

func number(digits string) (int64, error) {
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is not a number of requests; write digits, at least 1 and below 2^63, such as 10", digits)
	}
	return int64(n), nil
}

// Duration parses the time of a rate, such as m, 250ms or 1h30m.
func Duration(text string) (time.Duration, error) {
	p, err := limit.ParsePolicy("1/" + text)
	return p.Per, Reason(err)
}

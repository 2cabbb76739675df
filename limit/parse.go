package limit

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/penstock-go/penstock/errors"
)

// ParsePolicy parses a policy as people write it: the tokens that return in a time, optionally
// followed by a capacity other than that number, and preceded by a name.
//
//	10/s                    10 per second, at most 10 at once
//	10/s burst 20           10 per second, at most 20 at once
//	1/250ms                 one every 250 milliseconds
//	chat: 100/1h30m burst 5
//	"two words": 3/m
//
// The time has the syntax of [time.ParseDuration]; a unit without a number is one of it. A
// name of letters, digits and "-_./" needs no quotes; any other name is a Go string in double
// quotes. Spaces around the parts are ignored. Without an error, the policy is valid.
func ParsePolicy(text string) (Policy, error) {
	name, rest, err := cutName(text)
	if err != nil {
		return Policy{}, errorIn(text, err)
	}
	p, err := parseRate(strings.Fields(rest))
	if err != nil {
		return Policy{}, errorIn(text, err)
	}
	p.Name = name
	if err := p.Validate(); err != nil {
		return Policy{}, err
	}
	return p, nil
}

func errorIn(text string, err error) error {
	return fmt.Errorf("limit: policy %q: %w", text, err)
}

// cutName splits text at the colon after the name. Without a colon, the name is "".
func cutName(text string) (name, rest string, err error) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, `"`) {
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			return "", "", errors.New(`the name has no closing quote; write it as "two words": 10/s`)
		}
		rest, ok := strings.CutPrefix(strings.TrimSpace(text[len(quoted):]), ":")
		if !ok {
			return "", "", fmt.Errorf("the name %s must be followed by a colon, as in %[1]s: 10/s", quoted)
		}
		name, err = strconv.Unquote(quoted)
		return name, rest, err
	}
	name, rest, ok := strings.Cut(text, ":")
	name = strings.TrimSpace(name)
	switch {
	case !ok:
		return "", text, nil
	case name == "":
		return "", "", errors.New("there is no name before the colon; write chat: 10/s, or 10/s without a colon")
	case !isBare(name):
		return "", "", fmt.Errorf("the name must be quoted, as in %q: 10/s", name)
	}
	return name, rest, nil
}

// isBare reports whether a name needs no quotes.
func isBare(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_./", r)
	})
}

// parseRate parses "10/s" or "10/s burst 20", split at spaces.
func parseRate(words []string) (Policy, error) {
	if len(words) == 0 {
		return Policy{}, errors.New("there is no rate; write one such as 10/s")
	}
	refill, per, ok := strings.Cut(words[0], "/")
	if !ok {
		return Policy{}, fmt.Errorf("%q is not a rate; write tokens, a slash and a time, such as 10/s or 1/250ms", words[0])
	}
	var p Policy
	var err error
	if p.Refill, err = parseTokens(refill); err != nil {
		return Policy{}, err
	}
	if p.Refill == 0 {
		return Policy{}, errors.New("it must be at least 1 token; for slower rates, lengthen the time, as in 1/10s")
	}
	if p.Per, err = parsePer(per); err != nil {
		return Policy{}, err
	}
	p.Capacity = p.Refill
	switch {
	case len(words) == 1:
		return p, nil
	case words[1] != "burst" || len(words) != 3:
		return Policy{}, fmt.Errorf("the rate may only be followed by burst and a number, as in %s burst 20; it is followed by %q",
			words[0], strings.Join(words[1:], " "))
	}
	if p.Capacity, err = parseTokens(words[2]); err != nil {
		return Policy{}, err
	}
	if p.Capacity == 0 {
		return Policy{}, errors.New("the burst must be at least 1 token")
	}
	return p, nil
}

func parseTokens(digits string) (int64, error) {
	n, err := strconv.ParseUint(digits, 10, 63)
	if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%s tokens are too many", digits)
	}
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of tokens; write digits, such as 10", digits)
	}
	return int64(n), nil
}

func parsePer(text string) (time.Duration, error) {
	number := text
	if first, _ := utf8.DecodeRuneInString(text); unicode.IsLetter(first) {
		number = "1" + text
	}
	per, err := time.ParseDuration(number)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a time; write s, m, h or a duration such as 250ms or 1h30m", text)
	case per <= 0:
		return 0, fmt.Errorf("the time %q must be more than 0", text)
	}
	return per, nil
}

// String returns the policy in the syntax of [ParsePolicy], which returns an equal policy if
// this one is valid. A Per of 0 is written as the second that it means.
func (p Policy) String() string {
	text := fmt.Sprintf("%d/%s", p.Refill, perText(p.per()))
	if p.Capacity != p.Refill {
		text += fmt.Sprintf(" burst %d", p.Capacity)
	}
	switch {
	case p.Name == "":
		return text
	case isBare(p.Name):
		return p.Name + ": " + text
	}
	return strconv.Quote(p.Name) + ": " + text
}

// perText returns the shortest text of a duration: "m" rather than "1m0s".
func perText(d time.Duration) string {
	switch d {
	case time.Second:
		return "s"
	case time.Minute:
		return "m"
	case time.Hour:
		return "h"
	}
	text := d.String()
	for _, zeros := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zeros) {
			text = text[:len(text)-2]
		}
	}
	return text
}

package limitfile

import (
	"bytes"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/policytext"
	"github.com/penstock-go/penstock/limit"
)

// MaxBytes is the largest size of a file.
const MaxBytes = 1 << 20

// Policies are what a file says. They do not change.
type Policies struct {
	list   []*policy // in the order of the file
	byName map[string]*policy
}

// A policy is one line.
type policy struct {
	name string
	line int
	kind kind
	text string // in the syntax of the file, without the name

	bucket limit.Policy
	window limit.WindowPolicy
	quota  limit.QuotaPolicy
}

type kind uint8

const (
	bucket kind = iota
	slidingLog
	slidingCounter
	quota
)

// An InvalidLine is a mistake in a file.
type InvalidLine struct {
	Line int // from 1
	Err  error
}

// Error implements error.
func (e *InvalidLine) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns Err.
func (e *InvalidLine) Unwrap() error { return e.Err }

// maxInvalid bounds the mistakes that an error names.
const maxInvalid = 20

// Parse parses the content of a file. The error joins an [InvalidLine] for each of the first
// mistakes.
//
// The last line must end with a line break. Without one, the file may be incomplete, and
// "chat: 10/s burst 2" the beginning of "chat: 10/s burst 20".
func Parse(text []byte) (*Policies, error) {
	switch {
	case len(text) > MaxBytes:
		return nil, fmt.Errorf("the file has more than %d bytes", MaxBytes)
	case bytes.HasPrefix(text, []byte("\xef\xbb\xbf")):
		return nil, &InvalidLine{1, errors.New("the file begins with a byte order mark; save it as UTF-8 without one")}
	}
	p := &Policies{byName: map[string]*policy{}}
	var mistakes []error
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if err := p.add(number, line); err != nil {
			mistakes = append(mistakes, &InvalidLine{number, err})
		}
		if len(mistakes) == maxInvalid {
			break
		}
	}
	switch {
	case mistakes != nil:
		return nil, errors.Join(mistakes...)
	case len(p.list) == 0:
		return nil, errors.New("the file has no limit; write one per line, such as chat: 10/s burst 20")
	}
	return p, nil
}

// add parses a line, which includes its line break.
func (p *Policies) add(number int, line string) error {
	text := strings.TrimSpace(line)
	switch {
	case !utf8.ValidString(line):
		return errors.New("the line is not UTF-8")
	case !strings.HasSuffix(line, "\n"):
		return errors.New("the last line must end with a line break; without one, the file may be incomplete")
	case text == "" || text[0] == '#':
		return nil
	}
	one, err := parseLine(text)
	if err != nil {
		return err
	}
	if earlier := p.byName[one.name]; earlier != nil {
		return fmt.Errorf("%q has a policy in line %d; a limit has one line", one.name, earlier.line)
	}
	one.line = number
	p.list = append(p.list, one)
	p.byName[one.name] = one
	return nil
}

func parseLine(text string) (*policy, error) {
	name, rest, err := policytext.CutName(text)
	if err != nil {
		return nil, err
	}
	if name == "" {
		return nil, fmt.Errorf("%q has no name; write the name of the limiter's policy before it, as in chat: 10/s", text)
	}
	words := strings.Fields(rest)
	if len(words) == 0 {
		return nil, fmt.Errorf("%q has no policy; write one after the colon, as in chat: 10/s", name)
	}
	p, err := parseWords(words)
	p.name, p.bucket.Name, p.window.Name, p.quota.Name = name, name, name, name
	return &p, err
}

// parseWords parses a policy without a name.
func parseWords(words []string) (p policy, err error) {
	for _, word := range words {
		if word == "+" || word == "wait" || word == "cooldown" || word == "penalty" {
			return p, fmt.Errorf("%q does not belong in a file of limits: a line is the policy of one limiter that can change, "+
				"which is a token bucket, a sliding window or a quota", word)
		}
	}
	keyword, n := words[0], len(words)
	switch {
	case keyword == "sliding-log" && n == 2:
		p.kind = slidingLog
		if p.window, err = policytext.Window(words[1]); err == nil {
			err = p.window.ValidateLog()
		}
	case keyword == "sliding-counter" && n == 2:
		p.kind = slidingCounter
		if p.window, err = policytext.Window(words[1]); err == nil {
			err = p.window.Validate()
		}
	case keyword == "quota" && (n == 2 || n == 3):
		p.kind = quota
		p.quota, err = policytext.Quota(words[1:])
	case keyword == "sliding-log":
		err = formError(words, policytext.LogForm)
	case keyword == "sliding-counter":
		err = formError(words, policytext.CounterForm)
	case keyword == "quota":
		err = formError(words, policytext.QuotaForm)
	case !strings.Contains(keyword, "/"):
		err = fmt.Errorf("%q is not a rate, such as 10/s, and not sliding-log, sliding-counter or quota", keyword)
	default:
		p.bucket, err = limit.ParsePolicy(strings.Join(words, " "))
		err = policytext.Reason(err)
	}
	if err == nil {
		p.text = p.format()
	}
	return p, err
}

func formError(words []string, form string) error {
	return fmt.Errorf("%q must be written as %s", strings.Join(words, " "), form)
}

func (p *policy) format() string {
	switch p.kind {
	case slidingLog:
		return "sliding-log " + policytext.FormatRate(p.window.Max, p.window.Window)
	case slidingCounter:
		return "sliding-counter " + policytext.FormatRate(p.window.Max, p.window.Window)
	case quota:
		return policytext.FormatQuota(p.quota)
	default:
		return p.bucket.String()
	}
}

// numbers returns the most tokens at once, and how many return in a time.
func (p *policy) numbers() (capacity, refill int64, per time.Duration) {
	switch p.kind {
	case slidingLog, slidingCounter:
		return p.window.Max, p.window.Max, p.window.Window
	case quota:
		return p.quota.Max, p.quota.Max, p.quota.Description().Window
	default:
		return p.bucket.Capacity, p.bucket.Refill, p.bucket.Per
	}
}

// Len returns the number of limits.
func (p *Policies) Len() int { return len(p.list) }

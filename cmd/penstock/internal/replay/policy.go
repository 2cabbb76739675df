package replay

import (
	"fmt"
	"strings"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/policytext"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// A Policy is what a replay simulates: a rule, or several that must all admit a request. The zero
// Policy is not valid.
type Policy struct {
	name    string
	rules   []rule
	maxWait time.Duration // how long a request may wait for tokens, if all rules are token buckets
}

// TokenBucket returns the policy of a token bucket.
func TokenBucket(p limit.Policy) Policy {
	name := p.Name
	p.Name = ""
	return Policy{name: name, rules: []rule{tokenBucket{p}}}
}

// String returns the policy in the syntax of [ParsePolicy].
func (p Policy) String() string {
	texts := make([]string, len(p.rules))
	for i, r := range p.rules {
		texts[i] = r.String()
	}
	text := strings.Join(texts, " + ")
	if p.name != "" {
		text = policytext.Named(p.name, text)
	}
	if p.maxWait > 0 {
		text += " wait " + durationText(p.maxWait)
	}
	return text
}

// bucket returns the token bucket, if the policy is a single one.
func (p Policy) bucket() (b tokenBucket, ok bool) {
	if len(p.rules) == 1 {
		b, ok = p.rules[0].(tokenBucket)
	}
	return b, ok
}

// validate returns an error if the library does not combine such rules.
func (p Policy) validate() error {
	if p.maxWait > adapter.MaxReserve {
		return fmt.Errorf("wait is %s; it must be at most %s", durationText(p.maxWait), durationText(adapter.MaxReserve))
	}
	for _, r := range p.rules {
		if _, ok := r.(cooldown); ok && len(p.rules) > 1 {
			return errors.New("a cooldown cannot be combined with other limits, because it cannot return calls that they reject; write it as a policy of its own")
		}
		if _, ok := r.(tokenBucket); !ok && p.maxWait > 0 {
			return fmt.Errorf("%q has no tokens to wait for; only token buckets, such as 10/s, may be followed by wait", r)
		}
	}
	return nil
}

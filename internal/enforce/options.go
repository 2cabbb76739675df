package enforce

import (
	"fmt"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/observe"
)

// Options are those of a limit that do not depend on what is limited. Packages ratelimit and
// httplimit document them.
type Options struct {
	Name          string
	MaxWait       time.Duration
	Jitter        time.Duration
	DryRun        bool
	FailurePolicy limit.FailurePolicy
	Fallback      limit.Limiter
	OnError       func(error)
	Observe       func(observe.Observation)
	Timeout       time.Duration // if 0, DefaultTimeout

	Keeps   bool // a Request may have a Keep
	Refunds bool // a Request may have a Receipt
}

// DefaultTimeout bounds a call of a limiter or a semaphore without a Timeout.
const DefaultTimeout = 50 * time.Millisecond

// validate returns an error if an option is invalid. The limiter is nil for rules.
func (o *Options) validate(limiter limit.Limiter) error {
	switch {
	case o.MaxWait < 0 || o.MaxWait > limit.MaxReserve:
		return fmt.Errorf("MaxWait is %v; it must be from 0 to %v", o.MaxWait, limit.MaxReserve)
	case o.Keeps && o.MaxWait > 0:
		return errors.New("Keep and MaxWait are set; set one of them")
	case o.Jitter < 0:
		return fmt.Errorf("Jitter is %v; it must not be negative", o.Jitter)
	}
	if err := ValidateFailures(o.Timeout, o.FailurePolicy); err != nil {
		return err
	}
	for _, need := range []struct {
		option string
		set    bool
		take   limit.Take
	}{
		{"MaxWait", o.MaxWait > 0, limit.Take{MaxWait: o.MaxWait}},
		{"Keep", o.Keeps, limit.Take{Keep: 1}},
		{"Refund", o.Refunds, limit.Take{Mode: limit.Undoing}},
	} {
		for _, l := range []limit.Limiter{limiter, o.Fallback} {
			if !need.set || l == nil {
				continue
			}
			if err := limit.Check(l, need.take); err != nil {
				return fmt.Errorf("%s is set, which a %T cannot do: %w", need.option, l, err)
			}
		}
	}
	return nil
}

// ValidateFailures returns an error if one of the options about failures is invalid.
func ValidateFailures(timeout time.Duration, policy limit.FailurePolicy) error {
	switch {
	case timeout < 0:
		return fmt.Errorf("Timeout is %v; it must not be negative", timeout)
	case policy > limit.FailOpen:
		return fmt.Errorf("FailurePolicy is %d; it must be limit.FailClosed or limit.FailOpen", policy)
	}
	return nil
}

package enforce

import (
	"fmt"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
	"github.com/penstock-go/penstock/limit/observe"
)

// Options are those of a limit that do not depend on what is limited. Packages ratelimit and
// httplimit document them.
type Options struct {
	Package  string // of the middleware, for panics
	Name     string
	MaxWait  time.Duration
	Jitter   time.Duration
	DryRun   bool
	FailOpen bool
	Fallback limit.Limiter
	Observe  func(observe.Observation)
	Timeout  time.Duration // if 0, DefaultTimeout

	Keeps   bool // a Request may have a Keep
	Refunds bool // a Request may have a Receipt
}

// DefaultTimeout bounds a call of a limiter or a semaphore without a Timeout.
const DefaultTimeout = 50 * time.Millisecond

// mustBeValid panics if an option is invalid. The limiter is nil for rules.
func (o *Options) mustBeValid(limiter limit.Limiter) {
	CheckTimeout(o.Package, o.Timeout)
	switch {
	case o.MaxWait < 0 || o.MaxWait > adapter.MaxReserve:
		o.panicf("MaxWait is %v; it must be from 0 to %v", o.MaxWait, adapter.MaxReserve)
	case o.Keeps && o.MaxWait > 0:
		o.panicf("Keep and MaxWait are set; set one of them")
	case o.Jitter < 0:
		o.panicf("Jitter is %v; it must not be negative", o.Jitter)
	}
	for _, need := range []struct {
		option string
		set    bool
		take   limit.Take
	}{
		{"MaxWait", o.MaxWait > 0, limit.Take{MaxWait: o.MaxWait}},
		{"Keep", o.Keeps, limit.Take{Keep: 1}},
		{"Refund", o.Refunds, limit.Take{Mode: mode.Undoing}},
	} {
		for _, l := range []limit.Limiter{limiter, o.Fallback} {
			if !need.set || l == nil {
				continue
			}
			if err := adapter.Check(l, need.take); err != nil {
				o.panicf("%s is set, which a %T cannot do: %v", need.option, l, err)
			}
		}
	}
}

func (o *Options) panicf(format string, args ...any) {
	panic(o.Package + ": " + fmt.Sprintf(format, args...))
}

// CheckTimeout panics, with the name of a package, if the option Timeout is invalid.
func CheckTimeout(pkg string, timeout time.Duration) {
	if timeout < 0 {
		panic(fmt.Sprintf("%s: Timeout is %v; it must not be negative", pkg, timeout))
	}
}

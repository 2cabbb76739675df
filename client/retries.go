//go:build !js

package client

import (
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/random"
	"github.com/penstock-go/penstock/internal/rules"
)

// closeCode returns the code with which a connection has ended, or 1006 if there was none.
func closeCode(err error) int {
	if e, ok := errors.AsType[*closeError](err); ok {
		return e.code
	}
	return 1006
}

// retries decides when the client connects again.
type retries struct {
	attempt  int
	expired  bool           // the server has rejected the last token
	reaction rules.Reaction // to the end of the last connection
}

func (r *retries) opened() { r.expired = false }

func (r *retries) closed(cn *conn) {
	if time.Since(cn.usable) >= rules.HealthyAfter {
		r.attempt, r.reaction = 0, rules.Reconnect
	}
}

// move returns what is added to the delay of a server that asks for another connection. A move counts as an attempt: a
// server that asks for it on every connection would be followed without a pause.
func (r *retries) move(cn *conn, opts *Options) (delay time.Duration) {
	r.closed(cn)
	if r.attempt > 0 {
		delay = rules.CloseRule{}.Delay(0, r.attempt, opts.Backoff.Min, opts.Backoff.Max, random.Float64)
	}
	r.attempt++
	return delay
}

// next returns the delay before the next attempt. again is false if connecting again does not help.
func (r *retries) next(err error, opts *Options) (delay time.Duration, again bool) {
	code := closeCode(err)
	rule := rules.CloseRuleOf(code)
	last := r.reaction
	r.reaction = rule.Reaction
	switch rule.Reaction {
	case rules.Stop:
		return 0, false
	case rules.CorrectOnce, rules.Authenticate:
		if last == rule.Reaction {
			return 0, false
		}
		r.expired = rule.Reaction == rules.Authenticate
	}
	if opts.StopOn != nil && opts.StopOn(code) {
		return 0, false
	}
	var demanded time.Duration
	if e, ok := errors.AsType[*errors.Error](err); ok {
		demanded = e.RetryAfter
	}
	if demanded == errors.Never {
		if rules.IsRejectionCode(code) {
			return 0, false
		}
		demanded = 0
	}
	delay = rule.Delay(demanded, r.attempt, opts.Backoff.Min, opts.Backoff.Max, random.Float64)
	r.attempt++
	return delay, true
}

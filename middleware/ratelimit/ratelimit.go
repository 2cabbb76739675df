package ratelimit

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// Options configure a limit. The zero value is a working configuration.
type Options struct {
	// Name is what Observe, and the response headers of [Handshake], call the limit.
	Name string

	// Key names the bucket that pays for a message. If nil, it is
	// [KeyPerUserOrIPPerType].
	Key func(router.IngressContext) Key

	// Cost is what a message costs, in tokens. If nil, it is 1. A message that
	// costs 0 is not limited. A negative cost is a bug of the server's: the
	// message is refused with INVALID_ARGUMENT, and the bug reported to the
	// router's OnError.
	Cost func(router.IngressContext) int64

	// ChargeOnly reports messages that pay but are never refused: leaving, say, or
	// acknowledging. What their bucket does not hold is not owed. If nil, there are
	// none.
	ChargeOnly func(router.IngressContext) bool

	// MaxWait lets a message wait so long for tokens that its bucket does not hold yet,
	// in the order in which messages came, rather than be refused. What its connection
	// sends meanwhile waits behind it, and a connection that ends meanwhile has paid. The
	// limiter, and the Fallback, must be a [Reserver]. If 0, nothing waits; at most an hour.
	// A call whose time is up meanwhile is answered so and not handled, but has paid: let
	// MaxWait be much shorter than the router's Timeouts.Call.
	MaxWait time.Duration

	// OnDryRun makes the limit a dry run: it decides, and charges, and tells of every
	// message that it would refuse, but refuses none. Try a new policy so, before
	// you enforce it.
	OnDryRun func(router.IngressContext, *router.LimitExceeded)

	// OnUnavailable is what happens to a message if the limiter cannot decide.
	OnUnavailable Unavailable

	// Fallback decides in place of a limiter that cannot. If it cannot either,
	// OnUnavailable says what happens.
	Fallback Limiter

	// OnError is called with every error of the limiter, before OnUnavailable and
	// Fallback come to it.
	OnError func(error)

	// Observe is called with what became of every message that costs something. It is
	// called by many goroutines at once, must return at once and must not panic. Package
	// middleware/metrics has one.
	Observe func(Observation)

	// Timeout bounds a call of the limiter. If 0, it is 50 ms. Limiters that
	// decide in this process need no bound.
	Timeout time.Duration
}

// Unavailable is what happens to a message if the limiter cannot decide.
type Unavailable uint8

// What may happen. Deny is the default.
const (
	Deny  Unavailable = iota // the message is refused with UNAVAILABLE
	Admit                    // the message enters, unlimited
)

const defaultTimeout = 50 * time.Millisecond

// New returns the ingress function that lets a message in if its bucket can pay
// for it. A message that is over the limit is refused with a
// [*router.LimitExceeded]. It panics if limiter is nil or an option makes no
// sense.
func New(limiter Limiter, opts *Options) router.IngressFunc {
	l := newLimit(limiter, opts)
	return func(ctx context.Context, in router.IngressContext) error {
		_, err := l.decide(ctx, in)
		return err
	}
}

type limit struct {
	Options

	limiter Limiter
}

func newLimit(limiter Limiter, opts *Options) *limit {
	if limiter == nil {
		panic("ratelimit: New needs a limiter")
	}
	l := &limit{limiter: limiter}
	if opts != nil {
		l.Options = *opts
	}
	checkCalls(l.Timeout, l.OnUnavailable)
	l.checkMaxWait()
	if l.Timeout == 0 {
		l.Timeout = defaultTimeout
	}
	if l.Key == nil {
		l.Key = KeyPerUserOrIPPerType
	}
	l.limiter = guarded(limiter, l.Timeout, l.breakerChanged)
	if l.Fallback != nil {
		l.Fallback = guarded(l.Fallback, l.Timeout, func(bool) {})
	}
	return l
}

func checkCalls(timeout time.Duration, unavailable Unavailable) {
	if timeout < 0 {
		panic(fmt.Sprintf("ratelimit: Timeout is %v; it must not be negative", timeout))
	}
	if unavailable > Admit {
		panic(fmt.Sprintf("ratelimit: OnUnavailable is %d; it must be Deny or Admit", unavailable))
	}
}

func (l *limit) checkMaxWait() {
	if l.MaxWait < 0 || l.MaxWait > maxReserve {
		panic(fmt.Sprintf("ratelimit: MaxWait is %v; it must be from 0 to %v", l.MaxWait, maxReserve))
	}
	for _, limiter := range []Limiter{l.limiter, l.Fallback} {
		if _, ok := limiter.(Reserver); !ok && limiter != nil && l.MaxWait > 0 {
			panic(fmt.Sprintf("ratelimit: MaxWait needs a Reserver, such as a limiter in memory or on Redis; a %T is none", limiter))
		}
	}
}

// decide returns nil if a message may enter. The Decision is the zero one if there was
// none.
func (l *limit) decide(ctx context.Context, in router.IngressContext) (Decision, error) {
	cost := l.cost(in)
	switch {
	case cost == 0:
		return Decision{}, nil
	case cost < 0:
		return Decision{}, &errors.Error{
			Code:    errors.InvalidArgument,
			Message: "the message has no price",
			Err:     fmt.Errorf("ratelimit: Cost returned %d for %q; it must not be negative", cost, in.Type),
		}
	}
	chargeOnly := l.ChargeOnly != nil && l.ChargeOnly(in)
	maxWait := l.MaxWait
	if chargeOnly {
		maxWait = 0
	}
	d, err := l.observed(ctx, l.Key(in), cost, maxWait, chargeOnly)
	switch {
	case ctx.Err() != nil:
		return Decision{}, ctx.Err()
	case err != nil && (l.OnUnavailable == Admit || l.OnDryRun != nil):
		return Decision{}, nil
	case err != nil:
		return Decision{}, &errors.Error{Code: errors.Unavailable, Message: "limits cannot be checked", Err: err}
	case !d.Allowed && !chargeOnly:
		return d, l.refusal(in, cost, d)
	case d.Allowed && l.OnDryRun == nil:
		return d, wait(ctx, d.RetryAfter)
	}
	return d, nil
}

// wait waits for tokens that were reserved.
func wait(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *limit) cost(in router.IngressContext) int64 {
	if l.Cost == nil {
		return 1
	}
	return l.Cost(in)
}

// refusal makes a denial an error, unless it is a dry run.
func (l *limit) refusal(in router.IngressContext, cost int64, d Decision) error {
	exceeded := &router.LimitExceeded{Kind: router.LimitRate, Observed: cost, Limit: d.Limit, RetryAfter: d.RetryAfter}
	if l.OnDryRun != nil {
		l.OnDryRun(in, exceeded)
		return nil
	}
	return exceeded
}

// consume asks the limiter, and the fallback if the limiter cannot decide. A
// denial is a decision: it is never asked about twice. How it went is noted in o, unless
// that is nil.
func (l *limit) consume(ctx context.Context, key Key, cost int64, maxWait time.Duration, o *Observation) (Decision, error) {
	d, err := o.clocked(ctx, l.limiter, key, cost, maxWait)
	if err == nil || ctx.Err() != nil {
		return d, err
	}
	if l.OnError != nil {
		l.OnError(err)
	}
	if l.Fallback == nil {
		return d, err
	}
	if o != nil {
		o.Fallback = true
	}
	return ask(ctx, l.Fallback, key, cost, maxWait)
}

func ask(ctx context.Context, l Limiter, key Key, cost int64, maxWait time.Duration) (Decision, error) {
	if maxWait == 0 {
		return l.Consume(ctx, key, cost)
	}
	return l.(Reserver).Reserve(ctx, key, cost, maxWait)
}

package ratelimit

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/internal/enforce"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/observe"
	"github.com/penstock-go/penstock/router"
)

// ConcurrencyOptions configure [Concurrency] and [Connections]. The zero value is a working
// configuration.
type ConcurrencyOptions struct {
	// Name identifies the limit in Observe and, as details.policy, for clients.
	Name string

	// Key returns the key whose permits a message or a connection uses. If nil, it is
	// [KeyPerUserOrIPPerType]. For a connection, Type and Size are zero, and ReceivedAt is the
	// time at which it was opened.
	Key func(router.IngressContext) limit.Key

	// FailOpen admits a message or a connection without a permit if the semaphore cannot decide. If
	// false, it is rejected, a message with UNAVAILABLE.
	FailOpen bool

	// Observe is as in [Options].
	Observe func(observe.Observation)

	// Timeout bounds a call of the semaphore. If 0, it is 50 ms. After five failures in a row,
	// calls are paused and fail immediately, except one every 250 to 375 ms.
	Timeout time.Duration
}

// Concurrency returns a middleware that handles a message only while its key has a free permit,
// and releases the permit when the handler has returned or panicked. A message without a
// permit is rejected with a [*router.LimitExceeded] of the kind in_flight. The middleware runs
// after the payload was decoded, because only then is it certain that the message will be
// handled. It panics if semaphore is nil or an option is invalid.
//
//	r.Use(ratelimit.Concurrency(memory.NewSemaphore(4), nil))
func Concurrency(semaphore limit.Semaphore, opts *ConcurrencyOptions) router.Middleware {
	return newConcurrency("Concurrency", router.LimitConcurrency, semaphore, opts).wrap
}

// A concurrency is a semaphore with its options.
type concurrency struct {
	ConcurrencyOptions

	kind      router.LimitKind
	semaphore limit.Semaphore
	breaker   enforce.Breaker
}

// newConcurrency panics with the name of its caller if semaphore is nil or an option is invalid.
func newConcurrency(caller string, kind router.LimitKind, semaphore limit.Semaphore, opts *ConcurrencyOptions) *concurrency {
	if semaphore == nil {
		panic(fmt.Sprintf("ratelimit: %s needs a semaphore", caller))
	}
	c := &concurrency{kind: kind, semaphore: semaphore}
	if opts != nil {
		c.ConcurrencyOptions = *opts
	}
	enforce.CheckTimeout("ratelimit", c.Timeout)
	if c.Key == nil {
		c.Key = KeyPerUserOrIPPerType
	}
	if c.Timeout == 0 {
		c.Timeout = enforce.DefaultTimeout
	}
	c.breaker = enforce.Breaker{Timeout: c.Timeout, Changed: c.breakerChanged}
	return c
}

func (c *concurrency) wrap(next router.Handler) router.Handler {
	return func(ctx *router.Context) error {
		permit, err := c.acquire(ctx, ctx.Ingress())
		switch {
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil && c.FailOpen:
			return next(ctx)
		case err != nil:
			return enforce.Unavailable(err)
		case permit.Release == nil:
			return c.exceeded(permit)
		}
		defer permit.Release()
		return next(ctx)
	}
}

// acquire takes a permit of the key of in. If none is free, Permit.Release is nil.
func (c *concurrency) acquire(ctx context.Context, in router.IngressContext) (permit limit.Permit, err error) {
	o := observe.Observation{Limit: c.Name, Kind: observe.Kind(c.kind)}
	start := time.Now()
	err = c.breaker.Call(ctx, func(bounded context.Context) (err error) {
		permit, err = c.semaphore.Acquire(bounded, c.Key(in))
		return err
	})
	if err != nil && ctx.Err() == nil && (c.FailOpen || c.kind == router.LimitConnections) { // the close frame of a connection says nothing of it
		in.Report(ctx, couldNotDecide(c.Name, err))
	}
	if c.Observe != nil {
		enforce.Record(&o, start, err)
		if o.Outcome = observe.Canceled; err == nil || ctx.Err() == nil {
			o.Outcome = c.outcome(permit, err)
		}
		c.Observe(o)
	}
	return permit, err
}

func (c *concurrency) exceeded(permit limit.Permit) *router.LimitExceeded {
	return &router.LimitExceeded{Kind: c.kind, Observed: permit.InUse + 1, Limit: permit.Limit, Policy: c.Name}
}

func (c *concurrency) breakerChanged(open bool) {
	if c.Observe != nil {
		c.Observe(observe.Observation{Limit: c.Name, Kind: observe.Kind(c.kind), Outcome: enforce.BreakerOutcome(open)})
	}
}

func (c *concurrency) outcome(permit limit.Permit, err error) observe.Outcome {
	switch {
	case err != nil && c.FailOpen:
		return observe.FailedOpen
	case err != nil:
		return observe.Failed
	case permit.Release == nil:
		return observe.Rejected
	default:
		return observe.Admitted
	}
}

package ratelimit

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// Slots are places for messages that are being handled, so many for each key.
type Slots interface {
	// Acquire takes a place, if one is free.
	//
	//   - No more places of a key are taken at the same time than there are.
	//   - A place comes back when Release is called, or when its process dies.
	//
	// An error means that it is unknown whether there is one; the Slot is then the zero
	// one.
	Acquire(ctx context.Context, key Key) (Slot, error)
}

// A Slot is what Acquire came to.
type Slot struct {
	Release func() // nil if no place was free; may be called again, which does nothing
	Taken   int64  // places of the key, this one included
	Limit   int64  // places that a key has
}

// InFlightOptions configure [InFlight]. The zero value is a working configuration.
type InFlightOptions struct {
	// Name is what Observe calls the limit.
	Name string

	// Key names whose places a message takes. If nil, it is [KeyPerUserOrIPPerType].
	Key func(router.IngressContext) Key

	// OnUnavailable is what happens to a message if the slots cannot tell.
	OnUnavailable Unavailable

	// OnError is called with every error of the slots.
	OnError func(error)

	// Observe is as in [Options].
	Observe func(Observation)

	// Timeout bounds a call of the slots. If 0, it is 50 ms.
	Timeout time.Duration
}

// InFlight returns a middleware that handles a message only while a place is free, and
// gives the place back however its handler ends. A message without one is refused with a
// [*router.LimitExceeded] of the kind in_flight. It comes after the payload was decoded,
// because only then is it certain that the message will be handled. It panics if slots is
// nil or an option makes no sense.
//
//	r.Use(ratelimit.InFlight(memory.NewSlots(4), nil))
func InFlight(slots Slots, opts *InFlightOptions) router.Middleware {
	if slots == nil {
		panic("ratelimit: InFlight needs slots")
	}
	f := inFlight{slots: slots}
	if opts != nil {
		f.InFlightOptions = *opts
	}
	checkCalls(f.Timeout, f.OnUnavailable)
	if f.Key == nil {
		f.Key = KeyPerUserOrIPPerType
	}
	if f.Timeout == 0 {
		f.Timeout = defaultTimeout
	}
	return f.around
}

type inFlight struct {
	InFlightOptions

	slots Slots
}

func (f *inFlight) around(next router.Handler) router.Handler {
	return func(ctx *router.Context) error {
		slot, err := f.acquire(ctx)
		switch {
		case err != nil && f.OnUnavailable == Admit:
			return next(ctx)
		case err != nil:
			return &errors.Error{Code: errors.Unavailable, Message: "limits cannot be checked", Err: err}
		case slot.Release == nil:
			return &router.LimitExceeded{Kind: router.LimitInFlight, Observed: slot.Taken + 1, Limit: slot.Limit}
		}
		defer slot.Release()
		return next(ctx)
	}
}

func (f *inFlight) acquire(ctx *router.Context) (Slot, error) {
	var start time.Time
	if f.Observe != nil {
		start = time.Now()
	}
	bounded, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	slot, err := f.slots.Acquire(bounded, f.Key(ctx.Ingress()))
	if err != nil && f.OnError != nil {
		f.OnError(err)
	}
	if f.Observe != nil {
		f.Observe(Observation{
			Limit: f.Name, Kind: router.LimitInFlight, Outcome: f.outcome(slot, err),
			Asked: true, Took: time.Since(start), Err: err,
		})
	}
	return slot, err
}

func (f *inFlight) outcome(slot Slot, err error) Outcome {
	switch {
	case err != nil && f.OnUnavailable == Admit:
		return UndecidedEnters
	case err != nil:
		return Undecided
	case slot.Release == nil:
		return Refused
	default:
		return Admitted
	}
}

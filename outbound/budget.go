package outbound

import (
	"context"
	"fmt"
	"time"
)

// A Budget stores what is known about an API's rate limits and decides when a request may be
// sent. Package outboundtest checks the rules below.
type Budget interface {
	// TryAcquire acquires one request to a route, or returns how long to wait before the next
	// attempt. It does not wait for the limit itself.
	//
	//   - While the limit of a route is unknown, one request is in flight at a time.
	//   - A window permits no more requests than its limit. Requests that were in flight when
	//     the previous window ended are included.
	//   - A request without a response counts for one lease and no longer.
	//   - A call that returns a wait acquires nothing.
	//   - During a global pause, every call returns a wait.
	//
	// After an error it is unknown whether a request was acquired. TryAcquire is safe for
	// concurrent use.
	TryAcquire(ctx context.Context, route string) (Grant, error)

	// TryAcquireShared acquires one request to a limit that a request counts against in addition
	// to the limit of its route, such as one that several routes share. It does what TryAcquire
	// does for a route of that name, except that the request does not count against the global
	// limit again. Update takes the name in place of a route.
	TryAcquireShared(ctx context.Context, name string) (Grant, error)

	// Update records the rate limit status in the response to an acquired request. Repeating a
	// call has no further effect. It is safe for concurrent use.
	//
	//   - A window does not end before the latest end that a response to its requests reports.
	//   - Responses to requests of an earlier window never shorten the current window, and never
	//     add requests to it.
	//   - A rejection closes its route, or all routes, for the duration that it states.
	Update(ctx context.Context, route string, grant Grant, status Status) error
}

// A Grant is the result of [Budget.TryAcquire]. If Wait is 0, one request may be sent.
// Otherwise nothing was acquired, and the caller tries again after Wait; that attempt may
// return another wait.
type Grant struct {
	Wait time.Duration
	ID   string // identifies the request to the Budget; the caller must not change it
}

// Unlimited is the [Status.Limit] of a route without a limit.
const Unlimited = -1

// A Status is what a response says about rate limits. The zero Status says nothing.
type Status struct {
	Limit      int64         // requests per window of the route, or [Unlimited]; 0 if unknown
	Remaining  int64         // requests left in the window when the response was made
	ResetAfter time.Duration // from the response to the end of the window; 0 if unknown
	RetryAfter time.Duration // how long to send nothing; 0 if the request was not rejected
	Global     bool          // RetryAfter applies to all routes
	Unsent     bool          // the request was never sent and no longer counts
}

// BudgetOptions configure a [Budget]. The zero value is a working configuration.
type BudgetOptions struct {
	// Lease is how long a request without a response counts as in flight. It bounds how long a
	// process that dies delays the others. It must be longer than the slowest response takes;
	// otherwise a window may receive more requests than its limit. If 0, it is 5 seconds.
	Lease time.Duration

	// GlobalLimit is how many requests may reach the API in any GlobalPer, on all routes
	// together, if the response headers do not report such a limit. Discord's is 50 per second.
	// If 0, there is no such limit. Global rejections are always obeyed.
	GlobalLimit int64

	// GlobalPer is the period of GlobalLimit. If 0, it is one second.
	GlobalPer time.Duration
}

const defaultLease = 5 * time.Second

// WithDefaults returns a copy of the options in which defaults replace zero values. A nil
// receiver is the zero value. It panics if an option is invalid. Implementations of [Budget]
// call it.
func (o *BudgetOptions) WithDefaults() BudgetOptions {
	var options BudgetOptions
	if o != nil {
		options = *o
	}
	switch {
	case options.Lease < 0 || options.Lease > 0 && options.Lease < time.Millisecond:
		panic(fmt.Sprintf("outbound: Lease is %v; it must be at least 1ms", options.Lease))
	case options.GlobalLimit < 0:
		panic(fmt.Sprintf("outbound: GlobalLimit is %d; it must not be negative", options.GlobalLimit))
	case options.GlobalPer < 0 || options.GlobalPer > 0 && options.GlobalPer < time.Millisecond:
		panic(fmt.Sprintf("outbound: GlobalPer is %v; it must be at least 1ms", options.GlobalPer))
	}
	if options.Lease == 0 {
		options.Lease = defaultLease
	}
	if options.GlobalPer == 0 {
		options.GlobalPer = time.Second
	}
	return options
}

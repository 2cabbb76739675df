package outbound

import (
	"context"
	"fmt"
	"time"
)

// Windows keep what is known of an API's limits, and who may send now. Package
// outboundtest checks the rules below.
type Windows interface {
	// Claim takes a request of a route's window, or says how long to wait before
	// claiming again.
	//
	//   - Of a route whose limit is unknown, one request is under way at a time.
	//   - No more requests are claimed in a window than its limit, those included that
	//     were under way when the one before it ended.
	//   - A claim of which nothing is heard counts for a lease, and no longer.
	//   - A claim that must wait takes nothing.
	//   - While all routes are to wait, every claim waits.
	//
	// An error means that it is unknown whether a request was claimed. It is safe for
	// concurrent use.
	Claim(ctx context.Context, route string) (Claim, error)

	// Update says what the response to a claimed request told. It may be called again
	// with the same.
	//
	//   - A window never ends before any response to its requests says so.
	//   - Responses to requests of an earlier window never shorten this one, or give it
	//     more requests.
	//   - A refusal closes its route, or all of them, for as long as it says.
	Update(ctx context.Context, route string, claim Claim, told Status) error
}

// A Claim is a request that may be sent if Wait is 0. Otherwise claim again after it:
// that may have to wait, too.
type Claim struct {
	Wait   time.Duration
	Ticket string // what the Windows know it by
}

// Unlimited is the Limit of a route that has none.
const Unlimited = -1

// A Status is what a response told of limits. The zero Status tells nothing.
type Status struct {
	Limit      int64         // requests in a window of the route, or [Unlimited]; 0 if not told
	Remaining  int64         // of them, when the response was made
	ResetAfter time.Duration // until the window ends, from when the response was made; 0 if not told
	RetryAfter time.Duration // how long nothing is to be sent; 0 if the response is no refusal
	Global     bool          // the refusal is about all routes
	Unsent     bool          // there was no request: the claim is given back
}

// WindowsOptions configure Windows. The zero value is a working configuration.
type WindowsOptions struct {
	// Lease is for how long a request of which nothing is heard counts as under way: how
	// long a process that dies can hold up the others. It must be longer than a request
	// takes to be answered, or windows may get too many. If 0, it is 5 seconds.
	Lease time.Duration

	// GlobalLimit is how many requests may arrive at the API in any GlobalPer, on all
	// routes together, which its headers do not tell: 50 in a second at Discord. If 0,
	// there is none. A refusal that says that it is global is obeyed in any case.
	GlobalLimit int64

	// GlobalPer is the time of GlobalLimit. If 0, it is one second.
	GlobalPer time.Duration
}

const defaultLease = 5 * time.Second

// Filled returns the options with defaults in place of zeros. It is for those who write
// Windows. It panics if an option makes no sense; nil is the zero value.
func (o *WindowsOptions) Filled() WindowsOptions {
	var filled WindowsOptions
	if o != nil {
		filled = *o
	}
	switch {
	case filled.Lease < 0 || filled.Lease > 0 && filled.Lease < time.Millisecond:
		panic(fmt.Sprintf("outbound: Lease is %v; it must be at least 1ms", filled.Lease))
	case filled.GlobalLimit < 0:
		panic(fmt.Sprintf("outbound: GlobalLimit is %d; it must not be negative", filled.GlobalLimit))
	case filled.GlobalPer < 0 || filled.GlobalPer > 0 && filled.GlobalPer < time.Millisecond:
		panic(fmt.Sprintf("outbound: GlobalPer is %v; it must be at least 1ms", filled.GlobalPer))
	}
	if filled.Lease == 0 {
		filled.Lease = defaultLease
	}
	if filled.GlobalPer == 0 {
		filled.GlobalPer = time.Second
	}
	return filled
}

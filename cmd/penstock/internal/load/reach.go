package load

import (
	"context"
	"time"
)

// A Reach says which publications the connections have received. A publication is expected once on
// each connection that was open at the start, including those that were lost later.
type Reach struct {
	Rule       string // "marks" or "positions": how publications were recognized
	Expected   int64
	Received   int64       // without repetitions
	Duplicates int64       // that a connection has received again
	Latency    Percentiles // from the time at which the message was due; only with marks
	Unknown    string      // why nothing can be expected; empty if it can
}

// A reach recognizes publications. Its methods may be called concurrently.
type reach interface {
	// begin is called at the end of the warm-up, or without one before the first message is sent.
	begin(ctx context.Context, conns []*conn)

	// accept is called when the server has answered a message, and with false if that was not true.
	accept(m message, accepted bool)

	// receive is called for a message of the server that is no answer.
	receive(c *conn, e *envelope, text []byte, now time.Time)

	// end waits until all publications have arrived that are expected, or ctx is done.
	end(ctx context.Context, conns []*conn) *Reach
}

// newReach returns the rule by which publications are recognized: their marks, or else their
// positions.
func newReach(r *run) reach {
	switch {
	case Marked(r.Payload):
		return newMarks(r)
	case r.Topic != "":
		return &positions{run: r}
	default:
		return nil
	}
}

// needsPositions reports whether connections ask for positions when they subscribe.
func (r *run) needsPositions() bool { _, ok := r.reach.(*positions); return ok }

// pollInterval is the time between two checks of whether everything has arrived.
const pollInterval = 20 * time.Millisecond

// waitFor returns when done returns true, or ctx is done.
func waitFor(ctx context.Context, done func() bool) {
	for !done() && sleepUntil(ctx, time.Now().Add(pollInterval)) {
		continue
	}
}

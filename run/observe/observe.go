// Package observe has the events of package run that metrics count. Package middleware/metrics exports them to
// Prometheus.
package observe

import "time"

// An Event is something that metrics count.
type Event struct {
	Kind     Kind
	State    string        // of Ended: a run.State
	Count    int64         // of Batch: items; of TokensTaken and TokensUsed: tokens
	Bytes    int64         // of Batch, of the encoded items
	Duration time.Duration // of Ended and FirstItem since the start, of Stopped since the request
}

// A Kind is what has happened on this node.
type Kind uint8

// The kinds of events.
const (
	Started     Kind = iota + 1 // a run has begun
	Repeated                    // a start has the request ID of a run that exists
	Refused                     // a start was refused: another run is active, or a limit was exceeded
	Resumed                     // this node goes on with a run whose node has died
	Ended                       // a run that was owned here has ended
	Left                        // a run is no longer owned here, for whatever reason
	Abandoned                   // this node has ended a run whose node has died
	FirstItem                   // the first item of a run is stored
	Batch                       // items are stored at once
	Attached                    // a reader has attached
	Detached                    // and has left
	Stopped                     // a request to stop is answered
	Fenced                      // another node has ended a run that was owned here
	LeaseLost                   // a producer was canceled, because its lease may have expired
	TokensTaken                 // from a budget
	TokensUsed                  // of those that were taken, when the run is settled
)

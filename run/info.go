package run

import (
	"time"

	"github.com/penstock-go/penstock/internal/runmessages"
	"github.com/penstock-go/penstock/internal/runs"
)

// A State is where a run is in its life.
type State = runs.State

// The states. A run is [Queued], then [Running], and ends in one of the others.
const (
	Queued      = runs.Queued      // its budget is being reserved
	Running     = runs.Running     // its producer runs
	Completed   = runs.Completed   // the producer has returned nil
	Failed      = runs.Failed      // the producer has returned an error
	Stopped     = runs.Stopped     // on request
	Interrupted = runs.Interrupted // its node died, was cut off from the store, or has shut down
	Exhausted   = runs.Exhausted   // its budget has no more tokens, or it exceeds Limits.Items or Limits.Bytes
	Expired     = runs.Expired     // it exceeds Limits.Duration
)

// An Event is something that metrics count.
type Event = runs.Event

// An EventKind is what has happened.
type EventKind = runs.EventKind

// The kinds of events.
const (
	EventStarted   = runs.EventStarted   // a run has begun on this node
	EventRepeated  = runs.EventRepeated  // a start has the request ID of a run that exists
	EventRefused   = runs.EventRefused   // a start was refused: another run is active, or a limit was exceeded
	EventEnded     = runs.EventEnded     // a run of this node has ended; with its State and Duration
	EventFirstItem = runs.EventFirstItem // the first item of a run is stored; with the Duration since its start
	EventBatch     = runs.EventBatch     // items are stored at once; Count items of so many Bytes
	EventAttached  = runs.EventAttached  // a reader has attached on this node
	EventDetached  = runs.EventDetached  // and has left
	EventStopped   = runs.EventStopped   // a request to stop is answered; with its Duration
	EventFenced    = runs.EventFenced    // another node has ended a run of this node
	EventLeaseLost = runs.EventLeaseLost // a producer was canceled, because its lease may have expired
)

// Info describes a run.
type Info struct {
	ID        string
	Topic     string
	RequestID string // of the start; "" without one
	State     State
	StartedAt time.Time
	Repeated  bool // Start has found the run of its request ID

	// Of a run that has ended.
	EndedAt   time.Time
	Items     uint64 // how many there are
	StoppedBy string // as Stop has it
	Err       error  // why it is not Completed, as clients see it; nil otherwise
}

func infoOf(rec *runs.Record) Info {
	info := Info{ID: rec.ID, Topic: rec.Topic, RequestID: rec.RequestID, State: rec.State, StartedAt: rec.StartedAt}
	if rec.End != nil {
		info.setEnd(rec.End)
	}
	return info
}

func (i *Info) setEnd(end *runs.End) {
	ended := endedOf(i.ID, end)
	i.State, i.EndedAt, i.Items, i.StoppedBy, i.Err = end.State, end.At, end.Items, end.By, ended.Err()
}

// endedOf returns the end of a run as a message.
func endedOf(id string, end *runs.End) runmessages.Ended {
	return runmessages.Ended{Run: id, State: string(end.State), Items: end.Items, By: end.By, Error: end.Error}
}

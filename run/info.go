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
	Failed      = runs.Failed      // the producer has returned an error, or the store refuses an item
	Stopped     = runs.Stopped     // on request
	Interrupted = runs.Interrupted // its node died, was cut off from the store, or has shut down
	Exhausted   = runs.Exhausted   // its budget has no more tokens, or it exceeds Limits.Items or Limits.Bytes
	Expired     = runs.Expired     // it exceeds Limits.Duration
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
	return runmessages.Ended{Run: id, State: string(end.State), Items: end.Items, By: end.By, Error: runmessages.FailureOf(end.Error)}
}

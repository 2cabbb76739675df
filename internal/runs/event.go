package runs

import "time"

// An Event is something that metrics count.
type Event struct {
	Kind     EventKind
	State    State         // of EventEnded
	Count    int64         // of EventBatch: items
	Bytes    int64         // of EventBatch
	Duration time.Duration // of EventEnded, EventFirstItem and EventStopped
}

// An EventKind is what has happened.
type EventKind uint8

// The kinds of events.
const (
	EventStarted   EventKind = iota + 1 // a run has begun on this node
	EventRepeated                       // a start has the request ID of a run that exists
	EventRefused                        // a start was refused: another run is active, or the budget is exhausted
	EventEnded                          // a run has ended on this node
	EventFirstItem                      // the first item of a run is stored
	EventBatch                          // items are stored
	EventAttached                       // a reader has attached
	EventDetached                       // and has left
	EventStopped                        // a request to stop is answered
	EventFenced                         // the log has refused what a former owner appends
	EventLeaseLost                      // a producer was canceled, because its lease may have expired
)

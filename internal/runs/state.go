package runs

import "slices"

// A State is where a run is in its life. The states and their order are in transitions.
type State string

// The states.
const (
	Queued      State = "queued"      // claimed, and not begun: its budget is being reserved
	Running     State = "running"     // its producer runs
	Completed   State = "completed"   // the producer has returned nil
	Failed      State = "failed"      // the producer has returned an error, or the store refuses an item
	Stopped     State = "stopped"     // on request
	Interrupted State = "interrupted" // the node of the producer died, was cut off, or has shut down
	Exhausted   State = "exhausted"   // of its budget, or of the limits of its size
	Expired     State = "expired"     // the limit of its duration has passed
)

// transitions has the states that may follow a state.
//
//nolint:gochecknoglobals // never changed
var transitions = map[State][]State{
	Queued:  {Running, Stopped, Interrupted},
	Running: {Completed, Failed, Stopped, Interrupted, Exhausted, Expired},
}

// Ended reports whether the state is one of those that no other follows.
func (s State) Ended() bool { return s != "" && len(transitions[s]) == 0 }

// to returns the state next, and panics if it does not follow s. It is for the owner of a run: another node
// may have an older record, which a failover has brought back.
func (s State) to(next State) State {
	if !s.Precedes(next) {
		panic("runs: a run that is " + string(s) + " cannot become " + string(next))
	}
	return next
}

// Precedes reports whether the state next may follow s.
func (s State) Precedes(next State) bool {
	return slices.Contains(transitions[s], next)
}

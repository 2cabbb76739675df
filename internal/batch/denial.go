package batch

import (
	"time"

	"github.com/penstock-go/penstock/limit/adapter"
)

// A denialCache keeps the states of nearly empty and blocked buckets. A state bounds what the bucket
// holds later: a call that needs more is denied without the store, with an exact Decision.
type denialCache struct {
	states Cache[State]
}

// denies returns the state of a bucket that certainly denies a call of costUnits, even if the
// call may leave a deficit of aheadUnits. It returns false if only the store can decide.
//
// The state that the cache keeps is between two ages. The call is denied only if the larger age
// implies it; denies returns the state for the smaller one, so that a RetryAfter that follows
// from it is long enough.
func (d *denialCache) denies(hash uint64, now time.Duration, costUnits, aheadUnits int64, u *adapter.Units) (State, bool) {
	e, ok := d.states.Get(hash, now)
	if !ok {
		return State{}, false
	}
	minAge, maxAge := now-e.Received, now-e.Sent
	if e.Value.isCoarse() {
		maxAge += e.Value.Tick // the store may have read its clock before the request was sent
	}
	if e.Value.BlockedFor > 0 {
		return e.Value.after(minAge, u), maxAge < e.Value.BlockedFor
	}
	if e.Value.LeaseEnds > 0 && maxAge >= e.Value.LeaseEnds {
		return State{}, false
	}
	if costUnits == 0 || costUnits-aheadUnits <= unitsAfter(e.Value.Units, maxAge, u) {
		return State{}, false
	}
	return e.Value.after(minAge, u), true
}

// learn stores the state of a bucket after a call of costUnits, if that state would deny an
// equal call.
func (d *denialCache) learn(hash uint64, state State, costUnits int64, sent, received time.Duration) {
	if state.BlockedFor == 0 && state.Units >= costUnits {
		d.states.Delete(hash)
		return
	}
	d.states.Put(hash, state, sent, received)
}

package batch

import (
	"time"

	"github.com/penstock-go/penstock/limit"
)

// A DenialCache keeps the states of nearly empty and blocked buckets, so that a client that
// floods causes no round trips. A state bounds what the bucket holds later: a call that needs
// more is denied without the store, with an exact Decision. The zero DenialCache is empty. It
// is safe for concurrent use.
type DenialCache struct {
	states Cache[State]
}

// Decide returns a denial, or false if only the store can decide.
func (d *DenialCache) Decide(hash uint64, now time.Duration, costUnits int64, u *limit.Units) (limit.Decision, bool) {
	state, ok := d.Denies(hash, now, costUnits, 0, u)
	if !ok {
		return limit.Decision{}, false
	}
	return state.Decision(costUnits, u), true
}

// Denies returns the state of a bucket that certainly denies a call of costUnits, even if the
// call may leave a deficit of aheadUnits. It returns false if only the store can decide.
//
// The state that the cache keeps is between two ages. The call is denied only if the larger age
// implies it; Denies returns the state for the smaller one, so that a RetryAfter that follows
// from it is long enough.
func (d *DenialCache) Denies(hash uint64, now time.Duration, costUnits, aheadUnits int64, u *limit.Units) (State, bool) {
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
	if costUnits == 0 || costUnits-aheadUnits <= unitsAfter(e.Value.Units, maxAge, u) {
		return State{}, false
	}
	return e.Value.after(minAge, u), true
}

// Learn stores the state of a bucket after a call of costUnits, if that state would deny an
// equal call.
func (d *DenialCache) Learn(hash uint64, state State, costUnits int64, sent, received time.Duration) {
	if state.BlockedFor == 0 && state.Units >= costUnits {
		d.states.Delete(hash)
		return
	}
	d.states.Put(hash, state, sent, received)
}

// Delete removes the state of a bucket.
func (d *DenialCache) Delete(hash uint64) { d.states.Delete(hash) }

// Invalidate removes the state of a bucket that the caller has filled or blocked, and ignores
// responses that are in flight.
func (d *DenialCache) Invalidate(hash uint64, now time.Duration) { d.states.Invalidate(hash, now) }

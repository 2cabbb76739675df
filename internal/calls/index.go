package calls

import (
	"sync"
	"sync/atomic"
)

// An Index holds the calls of a connection that have passed stage 5 and have no answer. Few
// calls are open at a time, so they are a list, and a map only above maxListedCalls. An idle
// connection holds no memory for it.
type Index[C any] struct {
	Deadlines *Deadlines[C] // those of many connections; read-only

	received atomic.Pointer[Call[C]] // the call before stage 5, if it has a deadline; set to nil only under mu
	soonest  atomic.Int64            // what the entry in the queue is set for, in nanoseconds since Deadlines.Base; 0 if there is none; stored only under mu

	mu    sync.Mutex
	first *Call[C]
	byID  map[string]*Call[C] // nil up to maxListedCalls, and until there are none again

	place   int32        // in the queue of Deadlines, which guards it
	running atomic.Int32 // calls whose handlers have not returned
}

// maxListedCalls is the largest number of open calls that are found by comparing their IDs.
const maxListedCalls = 16

// Add inserts a call, and reports false if there is one with its ID.
func (x *Index[C]) Add(k *Call[C]) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	defer x.received.CompareAndSwap(k, nil) // after it has been inserted
	if x.findLocked(k.ID) != nil {
		return false
	}
	k.indexed, k.next = true, x.first
	if x.first != nil {
		x.first.previous = k
	}
	x.first = k
	if x.byID != nil {
		x.byID[k.ID] = k
	} else {
		x.buildMapLocked()
	}
	return true
}

// buildMapLocked creates the map if there are more calls than a list is good for.
func (x *Index[C]) buildMapLocked() {
	n := 0
	for open := x.first; open != nil && n <= maxListedCalls; open = open.next {
		n++
	}
	if n <= maxListedCalls {
		return
	}
	x.byID = make(map[string]*Call[C], 2*maxListedCalls)
	for open := x.first; open != nil; open = open.next {
		x.byID[open.ID] = open
	}
}

// Remove takes a call out, if it is there.
func (x *Index[C]) Remove(k *Call[C]) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.received.Load() == k { // seldom: Add has removed it
		x.received.CompareAndSwap(k, nil)
	}
	if !k.indexed {
		return
	}
	k.indexed = false
	if k.previous == nil {
		x.first = k.next
	} else {
		k.previous.next = k.next
	}
	if k.next != nil {
		k.next.previous = k.previous
	}
	k.previous, k.next = nil, nil
	if x.first == nil {
		x.byID = nil
	} else if x.byID[k.ID] == k {
		delete(x.byID, k.ID)
	}
}

// Settle records that a call has its answer, and reports whether it had none before. The client may use
// the call's ID again as soon as it receives the answer, so Settle comes first.
func (x *Index[C]) Settle(k *Call[C]) bool {
	if k.Answered.Swap(true) {
		return false
	}
	x.Remove(k)
	return true
}

// Find returns the open call with an ID, or nil.
func (x *Index[C]) Find(id string) *Call[C] {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.findLocked(id)
}

// findLocked is Find with the lock held. Calls without an ID are not found.
func (x *Index[C]) findLocked(id string) *Call[C] {
	if id == "" {
		return nil
	}
	if x.byID != nil {
		return x.byID[id]
	}
	for k := x.first; k != nil; k = k.next {
		if k.ID == id {
			return k
		}
	}
	return nil
}

// All returns the open calls.
func (x *Index[C]) All() []*Call[C] {
	x.mu.Lock()
	defer x.mu.Unlock()
	var open []*Call[C]
	for k := x.first; k != nil; k = k.next {
		open = append(open, k)
	}
	return open
}

// Start counts a call whose handler will run, and returns how many there are. ok is false, and the call is
// not counted, if that is more than limit.
func (x *Index[C]) Start(limit int) (running int64, ok bool) {
	running = int64(x.running.Add(1))
	if running > int64(limit) {
		x.running.Add(-1)
		return running, false
	}
	return running, true
}

// Finish undoes Start.
func (x *Index[C]) Finish() { x.running.Add(-1) }

package router

import (
	"sync"
	"sync/atomic"

	"github.com/penstock-go/penstock/errors"
)

// A callIndex holds the calls of a connection that have passed stage 5 and have no answer. Few
// calls are open at a time, so they are a list, and a map only above maxListedCalls. An idle
// connection holds no memory for it.
type callIndex struct {
	deadlines *callDeadlines // of the shard; read-only

	received atomic.Pointer[call] // the call before stage 5, if it has a deadline; set to nil only under mu
	soonest  atomic.Int64         // what the entry in the queue is set for, in nanoseconds since callDeadlines.base; 0 if there is none; stored only under mu

	mu    sync.Mutex
	first *call
	byID  map[string]*call // nil up to maxListedCalls, and until there are none again

	place   int32        // in the queue of callDeadlines, which guards it
	running atomic.Int32 // calls whose handlers have not returned
}

// maxListedCalls is the largest number of open calls that are found by comparing their IDs.
const maxListedCalls = 16

// errDuplicateCall rejects a call whose correlation ID is that of an open call.
var errDuplicateCall = &errors.Error{
	Code: errors.InvalidArgument, Message: "a call with this correlationId has no answer yet; every call must have an ID of its own",
}

// add inserts a call, and reports false if there is one with its ID.
func (x *callIndex) add(k *call) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	defer x.received.CompareAndSwap(k, nil) // after it has been inserted
	if x.findLocked(k.id) != nil {
		return false
	}
	k.indexed, k.next = true, x.first
	if x.first != nil {
		x.first.previous = k
	}
	x.first = k
	if x.byID != nil {
		x.byID[k.id] = k
	} else {
		x.buildMapLocked()
	}
	return true
}

// buildMapLocked creates the map if there are more calls than a list is good for.
func (x *callIndex) buildMapLocked() {
	n := 0
	for open := x.first; open != nil && n <= maxListedCalls; open = open.next {
		n++
	}
	if n <= maxListedCalls {
		return
	}
	x.byID = make(map[string]*call, 2*maxListedCalls)
	for open := x.first; open != nil; open = open.next {
		x.byID[open.id] = open
	}
}

// remove takes a call out, if it is there.
func (x *callIndex) remove(k *call) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.received.CompareAndSwap(k, nil)
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
	} else if x.byID[k.id] == k {
		delete(x.byID, k.id)
	}
}

// settle records that a call has its answer, and reports whether it had none before. The client may use
// the call's ID again as soon as it receives the answer, so settle comes first.
func (x *callIndex) settle(k *call) bool {
	if k.answered.Swap(true) {
		return false
	}
	x.remove(k)
	return true
}

// find returns the open call with an ID, or nil.
func (x *callIndex) find(id string) *call {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.findLocked(id)
}

// findLocked is find with the lock held. Calls without an ID are not found.
func (x *callIndex) findLocked(id string) *call {
	if id == "" {
		return nil
	}
	if x.byID != nil {
		return x.byID[id]
	}
	for k := x.first; k != nil; k = k.next {
		if k.id == id {
			return k
		}
	}
	return nil
}

// all returns the open calls.
func (x *callIndex) all() []*call {
	x.mu.Lock()
	defer x.mu.Unlock()
	var open []*call
	for k := x.first; k != nil; k = k.next {
		open = append(open, k)
	}
	return open
}

// start counts a call whose handler will run, and returns how many there are. ok is false, and the call is
// not counted, if that is more than limit.
func (x *callIndex) start(limit int) (running int64, ok bool) {
	running = int64(x.running.Add(1))
	if running > int64(limit) {
		x.running.Add(-1)
		return running, false
	}
	return running, true
}

// finish undoes start.
func (x *callIndex) finish() { x.running.Add(-1) }

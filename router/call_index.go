package router

import (
	"sync"

	"github.com/penstock-go/penstock/errors"
)

// A callIndex holds the calls of a connection that have passed stage 5 and have no answer. Few
// calls are open at a time, so they are a list, and a map only above maxListedCalls. An idle
// connection holds no memory for it.
type callIndex struct {
	callDeadlines

	mu    sync.Mutex
	first *Context
	byID  map[string]*Context // nil up to maxListedCalls, and until there are none again
}

// maxListedCalls is the largest number of open calls that are found by comparing their IDs.
const maxListedCalls = 16

// errDuplicateCall rejects a call whose correlation ID is that of an open call.
var errDuplicateCall = &errors.Error{
	Code: errors.InvalidArgument, Message: "a call with this correlationId has no answer yet; every call must have an ID of its own",
}

// add inserts a call, and reports false if there is one with its ID.
func (x *callIndex) add(c *Context) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	defer x.received.CompareAndSwap(c, nil) // after it has been inserted
	if x.findLocked(c.correlationID) != nil {
		return false
	}
	c.call.indexed, c.call.next = true, x.first
	if x.first != nil {
		x.first.call.previous = c
	}
	x.first = c
	if x.byID != nil {
		x.byID[c.correlationID] = c
	} else {
		x.buildMap()
	}
	return true
}

// buildMap creates the map if there are more calls than a list is good for.
func (x *callIndex) buildMap() {
	n := 0
	for open := x.first; open != nil && n <= maxListedCalls; open = open.call.next {
		n++
	}
	if n <= maxListedCalls {
		return
	}
	x.byID = make(map[string]*Context, 2*maxListedCalls)
	for open := x.first; open != nil; open = open.call.next {
		x.byID[open.correlationID] = open
	}
}

// remove takes a call out, if it is there.
func (x *callIndex) remove(c *Context) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.received.CompareAndSwap(c, nil)
	k := &c.call
	if !k.indexed {
		return
	}
	k.indexed = false
	if k.previous == nil {
		x.first = k.next
	} else {
		k.previous.call.next = k.next
	}
	if k.next != nil {
		k.next.call.previous = k.previous
	}
	k.previous, k.next = nil, nil
	if x.first == nil {
		x.byID = nil
	} else if x.byID[c.correlationID] == c {
		delete(x.byID, c.correlationID)
	}
}

// find returns the open call with an ID, or nil.
func (x *callIndex) find(id string) *Context {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.findLocked(id)
}

// findLocked is find with the lock held. Calls without an ID are not found.
func (x *callIndex) findLocked(id string) *Context {
	if id == "" {
		return nil
	}
	if x.byID != nil {
		return x.byID[id]
	}
	for c := x.first; c != nil; c = c.call.next {
		if c.correlationID == id {
			return c
		}
	}
	return nil
}

// all returns the open calls.
func (x *callIndex) all() []*Context {
	x.mu.Lock()
	defer x.mu.Unlock()
	var open []*Context
	for c := x.first; c != nil; c = c.call.next {
		open = append(open, c)
	}
	return open
}

package calls

import (
	"sync"
	"sync/atomic"
)

// This file keeps calls from sending what their clients may not receive any more: between a decision about the access of
// a client and the send queue, a call may wait for a store, for a credit and for room.

// A Guard decides again whether a client may receive what a call sends, if its access was revoked since the last
// decision. It belongs to the goroutine of the call's handler. nil guards nothing.
type Guard struct {
	Decide func() error // returns the error with which the call ends

	revocations *atomic.Uint32
	seen        uint32 // revocations, read before the last decision began
}

// IsStale reports whether access was revoked since the last decision. A frame is not queued if it returns true under
// the lock of the queue.
func (g *Guard) IsStale() bool { return g != nil && g.revocations.Load() != g.seen }

// Check decides again until access was not revoked meanwhile.
func (g *Guard) Check() error {
	for g.IsStale() {
		g.seen = g.revocations.Load()
		if err := g.Decide(); err != nil {
			return err
		}
	}
	return nil
}

// Guards are those of the open calls of a connection. They are safe for concurrent use.
type Guards[C any] struct {
	open   atomic.Int32 // length of byCall: without guards, no lock is needed
	mu     sync.Mutex   // nothing is acquired or called under it
	byCall map[*Call[C]]*Guard
}

// Add guards a call, before its handler decides the first time. revocations counts how often access was revoked.
func (gs *Guards[C]) Add(k *Call[C], revocations *atomic.Uint32, decide func() error) *Guard {
	g := &Guard{Decide: decide, revocations: revocations, seen: revocations.Load()}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.byCall == nil {
		gs.byCall = map[*Call[C]]*Guard{}
	}
	gs.byCall[k] = g
	gs.open.Store(int32(len(gs.byCall))) //nolint:gosec // at most as many as calls
	return g
}

// Of returns the guard of a call, or nil.
func (gs *Guards[C]) Of(k *Call[C]) *Guard {
	if gs.open.Load() == 0 {
		return nil
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.byCall[k]
}

// Remove removes the guard of a call that has ended, if it has one.
func (gs *Guards[C]) Remove(k *Call[C]) {
	if gs.open.Load() == 0 {
		return
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if delete(gs.byCall, k); len(gs.byCall) == 0 {
		gs.byCall = nil
	}
	gs.open.Store(int32(len(gs.byCall))) //nolint:gosec // as above
}

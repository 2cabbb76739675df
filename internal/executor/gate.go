package executor

import "sync"

// A Gate calls functions until it is closed. The zero Gate is open. It is safe for concurrent use,
// but not by the functions that it calls.
type Gate struct {
	mu     sync.RWMutex // held for reading while a function runs
	closed bool
}

// Do calls f, and reports whether the Gate is open. Functions may run at the same time.
func (g *Gate) Do(f func()) (open bool) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return false
	}
	f()
	return true
}

// Close prevents further calls, and waits for those that have begun.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

package brokertest

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A recorder guards what a node records, and waits for it.
type recorder struct {
	maxWait time.Duration

	mu   sync.Mutex
	lost error // a failure of the node, which ends every wait; no case loses a packet
}

func (r *recorder) locked(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// timeout returns a context for a call of the node.
func (r *recorder) timeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), r.maxWait)
}

// await polls until happened, which is called with the lock held, returns true.
func (r *recorder) await(event string, happened func() bool) error {
	pause := time.Millisecond
	for deadline := time.Now().Add(r.maxWait); ; time.Sleep(pause) {
		pause = min(pause*5/4, r.maxWait/50+time.Millisecond)
		done, lost := false, error(nil)
		r.locked(func() { done, lost = happened(), r.lost })
		if lost != nil {
			return lost
		}
		if done {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no %s within %v", event, r.maxWait)
		}
	}
}

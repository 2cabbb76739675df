package runs

import (
	"context"
	"time"
)

// admit reports whether a run may begin: not while the node shuts down. The caller must call leave then.
func (r *Runs) admit() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return false
	}
	r.starting++
	return true
}

// leave ends what admit began.
func (r *Runs) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starting--
	r.checkIdleLocked()
}

// checkIdleLocked ends the wait of endShutdown when nothing is owned any more. That is so once, because nothing begins then.
func (r *Runs) checkIdleLocked() {
	if r.closing && r.starting == 0 && len(r.owned) == 0 {
		close(r.idle)
	}
}

// beginShutdown refuses further runs, and gives the producers that run a time to end.
func (r *Runs) beginShutdown() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closing {
		return
	}
	r.closing = true
	r.checkIdleLocked()
	time.AfterFunc(r.config.Grace, r.interruptAll)
}

// interruptAll cancels the producers that are left.
func (r *Runs) interruptAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for o := range r.owned {
		o.cancel(errShutdown)
	}
}

// endShutdown waits until no run is owned here. When ctx is done, it leaves those that are left to other
// nodes.
func (r *Runs) endShutdown(ctx context.Context) {
	defer r.close()
	select {
	case <-r.idle:
		return
	case <-ctx.Done():
	}
	r.interruptAll()
	select { // an end that the store accepts at once is better than one that waits for the lease
	case <-r.idle:
	case <-time.After(time.Second):
	}
}

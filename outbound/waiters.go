package outbound

import (
	"context"
	"slices"
	"sync"
)

// waiters queues the callers of each route in order of arrival. Only the first caller of a
// route asks the Budget, so the number of attempts follows the number of requests and not the
// number of waiting callers, and no caller overtakes another. A route without callers uses no
// memory.
type waiters struct {
	mu     sync.Mutex // guards routes and every waitQueue in it
	routes map[string]*waitQueue
}

type waitQueue struct {
	callers int // those between join and leave; the queue is deleted at 0
	last    uint64
	busy    bool     // a caller holds the turn
	waiting []waiter // ordered by number
}

// A waiter keeps its number across retries, so a retried request stays ahead of later ones.
type waiter struct {
	number uint64
	turn   chan struct{} // closed when the waiter gets the turn
}

// join returns the number of a new caller, which must call leave later.
func (w *waiters) join(route string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.routes[route]
	if q == nil {
		q = &waitQueue{}
		w.routes[route] = q
	}
	q.callers++
	q.last++
	return q.last
}

// leave ends what join began. The caller must not have the turn.
func (w *waiters) leave(route string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.routes[route]
	if q.callers--; q.callers == 0 {
		delete(w.routes, route)
	}
}

// await blocks until the caller has the turn, which the caller must then pass on. If ctx ends
// first, await returns its cause and the caller does not have the turn.
func (w *waiters) await(ctx context.Context, route string, number uint64) error {
	w.mu.Lock()
	q := w.routes[route]
	if !q.busy {
		q.busy = true
		w.mu.Unlock()
		return nil
	}
	// The waiter is in the queue before the mutex is released, so it cannot miss the turn.
	self := waiter{number, make(chan struct{})}
	at, _ := slices.BinarySearchFunc(q.waiting, self, byNumber)
	q.waiting = slices.Insert(q.waiting, at, self)
	w.mu.Unlock()
	select {
	case <-self.turn:
		return nil
	case <-ctx.Done():
		// The turn may have arrived at the same time; cancel finds out.
		w.cancel(q, self)
		return context.Cause(ctx)
	}
}

func byNumber(a, b waiter) int {
	switch {
	case a.number < b.number:
		return -1
	case a.number > b.number:
		return 1
	}
	return 0
}

// cancel removes a waiter from its queue. A waiter that is not in the queue got the turn
// between the end of its context and this call, and passes it on.
func (w *waiters) cancel(q *waitQueue, self waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at, ok := slices.BinarySearchFunc(q.waiting, self, byNumber); ok {
		q.waiting = slices.Delete(q.waiting, at, at+1)
		return
	}
	q.passLocked()
}

// pass gives the caller's turn to the next waiter.
func (w *waiters) pass(route string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.routes[route].passLocked()
}

func (q *waitQueue) passLocked() {
	if q.busy = len(q.waiting) > 0; q.busy {
		close(q.waiting[0].turn)
		q.waiting = slices.Delete(q.waiting, 0, 1)
	}
}

// mustYield reports whether an earlier caller is waiting again, which happens when its request
// is retried.
func (w *waiters) mustYield(route string, number uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.routes[route]
	return len(q.waiting) > 0 && q.waiting[0].number < number
}

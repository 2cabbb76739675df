package outbound

import (
	"context"
	"slices"
	"sync"
)

// lines are the callers of each route, in the order in which they came. Only the first
// of a route claims, so that many need no more claims than there are requests, and
// nobody overtakes. A route without callers costs nothing.
type lines struct {
	mu     sync.Mutex
	routes map[string]*line
}

type line struct {
	callers int // in it, or about to come back
	next    uint64
	taken   bool    // somebody claims
	waiting []place // by number
}

// A place is that of one caller, who keeps it until its request needs no other attempt.
type place struct {
	number uint64
	turn   chan struct{} // closed when it is the caller's turn
}

// join returns the number of a caller who will leave.
func (l *lines) join(route string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.routes[route]
	if r == nil {
		r = &line{}
		l.routes[route] = r
	}
	r.callers++
	r.next++
	return r.next
}

func (l *lines) leave(route string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.routes[route]
	if r.callers--; r.callers == 0 {
		delete(l.routes, route)
	}
}

// await returns when it is the caller's turn, which must then pass. If ctx ends first,
// it is not, and the caller's place is gone.
func (l *lines) await(ctx context.Context, route string, number uint64) error {
	l.mu.Lock()
	r := l.routes[route]
	if !r.taken {
		r.taken = true
		l.mu.Unlock()
		return nil
	}
	p := place{number, make(chan struct{})}
	at, _ := slices.BinarySearchFunc(r.waiting, p, byNumber)
	r.waiting = slices.Insert(r.waiting, at, p)
	l.mu.Unlock()
	select {
	case <-p.turn:
		return nil
	case <-ctx.Done():
		l.giveUp(r, p)
		return context.Cause(ctx)
	}
}

func byNumber(a, b place) int {
	switch {
	case a.number < b.number:
		return -1
	case a.number > b.number:
		return 1
	}
	return 0
}

// giveUp takes a caller out of its line, or passes the turn that it has got meanwhile.
func (l *lines) giveUp(r *line, p place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at, ok := slices.BinarySearchFunc(r.waiting, p, byNumber); ok {
		r.waiting = slices.Delete(r.waiting, at, at+1)
		return
	}
	r.pass()
}

func (l *lines) pass(route string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.routes[route].pass()
}

func (r *line) pass() {
	if r.taken = len(r.waiting) > 0; r.taken {
		close(r.waiting[0].turn)
		r.waiting = slices.Delete(r.waiting, 0, 1)
	}
}

// isBehind reports whether one who came earlier has come back.
func (l *lines) isBehind(route string, number uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.routes[route]
	return len(r.waiting) > 0 && r.waiting[0].number < number
}

package router

import (
	"context"
	"math/rand/v2"
	"time"
)

// Shutdown ends the router's service. It refuses new connections at once. From one
// connection after the other it refuses new messages, and closes it with 1012 when its
// handlers have returned. That is spread over half the time that ctx leaves, at most a
// millisecond for each connection, so that the clients do not come back as one wave.
// When ctx ends, the connections that are left are cut
// and Shutdown returns ctx's error; otherwise it returns nil once all
// connections have ended.
func (r *Router) Shutdown(ctx context.Context) error {
	conns := r.conns.startDraining()
	r.observe(Event{Kind: EventShutdown, Count: len(conns)})
	drainPaced(ctx, conns)
	defer r.session.Close()
	select {
	case <-r.conns.drained:
		return nil
	case <-ctx.Done():
	}
	left := r.conns.list()
	for _, c := range left {
		c.ws.Abort()
	}
	r.observe(Event{Kind: EventAborted, Count: len(left)})
	return ctx.Err()
}

// drainPaced goes by the time at which each close is due, because a timer takes
// longer than it should, and ten thousand of them much longer.
func drainPaced(ctx context.Context, conns []*Conn) {
	rand.Shuffle(len(conns), func(i, j int) { conns[i], conns[j] = conns[j], conns[i] })
	pause := time.Millisecond
	if deadline, ok := ctx.Deadline(); ok && len(conns) > 0 {
		pause = max(0, min(pause, time.Until(deadline)/2/time.Duration(len(conns))))
	}
	due := time.Now()
	for _, c := range conns {
		if wait := time.Until(due); wait >= time.Millisecond {
			sleep(ctx, wait)
		}
		c.drain()
		due = due.Add(rand.N(2*pause + 1))
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

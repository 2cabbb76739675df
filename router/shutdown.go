package router

import (
	"context"
	"math/rand/v2"
	"time"
)

// Shutdown shuts the router down gracefully. It rejects new connections at once. It then
// drains one connection after another: new messages of the connection are rejected with
// UNAVAILABLE, and when its handlers have returned, it is closed with 1012. The pauses between
// connections take at most half of the time until ctx's deadline and at most a millisecond on
// average, so that the clients do not all reconnect at once.
//
// Shutdown returns nil when all connections are closed. If ctx is done first, it aborts the
// remaining connections and returns ctx's error. In both cases it closes the session of
// Options.Broker.
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

// drainPaced drains the connections in random order. It computes when each is due instead of
// sleeping for every pause, because a timer fires late, and thousands of them add up.
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

// sleep waits for d or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

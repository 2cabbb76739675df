package router

import (
	"context"
	"math/rand/v2"
	"time"
)

// Shutdown ends the router's service. It refuses new connections and messages,
// waits for what handlers are at, and closes every connection with 1012 once its
// messages have been handled. The closes are spread over half the time that ctx
// leaves, at most a millisecond for each connection, so that the clients do not
// come back as one wave. When ctx ends, the connections that are left are cut
// and Shutdown returns ctx's error; otherwise it returns nil once all
// connections have ended.
func (r *Router) Shutdown(ctx context.Context) error {
	spreadDrain(ctx, r.conns.drain())
	select {
	case <-r.conns.drained:
		return nil
	case <-ctx.Done():
	}
	for c := range r.Conns() {
		c.ws.Abort()
	}
	return ctx.Err()
}

func spreadDrain(ctx context.Context, conns []*Conn) {
	rand.Shuffle(len(conns), func(i, j int) { conns[i], conns[j] = conns[j], conns[i] })
	pause := time.Millisecond
	if deadline, ok := ctx.Deadline(); ok && len(conns) > 0 {
		pause = min(pause, time.Until(deadline)/2/time.Duration(len(conns)))
	}
	for i, c := range conns {
		c.drain()
		if i+1 == len(conns) || ctx.Err() != nil {
			continue
		}
		// A random pause with the mean that was asked for.
		timer := time.NewTimer(rand.N(2*pause + 1))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

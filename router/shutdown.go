package router

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/random"
	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/router/observe"
)

// Shutdown shuts the router down gracefully, in phases.
//
// In the lame-duck phase, which lasts Timeouts.LameDuck, [Router.Healthy] returns false, and
// connections are accepted and served as before: load balancers notice that they should choose
// other nodes. A second call of Shutdown skips the phase.
//
// Then Shutdown refuses new connections. It asks the clients that have greeted ($ws:hello, see the
// protocol) to connect to another node after a random delay, and serves them until they have done
// so: for 2 s, or 2 ms per such client if that is longer, but at most a quarter of the time until
// ctx's deadline.
//
// Then it drains one connection after another: new messages of the connection are refused with
// UNAVAILABLE, streams end with UNAVAILABLE, and when its handlers have returned, it is closed with
// 1012. The reason of the close frame contains a random delay after which the client
// should reconnect; see the protocol, section 5. Messages that Shutdown refused were not handled;
// the answer to another call may be lost with its connection. The pauses between connections take at most half of the time until
// ctx's deadline and at most a millisecond on average, so that the clients do not all reconnect
// at once. If there is less time than that, the delays are longer instead.
//
// Shutdown then waits for the producers of package run, which it has given
// run.Options.ShutdownGrace, closes the session of Options.Broker, which sends the publications
// that wait for other nodes, and returns nil. If ctx is done before all connections are closed,
// it aborts the remaining connections and returns ctx's error, so ctx must last longer than the
// lame-duck phase. If the session has not sent all publications when ctx is done, the error
// contains the number of those that were not sent.
func (r *Router) Shutdown(ctx context.Context) error {
	r.lameDuck(ctx)
	r.shutdowns.Begin()
	err := r.closeConns(ctx)
	r.shutdowns.End(ctx)
	r.sessions.Close(ctx)
	r.topics.Close()
	r.access.Close()
	defer r.log.Flush()
	defer r.asks.Close()
	if closing := r.node.Close(ctx); closing != nil {
		return errors.Join(err, closing)
	}
	return err
}

// closeConns drains all connections, and aborts those that are left when ctx is done.
func (r *Router) closeConns(ctx context.Context) error {
	conns, drained := r.conns.Drain()
	r.hooks.Observe(observe.Event{Kind: observe.Shutdown, Count: len(conns)})
	r.askToLeave(ctx, conns)
	r.drainPaced(ctx, conns)
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
	}
	left := r.conns.List()
	for _, c := range left {
		c.member.WS.Abort()
	}
	r.hooks.Observe(observe.Event{Kind: observe.Aborted, Count: len(left)})
	return ctx.Err()
}

// lameDuck fails the health check and waits until load balancers have noticed.
func (r *Router) lameDuck(ctx context.Context) {
	if r.unhealthy.Swap(true) || r.opts.Timeouts.LameDuck == 0 {
		return
	}
	_ = rules.Sleep(ctx, r.opts.Timeouts.LameDuck)
}

// Healthy reports whether load balancers may send new clients to this node: until Shutdown
// begins. Connections are accepted until the lame-duck phase ends.
func (r *Router) Healthy() bool { return !r.unhealthy.Load() }

// ServeHealth is an [http.HandlerFunc] for readiness checks. It answers with 200 while the
// router is [Router.Healthy], and then with 503.
func (r *Router) ServeHealth(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if !r.Healthy() {
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, "ok\n") // a client that has gone needs no answer
}

// minReconnectSpread is the shortest time over which the clients of a node should reconnect.
const minReconnectSpread = time.Second

// reconnectReason returns the reason of a close frame during Shutdown, with the delay after which
// the client should reconnect.
func (r *Router) reconnectReason() string {
	spread := max(minReconnectSpread, time.Duration(r.reconnectSpread.Load()))
	e := *errDraining
	e.RetryAfter = time.Millisecond + random.N(spread)
	payload := failure.Payload(&e)
	return wire.CloseReason(&payload)
}

// drainPaced drains the connections in random order. It computes when each is due instead of
// sleeping for every pause, because a timer fires late, and thousands of them add up.
func (r *Router) drainPaced(ctx context.Context, conns []*Conn) {
	random.Shuffle(len(conns), func(i, j int) { conns[i], conns[j] = conns[j], conns[i] })
	pause := time.Millisecond
	if deadline, ok := ctx.Deadline(); ok && len(conns) > 0 {
		pause = max(0, min(pause, time.Until(deadline)/2/time.Duration(len(conns))))
	}
	r.reconnectSpread.Store(int64(time.Duration(len(conns)) * (time.Millisecond - pause)))
	due := time.Now()
	for _, c := range conns {
		if wait := time.Until(due); wait >= time.Millisecond {
			_ = rules.Sleep(ctx, wait)
		}
		c.drain()
		due = due.Add(random.N(2*pause + 1))
	}
}

package router

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/random"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// askToLeave asks the clients that have greeted to move to other nodes, each after a random delay,
// and waits until they have left: at most twice the longest delay, and at most a quarter of the
// time until ctx's deadline. Meanwhile their connections are served as before.
func (r *Router) askToLeave(ctx context.Context, conns []*Conn) {
	var asked []*Conn
	for _, c := range conns {
		if c.member.HasGreeted() {
			asked = append(asked, c)
		}
	}
	if len(asked) == 0 {
		return
	}
	spread := max(minReconnectSpread, time.Duration(len(asked))*time.Millisecond)
	if deadline, ok := ctx.Deadline(); ok {
		spread = min(spread, max(0, time.Until(deadline)/8))
	}
	for _, c := range asked {
		c.sendGoAway(time.Millisecond + random.N(spread+1))
	}
	timeout := time.NewTimer(2 * spread)
	defer timeout.Stop()
	for _, c := range asked {
		select {
		case <-c.ctx.Done():
		case <-timeout.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// sendGoAway queues the message. If the queue is full, the client receives only the close frame
// that follows.
func (c *Conn) sendGoAway(delay time.Duration) {
	frame, err := envelope.EncodeEvent(c.codec(), protocol.GoAway{ReconnectAfterMs: failure.Ceil(delay, time.Millisecond)})
	if err != nil {
		return // only a mistake in this package
	}
	frame.SetPolicy(wsconn.DropNewest)
	_ = c.send(frame)
}

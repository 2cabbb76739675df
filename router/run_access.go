package router

import (
	"context"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/runaccess"
	"github.com/penstock-go/penstock/internal/sequencer"
)

// RunAccess returns what package run needs of the router. Applications cannot use it: they call run.New.
func (r *Router) RunAccess() runaccess.Access {
	return runaccess.Access{
		Node:      r.NodeID(),
		Logger:    r.opts.Logger,
		Histories: r.histories,
		Follow: func(topic string, retention broker.Retention, sink sequencer.Sink) runaccess.Follower {
			s := r.topics.Follow(topic, retention, sink)
			return runaccess.Follower{WhenAttached: s.WhenAttached, Close: func() { r.topics.Unfollow(topic) }}
		},
		GuardAccess: func(ctx context.Context, decide func() error) {
			ctx.(*Context).guardAccess(decide)
		},
		OnAccessEnd:    r.accessEnds.Add,
		AccessEndOf:    r.accessEndOf,
		Authentication: r.awaitAuthentication,
		OnShutdown:     func(s runaccess.Shutdown) { r.shutdowns = append(r.shutdowns, s) },
	}
}

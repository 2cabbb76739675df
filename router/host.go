package router

import (
	"context"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/host"
	"github.com/penstock-go/penstock/internal/sequencer"
)

// Host returns what packages such as run and inspect need of the router. Applications cannot use it.
func (r *Router) Host() host.Host {
	return host.Host{
		Inspection: r.inspection(),
		Node:       r.NodeID(),
		Logger:     r.opts.Logger,
		Histories:  r.histories,
		Follow: func(topic string, retention broker.Retention, sink sequencer.Sink) host.Follower {
			s := r.topics.Follow(topic, retention, sink)
			return host.Follower{WhenAttached: s.WhenAttached, Close: func() { r.topics.Unfollow(topic) }}
		},
		GuardAccess: func(ctx context.Context, decide func() error) {
			ctx.(*Context).guardAccess(decide)
		},
		OnAccessEnd:    r.accessEnds.Add,
		AccessEndOf:    r.accessEndOf,
		Authentication: r.awaitAuthentication,
		OnShutdown:     func(s host.Shutdown) { r.shutdowns = append(r.shutdowns, s) },
	}
}

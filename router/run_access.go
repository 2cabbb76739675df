package router

import (
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
		Revocations: func(connID string) uint32 {
			if c := r.conns.ByID(connID); c != nil {
				return c.revocations.Load()
			}
			return 0
		},
		OnAccessEnd:    r.accessEnds.Add,
		AccessEndOf:    r.accessEndOf,
		Authentication: r.awaitAuthentication,
		OnShutdown:     func(s runaccess.Shutdown) { r.shutdowns = append(r.shutdowns, s) },
	}
}

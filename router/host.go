package router

import (
	"context"

	"github.com/penstock-go/penstock/internal/host"
)

// Host returns what packages such as run and inspect need of the router. Applications cannot use it.
func (r *Router) Host() host.Host {
	return host.Host{
		Inspection: r.inspection(),
		Node:       r.NodeID(),
		Logger:     r.opts.Logger,
		Histories:  r.useHistories(),
		Follow:     r.topics.Follow,
		Unfollow:   r.topics.Unfollow,
		Tail:       r.topics.Tail,
		GuardAccess: func(ctx context.Context, decide func() error) {
			ctx.(*Context).guardAccess(decide)
		},
		OnAccessEnd:    r.accessEnds.Add,
		AccessEndOf:    r.accessEndOf,
		Authentication: r.access.AwaitNow,
		OnShutdown:     func(s host.Shutdown) { r.shutdowns = append(r.shutdowns, s) },
	}
}

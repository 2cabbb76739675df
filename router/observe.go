package router

import (
	"context"
	"log/slog"

	"github.com/penstock-go/penstock/internal/hints"
	"github.com/penstock-go/penstock/internal/report"
	"github.com/penstock-go/penstock/router/observe"
)

// Observe registers a function that is called for each [observe.Event] of this node, after those that were
// registered before it. It panics if f is nil or the router has begun to serve. Package
// middleware/metrics provides an observer for Prometheus.
//
// The function is called concurrently, sometimes under locks: it must return quickly, must not
// block, and must not call the router or runtime.Goexit. Its panics are recovered. Events allocate
// no memory, and a router without observers does not read the clock for them.
func (r *Router) Observe(f func(observe.Event)) {
	r.mustNotBeServing("Observe")
	if f == nil {
		panic("router: the function of Observe is nil")
	}
	r.hooks.AddObserver(f)
}

// initLog must be called before anything is logged.
func (r *Router) initLog() {
	r.log.Init(r.opts.Logger)
	r.hooks.Log = &r.log
	write := func(level slog.Level, text string, attrs ...slog.Attr) {
		r.opts.Logger.LogAttrs(context.Background(), level, text, report.Bound(attrs...)...)
	}
	r.proxyWarning = hints.ProxyWarning{Write: write, Trusted: r.opts.TrustedProxies.Networks}
	if r.opts.Development {
		r.hints = hints.New(&r.declared, write)
	}
}

// Stats is a snapshot of a router's connections, which are those of its node.
type Stats struct {
	Conns          int // open connections
	QueuedMessages int // in the send queues of all connections
	QueuedBytes    int // of these messages
}

// Stats returns a snapshot of the connections of this node. It iterates over all of them and locks
// each briefly.
func (r *Router) Stats() Stats {
	var stats Stats
	for c := range r.Conns() {
		messages, bytes := c.member.WS.Pending()
		stats.Conns++
		stats.QueuedMessages += messages
		stats.QueuedBytes += bytes
	}
	return stats
}

// Package runaccess has what package run needs of a router. It is a package of its own so that a router
// does not link runs.
package runaccess

import (
	"context"
	"log/slog"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/sequencer"
)

// Access is what package run needs of a router, and applications do not. Its functions are those of the
// router's node, and safe for concurrent use.
type Access struct {
	Node      string
	Logger    *slog.Logger
	Histories broker.Histories // nil if the broker keeps none

	// Follow hands the publications of a topic over to sink, from the present on, and from one that is
	// in the past after a loss. The topic must be one that no client can name, and is followed once at a
	// time.
	Follow func(topic string, r broker.Retention, sink sequencer.Sink) Follower

	// Revocations returns how often the access of a connection's user to topics was revoked.
	Revocations func(connID string) uint32

	// OnShutdown adds what Router.Shutdown calls. The router must not serve yet.
	OnShutdown func(Shutdown)
}

// A Shutdown is what Router.Shutdown calls. Its functions are required.
type Shutdown struct {
	Begin func()                // before connections are closed
	End   func(context.Context) // when they are closed, before the router leaves the broker
}

// A Follower is what Follow begins.
type Follower struct {
	// WhenAttached calls f once, with the position after which publications are handed over.
	WhenAttached func(f func(broker.Position))

	// Close ends it. A sink may still be called while Close runs.
	Close func()
}

// Shutdowns are called together.
type Shutdowns []Shutdown

// Begin calls Begin of each.
func (all Shutdowns) Begin() {
	for _, s := range all {
		s.Begin()
	}
}

// End calls End of each.
func (all Shutdowns) End(ctx context.Context) {
	for _, s := range all {
		s.End(ctx)
	}
}

// Package host has what other packages of this repository need of a router, and applications do not. The router fills
// its structs with functions and data, so that it links none of these packages.
package host

import (
	"context"
	"log/slog"
	"sync"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/sequencer"
)

// A Host is what a router gives. Its functions are those of the router's node, and safe for concurrent use.
type Host struct {
	Inspection Inspection

	Node      string
	Logger    *slog.Logger
	Histories broker.Histories // nil if the broker keeps none

	// Follow hands the publications of a topic over to sink, from the present on, until Unfollow. The topic must be one that
	// no client can name, and is followed once at a time. A sink may still be called while Unfollow runs.
	Follow   func(topic string, r broker.Retention, sink sequencer.Sink) *sequencer.Sequencer
	Unfollow func(topic string)

	// Tail follows a topic with a History after a position, as Router.Follow does. next returns what was stored, and waits for
	// it. The caller must call stop.
	Tail func(topic string, after broker.Position) (next func(context.Context) ([]broker.Publication, error), stop func())

	// GuardAccess makes a call, whose *router.Context is ctx, ask decide before it sends an item or its answer,
	// if Router.Revoke was called for its user since. An error of decide is the answer. The handler calls GuardAccess
	// before it decides the first time, and sends on its own goroutine.
	GuardAccess func(ctx context.Context, decide func() error)

	// OnAccessEnd adds what every node calls when the access of a user ends, for clients that are no
	// connections of the router. It must not block.
	OnAccessEnd func(func(AccessEnd))

	// AccessEndOf returns the latest call of Router.DisconnectUser for a user after an authentication. ok is
	// false if there is none. It is for clients that OnAccessEnd could not concern yet.
	AccessEndOf func(tenantID, userID string, authentication uint32) (end AccessEnd, ok bool)

	// Authentication returns the number of an authentication that begins after the call.
	Authentication func(context.Context) uint32

	// OnShutdown adds what Router.Shutdown calls. The router must not serve yet.
	OnShutdown func(Shutdown)
}

// An AccessEnd is a call of Router.Revoke or Router.DisconnectUser.
type AccessEnd struct {
	TenantID string
	UserID   string                           // "" is every user: the node has missed whose access has ended
	Before   func(authentication uint32) bool // which authentications it concerns; nil is all

	// Topics reports whether the access to a topic has ended. If it is nil, connections must be closed,
	// with this code and reason.
	Topics func(topic string) bool
	Code   int
	Reason string
}

// Concerns reports whether it is about a user with an authentication.
func (e *AccessEnd) Concerns(tenantID, userID string, authentication uint32) bool {
	return userID != "" && (e.UserID == "" || e.TenantID == tenantID && e.UserID == userID) &&
		(e.Before == nil || e.Before(authentication))
}

// AccessEnds are functions that OnAccessEnd has added. They are safe for concurrent use.
type AccessEnds struct {
	mu  sync.Mutex
	all []func(AccessEnd)
}

// Add adds a function.
func (a *AccessEnds) Add(f func(AccessEnd)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, f)
}

// Call calls each in turn.
func (a *AccessEnds) Call(end AccessEnd) {
	a.mu.Lock()
	all := a.all
	a.mu.Unlock()
	for _, f := range all {
		f(end)
	}
}

// A Shutdown is what Router.Shutdown calls. Its functions are required.
type Shutdown struct {
	Begin func()                // before connections are closed
	End   func(context.Context) // when they are closed, before the router leaves the broker
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

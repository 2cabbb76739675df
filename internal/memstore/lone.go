package memstore

import (
	"context"

	"github.com/penstock-go/penstock/broker"
)

var _ broker.Node = LoneNode{}

// A LoneNode is the node of a router without a broker: there are no others.
type LoneNode struct{}

// Name returns "".
func (LoneNode) Name() string { return "" }

// Nodes returns no other nodes.
func (LoneNode) Nodes() (others []string, all bool) { return nil, true }

// Subscribe does nothing.
func (LoneNode) Subscribe(string) {}

// Unsubscribe does nothing.
func (LoneNode) Unsubscribe(string) {}

// Publish does nothing.
func (LoneNode) Publish(string, []byte) error { return nil }

// Join does nothing.
func (LoneNode) Join(string, string, string) {}

// Leave does nothing.
func (LoneNode) Leave(string, string) {}

// Track does nothing.
func (LoneNode) Track(string) {}

// Untrack does nothing.
func (LoneNode) Untrack(string) {}

// Close does nothing.
func (LoneNode) Close(context.Context) error { return nil }

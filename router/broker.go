package router

import (
	"context"
	"fmt"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/memstore"
)

// A noopNode is the node of a router without a broker.
type noopNode struct{}

// Name returns "".
func (noopNode) Name() string { return "" }

// Nodes returns no other nodes.
func (noopNode) Nodes() (others []string, all bool) { return nil, true }

// Subscribe does nothing.
func (noopNode) Subscribe(string) {}

// Unsubscribe does nothing.
func (noopNode) Unsubscribe(string) {}

// Publish does nothing.
func (noopNode) Publish(string, []byte) error { return nil }

// Join does nothing.
func (noopNode) Join(string, string, string) {}

// Leave does nothing.
func (noopNode) Leave(string, string) {}

// Track does nothing.
func (noopNode) Track(string) {}

// Untrack does nothing.
func (noopNode) Untrack(string) {}

// Close does nothing.
func (noopNode) Close(context.Context) error { return nil }

// connectBroker makes this router a node. The broker may call the handlers before it is one, so the
// topics must have been initialized.
func (r *Router) connectBroker() {
	node, histories := r.join(broker.Handler{
		Receive:         r.receivePacket,
		Subscribed:      func(string) {},
		MessagesLost:    r.messagesLost,
		PresenceChanged: r.topics.PresenceChanged,
		NodeLeft:        r.nodeLeft,
	}, broker.HistoryHandler{Published: r.topics.Published, Following: r.topics.Following})
	r.node, r.histories = node, histories
	r.topics.Connect(node, histories)
	r.initAsks()
	r.node.Subscribe(usersTopic)
	r.node.Subscribe(r.nodeTopic)
}

// join returns the node of this router, and its histories: those of the broker, or nil if that
// keeps none. Without a broker, they are in the memory of this process.
func (r *Router) join(handler broker.Handler, histories broker.HistoryHandler) (broker.Node, broker.Histories) {
	switch b := r.opts.Broker.(type) {
	case nil:
		return noopNode{}, new(memstore.Hub).Connect(histories)
	case broker.HistoryBroker:
		node := b.ConnectHistory(handler, histories)
		mustBeNode("ConnectHistory", "HistoryNode", node == nil)
		return node, node
	default:
		node := b.Connect(handler)
		mustBeNode("Connect", "Node", node == nil)
		return node, nil
	}
}

func mustBeNode(method, want string, isNil bool) {
	if isNil {
		panic("router: Broker." + method + " has returned nil; it must return a " + want)
	}
}

// mustHaveHistories panics if there are none, but an option needs them. lacks says what the broker
// does not do.
func (r *Router) mustHaveHistories(option, lacks string) {
	if r.histories == nil {
		panic(fmt.Sprintf("router: %s: Options.Broker, a %T, %s; it must be a broker.HistoryBroker", option, r.opts.Broker, lacks))
	}
}

// nodeLeft is called when another node has left or failed.
func (r *Router) nodeLeft(node string) {
	r.asks.NodeLeft(node)
	r.topics.NodeLeft(node)
	r.events.Add(func() { r.log.NodeLeft(node) })
}

package router

import (
	"context"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/history"
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

// connectBroker sets the node that publishes to other nodes. The broker may call the
// handler before Connect returns, so the topics must have been initialized.
func (r *Router) connectBroker() {
	handler := broker.Handler{
		Receive:         r.topics.receive,
		Subscribed:      func(string) {},
		MessagesLost:    r.topics.messagesLost,
		PresenceChanged: r.topics.presenceChanged,
		NodeLeft:        r.nodeLeft,
	}
	histories := broker.HistoryHandler{Published: r.topics.published, Following: r.topics.following}
	switch b := r.opts.Broker.(type) {
	case nil:
		r.node = noopNode{}
		r.initAsks()
		r.histories = localHistories{Node: new(history.Hub).Connect(histories)}
		r.reader = history.NewReader(r.histories)
		return
	case broker.HistoryBroker:
		node := b.ConnectHistory(handler, histories)
		mustBeNode("ConnectHistory", "HistoryNode", node == nil)
		r.node, r.histories = node, node
		r.reader = history.NewReader(r.histories)
	default:
		node := b.Connect(handler)
		mustBeNode("Connect", "Node", node == nil)
		r.node = node
	}
	r.initAsks()
	r.node.Subscribe(usersTopic)
	r.node.Subscribe(r.nodeTopic)
}

func mustBeNode(method, want string, isNil bool) {
	if isNil {
		panic("router: Broker." + method + " has returned nil; it must return a " + want)
	}
}

// localHistories keeps the histories of a router without a broker.
type localHistories struct {
	noopNode
	*history.Node
}

// Close does nothing: the node ends with the process.
func (localHistories) Close(context.Context) error { return nil }

// nodeLeft is called when another node has left or failed.
func (r *Router) nodeLeft(node string) {
	r.asks.NodeLeft(node)
	r.topics.held.nodeLeft(node)
	r.events.Add(func() { r.reportNodeLeft(node) })
}

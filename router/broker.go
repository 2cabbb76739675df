package router

import (
	"fmt"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/memstore"
)

// connectBroker makes this router a node. The broker may call the handlers before it is one, so the
// topics must have been initialized.
func (r *Router) connectBroker() {
	r.node, r.histories = r.join(broker.Callbacks{
		Receive:         r.receivePacket,
		Subscribed:      func(string) {},
		MessagesLost:    r.messagesLost,
		PresenceChanged: r.topics.PresenceChanged,
		NodeLeft:        r.nodeLeft,
	})
	r.topics.Connect(r.node, r.histories)
	r.initAsks()
}

// receiveFromNodes begins to receive packets of other nodes. It is called when all that they use is set.
func (r *Router) receiveFromNodes() {
	r.node.Subscribe(usersTopic)
	r.node.Subscribe(r.nodeTopic)
}

// join returns the node of this router, and its histories: those of the broker, or nil if that
// keeps none, or if there is no broker.
func (r *Router) join(handler broker.Callbacks) (broker.Node, broker.Histories) {
	switch b := r.opts.Broker.(type) {
	case nil:
		return memstore.LoneNode{}, nil
	case broker.HistoryBroker:
		node := b.ConnectHistory(handler, r.topics.Callbacks())
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

// useHistories returns the histories of this router, or nil if the broker keeps none. Without a broker, the first call
// makes some in the memory of this process, so that only what needs them links them. The router must not serve yet.
func (r *Router) useHistories() broker.Histories {
	if r.histories == nil && r.opts.Broker == nil {
		r.histories = new(memstore.Hub).Connect(r.topics.Callbacks())
		r.topics.Connect(r.node, r.histories)
	}
	return r.histories
}

// mustHaveHistories panics if there are none, but an option needs them. lacks says what the broker
// does not do.
func (r *Router) mustHaveHistories(option, lacks string) {
	if r.useHistories() == nil {
		panic(fmt.Sprintf("router: %s: Options.Broker, a %T, %s; it must be a broker.HistoryBroker", option, r.opts.Broker, lacks))
	}
}

// nodeLeft is called when another node has left or failed.
func (r *Router) nodeLeft(node string) {
	r.asks.NodeLeft(node)
	r.away.NodeLeft(node)
	r.hooks.Later.Add(func() { r.log.NodeLeft(node) })
}

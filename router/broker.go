package router

import (
	"fmt"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/memstore"
)

// connectBroker makes this router a node. The broker may call the handlers before it is one, so the
// topics must have been initialized.
func (r *Router) connectBroker() {
	node, histories := r.join(broker.Callbacks{
		Receive:         r.receivePacket,
		Subscribed:      func(string) {},
		MessagesLost:    r.messagesLost,
		PresenceChanged: r.topics.PresenceChanged,
		NodeLeft:        r.nodeLeft,
	}, broker.HistoryCallbacks{Published: r.topics.Published, Following: r.topics.Following})
	r.node, r.histories = node, histories
	r.topics.Connect(node, histories)
	r.initAsks()
}

// receiveFromNodes begins to receive packets of other nodes. It is called when all that they use is set.
func (r *Router) receiveFromNodes() {
	r.node.Subscribe(usersTopic)
	r.node.Subscribe(r.nodeTopic)
}

// join returns the node of this router, and its histories: those of the broker, or nil if that
// keeps none. Without a broker, they are in the memory of this process.
func (r *Router) join(handler broker.Callbacks, histories broker.HistoryCallbacks) (broker.Node, broker.Histories) {
	switch b := r.opts.Broker.(type) {
	case nil:
		return memstore.LoneNode{}, new(memstore.Hub).Connect(histories)
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

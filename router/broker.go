package router

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
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
		Receive:         r.receivePacket,
		Subscribed:      func(string) {},
		MessagesLost:    r.messagesLost,
		PresenceChanged: r.topics.PresenceChanged,
		NodeLeft:        r.nodeLeft,
	}
	histories := broker.HistoryHandler{Published: r.topics.Published, Following: r.topics.Following}
	switch b := r.opts.Broker.(type) {
	case nil:
		r.node = noopNode{}
		r.initAsks()
		r.histories = localHistories{Node: new(history.Hub).Connect(histories)}
		r.connectTopics()
		return
	case broker.HistoryBroker:
		node := b.ConnectHistory(handler, histories)
		mustBeNode("ConnectHistory", "HistoryNode", node == nil)
		r.node = recoveringNode{r, node}
		r.histories = recoveringHistories{recoveringNode{r, node}, node}
	default:
		node := b.Connect(handler)
		mustBeNode("Connect", "Node", node == nil)
		r.node = recoveringNode{r, node}
	}
	r.connectTopics()
	r.initAsks()
	r.node.Subscribe(usersTopic)
	r.node.Subscribe(r.nodeTopic)
}

// connectTopics passes the node to the topics.
func (r *Router) connectTopics() { r.topics.Connect(r.node, r.histories) }

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

// A recoveringHistories recovers the panics of a broker that keeps histories.
type recoveringHistories struct {
	recoveringNode

	node broker.HistoryNode
}

// Append calls the broker.
func (g recoveringHistories) Append(ctx context.Context, p broker.Append) (stored broker.Appended, err error) {
	defer g.recoverAs("Broker.Append", broker.OutcomeUnknown, &err)
	return g.node.Append(ctx, p)
}

// Read calls the broker.
func (g recoveringHistories) Read(ctx context.Context, q broker.Query) (page broker.Page, err error) {
	defer g.recoverAs("Broker.Read", errors.Internal, &err)
	return g.node.Read(ctx, q)
}

// ReadAll calls the broker.
func (g recoveringHistories) ReadAll(ctx context.Context, b broker.Batch) (pages []broker.BatchPage, err error) {
	defer g.recoverAs("Broker.ReadAll", errors.Internal, &err)
	return g.node.ReadAll(ctx, b)
}

// ReadState calls the broker.
func (g recoveringHistories) ReadState(ctx context.Context, q broker.StateQuery) (part broker.StatePart, err error) {
	defer g.recoverAs("Broker.ReadState", errors.Internal, &err)
	return g.node.ReadState(ctx, q)
}

// LoadValue calls the broker.
func (g recoveringHistories) LoadValue(ctx context.Context, key string) (value broker.Value, err error) {
	defer g.recoverAs("Broker.LoadValue", errors.Internal, &err)
	return g.node.LoadValue(ctx, key)
}

// StoreValue calls the broker.
func (g recoveringHistories) StoreValue(ctx context.Context, key string, data []byte, version uint64, lifetime time.Duration) (newVersion uint64, err error) {
	defer g.recoverAs("Broker.StoreValue", broker.OutcomeUnknown, &err)
	return g.node.StoreValue(ctx, key, data, version, lifetime)
}

// PatchValue calls the broker.
func (g recoveringHistories) PatchValue(ctx context.Context, key string, p broker.Patch, version uint64, lifetime time.Duration) (newVersion uint64, err error) {
	defer g.recoverAs("Broker.PatchValue", broker.OutcomeUnknown, &err)
	return g.node.PatchValue(ctx, key, p, version, lifetime)
}

// Follow calls the broker.
func (g recoveringHistories) Follow(topic string) {
	defer g.recover("Broker.Follow")
	g.node.Follow(topic)
}

// Unfollow calls the broker.
func (g recoveringHistories) Unfollow(topic string) {
	defer g.recover("Broker.Unfollow")
	g.node.Unfollow(topic)
}

// recoverAs is recover that sets an error.
func (g recoveringHistories) recoverAs(name string, code errors.Code, err *error) {
	if v := recover(); v != nil {
		g.router.observe(Event{Kind: EventPanicked, Reason: name})
		g.router.logAsync(name, v)
		*err = &errors.Error{Code: code, Err: &PanicError{Value: v}}
	}
}

// nodeLeft is called when another node has left or failed.
func (r *Router) nodeLeft(node string) {
	r.asks.NodeLeft(node)
	r.topics.NodeLeft(node)
	r.events.Add(func() { r.logNodeLeft(node) })
}

// A recoveringNode recovers the panics of a broker's node. Topics call it under their
// locks, so that subscriptions and presence reach the broker in order.
type recoveringNode struct {
	router *Router
	node   broker.Node
}

// Name calls the broker, when the program starts.
func (g recoveringNode) Name() string { return g.node.Name() }

// Nodes calls the broker. After a panic it returns that there may be other nodes.
func (g recoveringNode) Nodes() (others []string, all bool) {
	defer g.recover("Broker.Nodes")
	return g.node.Nodes()
}

// Subscribe calls the broker.
func (g recoveringNode) Subscribe(topic string) {
	defer g.recover("Broker.Subscribe")
	g.node.Subscribe(topic)
}

// Unsubscribe calls the broker.
func (g recoveringNode) Unsubscribe(topic string) {
	defer g.recover("Broker.Unsubscribe")
	g.node.Unsubscribe(topic)
}

// Publish calls the broker. After a panic it returns nil: this node's subscribers have received the
// message, and the panic is reported.
func (g recoveringNode) Publish(topic string, packet []byte) error {
	defer g.recover("Broker.Publish")
	return g.node.Publish(topic, packet)
}

// Join calls the broker.
func (g recoveringNode) Join(topic, id, data string) {
	defer g.recover("Broker.Join")
	g.node.Join(topic, id, data)
}

// Leave calls the broker.
func (g recoveringNode) Leave(topic, id string) {
	defer g.recover("Broker.Leave")
	g.node.Leave(topic, id)
}

// Track calls the broker.
func (g recoveringNode) Track(topic string) {
	defer g.recover("Broker.Track")
	g.node.Track(topic)
}

// Untrack calls the broker.
func (g recoveringNode) Untrack(topic string) {
	defer g.recover("Broker.Untrack")
	g.node.Untrack(topic)
}

// Close calls the broker.
func (g recoveringNode) Close(ctx context.Context) error {
	defer g.recover("Broker.Close")
	return g.node.Close(ctx)
}

// recover reports a panic of the broker. It may run under a lock, so it must not call Logger.
func (g recoveringNode) recover(name string) {
	if v := recover(); v != nil {
		g.router.observe(Event{Kind: EventPanicked, Reason: name})
		g.router.logAsync(name, v)
	}
}

package router

import (
	"context"
	"log/slog"

	"github.com/penstock-go/penstock/broker"
)

// A noopSession is the session of a router without a broker.
type noopSession struct{}

// Subscribe does nothing.
func (noopSession) Subscribe(string) {}

// Unsubscribe does nothing.
func (noopSession) Unsubscribe(string) {}

// Publish does nothing.
func (noopSession) Publish(string, []byte) error { return nil }

// Join does nothing.
func (noopSession) Join(string, string, string) {}

// Leave does nothing.
func (noopSession) Leave(string, string) {}

// Track does nothing.
func (noopSession) Track(string) {}

// Untrack does nothing.
func (noopSession) Untrack(string) {}

// Close does nothing.
func (noopSession) Close(context.Context) error { return nil }

// connectBroker sets the session that publishes to other nodes. The broker may call the
// handler before Connect returns, so the topics must have been initialized.
func (r *Router) connectBroker() {
	r.session = noopSession{}
	if r.opts.Broker == nil {
		return
	}
	session := r.opts.Broker.Connect(broker.Handler{
		Receive:         r.topics.receive,
		Subscribed:      func(string) {},
		MessagesLost:    r.topics.messagesLost,
		PresenceChanged: r.topics.presenceChanged,
		NodeLeft:        r.nodeLeft,
	})
	if session == nil {
		panic("router: Broker.Connect has returned nil; it must return a Session")
	}
	r.session = recoveringSession{r, session}
	r.session.Subscribe(usersTopic)
}

// nodeLeft is called when another node has left or failed.
func (r *Router) nodeLeft(node string) {
	r.events.Add(func() { r.log(slog.LevelDebug, "node left", slog.String("node", node)) })
}

// A recoveringSession recovers the panics of a broker's session. Topics call it under their
// locks, so that subscriptions and presence reach the broker in order.
type recoveringSession struct {
	router  *Router
	session broker.Session
}

// Subscribe calls the broker.
func (g recoveringSession) Subscribe(topic string) {
	defer g.recover("Broker.Subscribe")
	g.session.Subscribe(topic)
}

// Unsubscribe calls the broker.
func (g recoveringSession) Unsubscribe(topic string) {
	defer g.recover("Broker.Unsubscribe")
	g.session.Unsubscribe(topic)
}

// Publish calls the broker. After a panic it returns nil: this node's subscribers have received the
// message, and the panic is reported.
func (g recoveringSession) Publish(topic string, packet []byte) error {
	defer g.recover("Broker.Publish")
	return g.session.Publish(topic, packet)
}

// Join calls the broker.
func (g recoveringSession) Join(topic, id, data string) {
	defer g.recover("Broker.Join")
	g.session.Join(topic, id, data)
}

// Leave calls the broker.
func (g recoveringSession) Leave(topic, id string) {
	defer g.recover("Broker.Leave")
	g.session.Leave(topic, id)
}

// Track calls the broker.
func (g recoveringSession) Track(topic string) {
	defer g.recover("Broker.Track")
	g.session.Track(topic)
}

// Untrack calls the broker.
func (g recoveringSession) Untrack(topic string) {
	defer g.recover("Broker.Untrack")
	g.session.Untrack(topic)
}

// Close calls the broker.
func (g recoveringSession) Close(ctx context.Context) error {
	defer g.recover("Broker.Close")
	return g.session.Close(ctx)
}

// recover reports a panic of the broker. It may run under a lock, so it must not call Logger.
func (g recoveringSession) recover(name string) {
	if v := recover(); v != nil {
		g.router.observe(Event{Kind: EventPanicked, Reason: name})
		g.router.logAsync(name, v)
	}
}

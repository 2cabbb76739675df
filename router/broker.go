package router

import (
	"context"

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
		Receive:      r.topics.receive,
		Subscribed:   r.topics.subscribed,
		MessagesLost: r.topics.messagesLost,
		NodeLeft:     r.topics.nodeLeft,
	})
	if session == nil {
		panic("router: Broker.Connect has returned nil; it must return a Session")
	}
	r.session = recoveringSession{r, session}
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

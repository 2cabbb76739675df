package router

import "github.com/penstock-go/penstock/broker"

// noopSession is the session of a router without a broker.
type noopSession struct{}

// Subscribe does nothing.
func (noopSession) Subscribe(string) {}

// Unsubscribe does nothing.
func (noopSession) Unsubscribe(string) {}

// Publish does nothing.
func (noopSession) Publish(string, []byte) {}

// Close does nothing.
func (noopSession) Close() {}

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

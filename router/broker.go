package router

// A Broker carries what is published on one node to the subscribers on the others. It
// may lose packets, but says so, and it neither doubles them nor changes their order.
// Package brokertest checks every rule below; what passes its suite is a Broker.
type Broker interface {
	// Join makes a node of a router. [New] calls it, once, and does not recover from
	// its panics.
	Join(Node) Link
}

// A Link is a node's way to the others. Its methods are safe for concurrent use,
// return at once, and call none of the Node's functions before they return. The router
// recovers from their panics, and reports each as an [EventPanicked] and to Options.Logger.
type Link interface {
	// Subscribe asks for what others publish on topic. The router calls it when a
	// topic gets its first subscriber, and Unsubscribe when it has lost its last.
	Subscribe(topic string)

	// Unsubscribe undoes Subscribe. Packets that are on their way may still come.
	Unsubscribe(topic string)

	// Publish sends a packet to all other nodes that subscribe to topic. It takes
	// over the packet.
	Publish(topic string, packet []byte)

	// Close takes the node out. The others are told that it is down.
	Close()
}

// A Node is what a broker tells things to. The functions return soon. What comes from
// one node on one topic comes in the order in which it was published, one at a time.
type Node struct {
	// Receive takes a packet that the node called from has published. The packet is
	// valid until Receive returns, and must not be changed.
	Receive func(topic, from string, packet []byte)

	// Subscribed says that whatever is published on topic from now on will come. It
	// is said again whenever the way to the others was interrupted.
	Subscribed func(topic string)

	// Missed says that packets were lost: how many, or 0 if that is not known.
	Missed func(topic string, packets int)

	// Down says that a node has gone, whether it said goodbye or not.
	Down func(from string)
}

// alone is the Link of a router without a broker.
type alone struct{}

// Subscribe does nothing.
func (alone) Subscribe(string) {}

// Unsubscribe does nothing.
func (alone) Unsubscribe(string) {}

// Publish does nothing.
func (alone) Publish(string, []byte) {}

// Close does nothing.
func (alone) Close() {}

func (r *Router) join() {
	r.link = alone{}
	if r.opts.Broker == nil {
		return
	}
	link := r.opts.Broker.Join(Node{
		Receive:    r.topics.receive,
		Subscribed: r.topics.subscribed,
		Missed:     r.topics.missed,
		Down:       r.topics.down,
	})
	if link == nil {
		panic("router: Broker.Join has returned nil; it must return a Link")
	}
	r.link = guardedLink{r, link}
}

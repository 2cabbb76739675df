package broker

// A Broker carries what is published on one node to the subscribers on the others. It
// may lose packets, but reports that, and it neither duplicates packets nor changes their
// order. Package brokertest checks every rule of this contract.
type Broker interface {
	// Connect adds a node to the cluster. router.New calls it, once.
	Connect(Handler) Session
}

// A Session is one node's connection to the cluster. Its methods are safe for concurrent
// use, return at once, and do not call functions of the Handler before they return.
type Session interface {
	// Subscribe asks for what others publish on topic. The router calls it when a
	// topic gets its first local subscriber, and Unsubscribe when the last one leaves.
	Subscribe(topic string)

	// Unsubscribe undoes Subscribe. Packets in flight may still arrive.
	Unsubscribe(topic string)

	// Publish sends a packet to all other nodes that subscribe to topic. It takes
	// ownership of the packet.
	Publish(topic string, packet []byte)

	// Close removes the node from the cluster. The other nodes get NodeLeft.
	Close()
}

// A Handler receives what happens in the cluster. Every field must be set. The functions
// return soon. Packets of one node on one topic are delivered one at a time, in the order
// in which they were published.
type Handler struct {
	// Receive handles a packet published by node from. The packet is valid until Receive
	// returns, and must not be changed.
	Receive func(topic, from string, packet []byte)

	// Subscribed reports that everything published on topic from now on is delivered. It
	// is called again after every interruption.
	Subscribed func(topic string)

	// MessagesLost reports that packets were lost: how many, or 0 if that is unknown.
	MessagesLost func(topic string, packets int)

	// NodeLeft reports that a node has closed its session or has failed.
	NodeLeft func(node string)
}

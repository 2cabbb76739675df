package broker

// A Broker delivers what is published on one node to the nodes that subscribe to its topic. It
// may lose packets, but then reports the loss. It neither duplicates nor reorders packets.
// Package brokertest checks every rule of this contract.
type Broker interface {
	// Connect adds a node to the cluster. The router calls it once, in router.New.
	Connect(Handler) Session
}

// A Session is one node's connection to the cluster. Its methods are safe for concurrent use,
// do not block, and leave calls of the Handler to other goroutines.
type Session interface {
	// Subscribe requests the packets that other nodes publish on topic. The router calls it
	// for the first local subscriber of a topic, and Unsubscribe after the last one.
	Subscribe(topic string)

	// Unsubscribe undoes Subscribe. Packets in flight may still be delivered.
	Unsubscribe(topic string)

	// Publish sends a packet to all other nodes that subscribe to topic. It takes
	// ownership of the packet.
	Publish(topic string, packet []byte)

	// Close removes the node from the cluster, and NodeLeft is called on the other nodes.
	// The methods of a closed session do nothing.
	Close()
}

// A Handler contains the functions that a broker calls on a node. Every field must be set. The
// functions must return quickly and be safe for concurrent use. Packets of one node on one topic
// are delivered one at a time, in the order in which they were published.
type Handler struct {
	// Receive handles a packet published by node from. The packet is valid until Receive
	// returns, and must not be changed.
	Receive func(topic, from string, packet []byte)

	// Subscribed reports that everything published on topic from this moment on is
	// delivered, or reported as lost. It is called again after every interruption.
	Subscribed func(topic string)

	// MessagesLost reports the number of lost packets, or 0 if the number is unknown.
	MessagesLost func(topic string, packets int)

	// NodeLeft reports that a node has closed its session or has failed.
	NodeLeft func(node string)
}

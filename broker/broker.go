package broker

import "context"

// A Broker delivers what is published on one node to the nodes that subscribe to its topic. It
// may lose packets, but then reports the loss. It does not duplicate packets.
//
// Packets that one node publishes on one topic are delivered to every subscriber in the order of
// publication. Nothing is promised about packets of different nodes or of different topics: two
// subscribers may receive the packets of two publishers in different orders.
//
// Package brokertest checks every rule of this contract.
type Broker interface {
	// Connect adds a node to the cluster. The router calls it once, in router.New.
	Connect(Callbacks) Node
}

// A Node is one node's connection to the cluster. Its methods are safe for concurrent use.
// Except for Close they do not block, and leave calls of the Callbacks to other goroutines.
type Node interface { //nolint:interfacebloat // all that a node does in the cluster
	// Name returns the name of this node: what other nodes receive as the publisher of its packets.
	Name() string

	// Nodes returns the names of the other nodes: those that have neither left nor failed, as NodeLeft
	// reports it. It reports false while there may be others, as after Connect and while the node's
	// connection is interrupted.
	Nodes() (others []string, all bool)

	// Subscribe requests the packets that other nodes publish on topic. The router calls it
	// for the first local subscriber of a topic, and Unsubscribe after the last one.
	Subscribe(topic string)

	// Unsubscribe undoes Subscribe. Packets in flight may still be delivered.
	Unsubscribe(topic string)

	// Publish sends a packet to all other nodes that subscribe to topic. It takes ownership of
	// the packet, and returns before the packet is sent. An error means that the packet is not
	// sent: RESOURCE_EXHAUSTED if too many bytes wait to be sent, UNAVAILABLE after Close. A
	// packet that is lost for any other reason than Close, later or with an error, is reported
	// to the subscribers' nodes with MessagesLost.
	Publish(topic string, packet []byte) error

	// Join makes a member of this node present in topic, and Leave ends that. IDs are unique on
	// a node; joining again with other data replaces the data.
	Join(topic, id, data string)
	Leave(topic, id string)

	// Track requests the members that other nodes have in topic: Callbacks.PresenceChanged is
	// called for each of them, and again for every change. The router subscribes to a topic
	// before it tracks it. Untrack undoes Track, and reports the members as left.
	Track(topic string)
	Untrack(topic string)

	// Close sends the packets that wait, then removes the node from the cluster, and NodeLeft is
	// called on the other nodes. It returns when that is done or soon after ctx is done, with an
	// error that contains the number of packets that were not sent. Afterwards nothing is
	// published and no function of the Callbacks is called, so Close must not be called by one.
	// The methods of a closed node do nothing; Close then returns nil.
	Close(ctx context.Context) error
}

// Callbacks are the functions that a broker calls on a node. One that is nil is not called. The
// functions must return quickly and be safe for concurrent use. Calls of Receive, Subscribed and
// MessagesLost for one subscription are made one at a time.
type Callbacks struct {
	// Receive handles a packet published by node from. The packet is valid until Receive
	// returns, and must not be changed.
	Receive func(topic, from string, packet []byte)

	// Subscribed reports that everything published on topic from this moment on is delivered,
	// or reported as lost. It is called once after Subscribe, and again immediately before
	// every MessagesLost with 0.
	Subscribed func(topic string)

	// MessagesLost reports the number of lost packets, or 0 if the number is unknown, as after
	// an interruption of the connection. It is called when the subscription works again, so
	// that an application which then loads the current state misses nothing: the report covers
	// every packet that was published before it and is not delivered. Losses of one topic that
	// are detected within about a second, and all losses of one interruption, share a report.
	MessagesLost func(topic string, packets int)

	// PresenceChanged reports that a member of another node has joined or left a topic that
	// this node tracks. Joins and leaves of a member alternate, and calls are made one at a
	// time. Whatever was lost, all nodes report the same members soon after they can reach each
	// other again. The members of a node that has failed leave.
	PresenceChanged func(topic string, m Member, joined bool)

	// NodeLeft reports that a node has closed its node or has failed. It is called once for
	// a node, unless the node was received again in between, and never for this node.
	NodeLeft func(node string)
}

// Complete returns h with functions that do nothing in place of those that are nil. It is for adapters.
func (h Callbacks) Complete() Callbacks {
	if h.Receive == nil {
		h.Receive = func(string, string, []byte) {}
	}
	if h.Subscribed == nil {
		h.Subscribed = func(string) {}
	}
	if h.MessagesLost == nil {
		h.MessagesLost = func(string, int) {}
	}
	if h.PresenceChanged == nil {
		h.PresenceChanged = func(string, Member, bool) {}
	}
	if h.NodeLeft == nil {
		h.NodeLeft = func(string) {}
	}
	return h
}

// A Member is present in a topic.
type Member struct {
	Node string // the name that the member's node has as publisher
	ID   string
	Data string // opaque to the broker
}

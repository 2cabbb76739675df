package cluster

import (
	"context"
	"time"
)

// An Engine carries bytes between nodes, for example through a server with publish and subscribe.
// It may lose, repeat and delay messages. It must not reorder the messages that one node publishes
// in one partition; messages that arrive late nevertheless are discarded.
type Engine interface {
	// Channel returns where a name of a kind is carried. It is the same on all nodes.
	Channel(kind Kind, name string) Channel

	// Connect adds a node and returns at once. The engine calls the functions of events until
	// Link.Close, possibly before Connect returns, never under a lock that a method of Link
	// acquires.
	Connect(node string, events Events) Link
}

// A Kind is a namespace of channels.
type Kind string

// The kinds of channels.
const (
	TopicChannel Kind = "topic" // the name is a topic
	NodesChannel Kind = "nodes" // heartbeats of all nodes; the name is empty
	NodeChannel  Kind = "node"  // messages to one node, whose name it has
)

// A Channel is a named stream of messages.
type Channel struct {
	Name string // unique among all kinds and partitions

	// Partition is the unit of order: at most one batch of a partition is published at a time.
	Partition int
}

// Events contains the functions that an engine calls. Calls for one channel are made one at a
// time, except that Received may be concurrent while a channel moves to another connection.
type Events struct {
	// Received handles a message. The payload is valid until Received returns.
	Received func(channel string, payload []byte)

	// Confirmed reports that a subscription is in effect: all that is published on the channel
	// from this moment on is received, until Interrupted. It is called once after each
	// SetSubscribed with true, and again after each interruption. What an earlier subscription
	// to the channel has left in transit is received before it, or not at all.
	Confirmed func(channel string)

	// Interrupted reports that subscriptions which were confirmed are not in effect anymore.
	// The engine restores them without a further request.
	Interrupted func(channels []string)
}

// A Link is the connection of one node. Its methods are safe for concurrent use.
type Link interface {
	Publisher
	Subscriber

	// Close ends the connection without notice to other nodes. Calls of events may still run.
	Close()
}

// A Publisher is the half of a Link that sends.
type Publisher interface {
	// Path returns the path on which a partition is published now. Batches of different paths
	// are published concurrently, and a failure of one path does not delay the others. It does
	// not block.
	Path(partition int) string

	// Publish publishes messages of one path in their order, and sets Err of those that may not
	// have been published. It must end soon after ctx is done. It does not keep the messages.
	Publish(ctx context.Context, batch []*Message)
}

// A Message is a payload to publish.
type Message struct {
	Channel Channel
	Payload []byte
	Err     error
}

// A Subscriber is the half of a Link that receives.
type Subscriber interface {
	// SetSubscribed changes whether the node subscribes to a channel. It does not block. Calls
	// for one channel must not be concurrent.
	SetSubscribed(channel Channel, subscribed bool)

	// Probes returns one probe for each receiving connection that is established.
	Probes() []Probe

	// Suspect opens another connection, because the given probe has not returned in time. Unless a
	// probe returns soon, the new connection replaces the old one, which is an interruption. It
	// does not block, and has no effect while that is being done.
	Suspect(probe Channel)

	// Reconnect replaces the connection with the given probe, because messages have not arrived
	// there. It does not block.
	Reconnect(probe Channel)
}

// A Probe is a channel that one node alone publishes on, to prove that one of its receiving
// connections is reached by what it publishes. The engine subscribes to it.
type Probe struct {
	Channel Channel
	Idle    time.Duration // since a message arrived on the connection
}

package host

import (
	"context"

	"github.com/penstock-go/penstock/broker"
)

// An Inspection is what package inspect needs, which selects and encodes it.
type Inspection struct {
	// Conn returns the details of an open connection.
	Conn func(connID string) (found Conn, ok bool)

	// UserConns returns the IDs of a user's open connections.
	UserConns func(tenantID, userID string) []string

	// Topics returns topics with subscribers on this node whose names have a prefix and follow
	// after, sorted by name, at most limit of them. more is true if there are others.
	Topics func(prefix, after string, limit int) (found []Topic, more bool)

	// Stored returns what the history of a topic stores; the zero Stored without a history. It waits for
	// the store.
	Stored func(ctx context.Context, topic string) (Stored, error)

	// ObserveDeliveries sets what is called for each publication that is delivered to subscribers of this
	// node, while nothing waits for a lock; nil ends that.
	ObserveDeliveries func(func(Delivery))

	// Ask asks all other nodes, as ask.Node does. Answer sets what answers their questions.
	Ask    func(ctx context.Context, question []byte) (answers []NodeAnswer, all bool, err error)
	Answer func(answer func(question []byte) []byte)
}

// A NodeAnswer is what a node has answered.
type NodeAnswer struct {
	Node   string
	Answer []byte // if Err is nil
	Err    error
}

// A Conn is what only the router knows of a connection.
type Conn struct {
	Calls  int     // of the client, without an answer
	Topics []Topic // to which it subscribes, by name; without their members

	// MessageTokens are left of Limits.MessagesPerConn, whose burst is MessageBurst.
	MessageTokens, MessageBurst int
}

// A Topic has subscribers on this node.
type Topic struct {
	Name        string
	Pattern     string          // that declares it, or ""
	Subscribers int             // on this node
	Members     int             // on all nodes, as far as this node knows
	Position    broker.Position // of the last publication here; zero without a history, or while it is not known
}

// A Stored is what the history of a topic stores.
type Stored struct {
	Messages    uint64
	Latest      int   // how many of the latest messages were read
	LatestBytes int64 // of the packets of these
}

// A Delivery is a publication that a node has queued for subscribers.
type Delivery struct {
	Topic     string
	Offset    uint64 // its position; 0 without a history
	Message   []byte // the message in JSON, valid during the call; nil if no subscriber uses JSON
	Receivers int
}

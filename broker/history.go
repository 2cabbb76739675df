package broker

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// A HistoryBroker is a [Broker] that also keeps the publications of topics. The router calls
// ConnectHistory instead of Connect.
type HistoryBroker interface {
	Broker
	ConnectHistory(Handler, HistoryHandler) HistorySession
}

// A HistorySession is a [Session] of a broker that keeps the publications of topics. It assigns
// every publication a position, stores it, and publishes it to all nodes that follow the topic, in
// one step.
//
// Positions of a topic have these properties:
//
//   - Offsets are gapless: the publication after offset n has offset n+1, in the same epoch or in
//     the next one.
//   - All publications of one epoch were stored by one term of the store, so two publications never
//     share a position. When the store may have lost publications that nodes have seen, after a
//     failover for example, the next position has a new epoch, and the last offset continues.
//   - Position metadata outlives publications: a topic whose publications have all expired keeps
//     its epoch and its last offset for at least a day.
//   - The first position of a topic, with offset 0, exists before its first publication.
//
// Methods are safe for concurrent use. They block, and return when their context is done. Package
// brokertest checks every rule.
type HistorySession interface {
	Session

	// Append stores and publishes p. The calls of a caller that waits for each are stored in order;
	// concurrent calls for a topic are stored in the order in which they began, unless one fails.
	// An error with the code [OutcomeUnknown] means that p may have been stored; any other
	// error means that it was not, and will not be.
	Append(ctx context.Context, p Append) (Appended, error)

	// Read returns stored publications of a topic and its current position. It never reads a
	// replica, so the position is not older than what any node has received.
	Read(ctx context.Context, q Query) (Page, error)

	// ReadState returns the current state of a topic whose publications have keys.
	ReadState(ctx context.Context, topic string, r Retention) (State, error)

	// Follow requests the publications of a topic, also those of this node: Handler.Published is
	// called for each, in order. Gaps and duplicates are possible, for example after an
	// interruption; offsets show them. Unfollow undoes Follow; publications in flight may still be
	// delivered.
	Follow(topic string)
	Unfollow(topic string)
}

// A HistoryHandler contains the functions that a broker with histories calls on a node, in addition
// to those of [Handler]. The rules of Handler apply. Calls for one topic are made one at a time.
type HistoryHandler struct {
	// Published handles a publication of a topic that this node follows. The packet is valid
	// until Published returns, and must not be changed.
	Published func(topic string, p Publication)

	// Following reports that everything stored from this moment on is passed to Published, unless
	// an offset is missing. It is called once after Follow, and again after every interruption
	// that may have lost publications: the node then reads what it has missed.
	Following func(topic string)
}

// OutcomeUnknown is the code of an error after which a publication may have been stored: the
// connection broke, or the context ended, before the store answered. Appending it again is safe only
// with an idempotency key.
const OutcomeUnknown errors.Code = "OUTCOME_UNKNOWN"

// A Position is a place in the history of a topic: right after the publication with this offset. The
// zero Position is none.
type Position struct {
	Epoch  string // random, never used again
	Offset uint64 // at most 1<<53 - 1, so that JavaScript represents it exactly
}

// A Retention bounds what a history stores. Changing it affects later calls, and keeps positions.
type Retention struct {
	Messages int           // the newest ones; at least 1
	Age      time.Duration // older publications are not returned; 0 means a day
	Bytes    int64         // of packets; 0 is unlimited
}

// An Append is a publication to be stored.
type Append struct {
	Topic     string
	Retention Retention
	Packet    []byte // opaque to the broker, which takes ownership

	// IdempotencyKey makes a repeated Append harmless: if one with the same topic and key was
	// stored at most [IdempotencyTime] ago, Append stores nothing and returns its position. ""
	// is no key.
	IdempotencyKey string

	// StateKey makes the publication the current state of the key, which [HistorySession.ReadState]
	// returns. If Removed is set, the key has no state any more. "" is no key.
	StateKey string
	Removed  bool
}

// IdempotencyTime is how long an idempotency key is remembered, unless a broker is configured
// otherwise.
const IdempotencyTime = 5 * time.Minute

// An Appended is the result of an Append.
type Appended struct {
	Position  Position
	Duplicate bool // the position is that of an earlier Append with the same idempotency key
}

// A Publication is a stored packet.
type Publication struct {
	Position Position
	At       time.Time // when it was stored, by the clock of the store
	Packet   []byte
	StateKey string
	Removed  bool
}

// A Query selects publications of a topic.
type Query struct {
	Topic     string
	Retention Retention

	After  uint64 // publications with a higher offset
	Before uint64 // and with a lower offset; 0 is unlimited
	Limit  int    // at most this many; 0 returns only the position

	// Backward selects the newest publications instead of the oldest. They are returned in
	// ascending order nevertheless.
	Backward bool
}

// A Page is the result of a Query: adjacent publications in ascending order.
type Page struct {
	Publications []Publication
	Position     Position // the current one, of the last publication

	// Previous is the position at which the previous epoch ended: publications with a higher
	// offset in that epoch, if there were any, are lost. It is the zero Position if the current
	// epoch is the first that is known.
	Previous Position
}

// A State is the result of ReadState: the latest publication of every key that has one, in any
// order, as of Position.
type State struct {
	Publications []Publication
	Position     Position
}

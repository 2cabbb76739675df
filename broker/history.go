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
	ConnectHistory(Callbacks, HistoryCallbacks) HistoryNode
}

// A HistoryNode is a [Node] of a broker that keeps the publications of topics.
type HistoryNode interface {
	Node
	Histories
}

// Histories are the publications of topics as one node uses them. They assign every publication a
// position, store it, and publish it to all nodes that follow the topic, in one step.
//
// Positions of a topic have these properties:
//
//   - Offsets are gapless: the publication after offset n has offset n+1, in the same epoch or in
//     the next one.
//   - All publications of one epoch were stored by one term of the store, so two publications never
//     share a position. When the store may have lost publications that nodes have seen, after a
//     failover for example, the next position has a new epoch, and the last offset continues.
//   - Position metadata outlives publications: a topic keeps its epoch and its last offset for at
//     least a day after its last publication has expired or its position was last read. Nodes
//     read the topics that they follow, so those keep them however long nothing is published.
//   - A topic has a first position, with offset 0, before its first publication, which continues in its
//     epoch. Reading a topic without publications stores nothing for it, so its epoch belongs to the
//     store: many topics may have the same one. When the store has forgotten other topics, it may end,
//     as Page.Previous of this one says for at least a day.
//   - The highest fence of a topic, and whether it is closed, are part of its position metadata: a new
//     epoch keeps them, and they are forgotten with the position. A failover that loses a publication
//     also loses the change that its Append.Fence or Append.Last has made.
//
// If the memory of the store is full, Append, and StoreValue and PatchValue unless they delete, return an error with the
// code RESOURCE_EXHAUSTED and change nothing. Other calls succeed.
//
// Append, Read, ReadAll, ReadState and the methods of [ValueStore] block, and return when their context is
// done or soon after. If it is done before the call, they do nothing and return its error. After
// Node.Close they do nothing and return an UNAVAILABLE error. Methods are safe for concurrent use.
// Package brokertest checks every rule.
type Histories interface { //nolint:interfacebloat // all that a node does with histories
	ValueStore

	// Append stores and publishes p. The calls of a caller that waits for each are stored in order;
	// concurrent calls for a topic are stored in the order in which they began, unless one fails.
	// An error with the code [errors.OutcomeUnknown] means that p may have been stored, or may yet be
	// stored; any other error means that it was not, and will not be.
	//
	// Append decides in this order: a duplicate by its idempotency key returns the first position,
	// whatever Fence says and even if the topic is closed; a closed topic refuses p with the code
	// FAILED_PRECONDITION; a topic with a higher fence or another epoch refuses it with the code
	// ABORTED.
	Append(ctx context.Context, p Append) (Appended, error)

	// Read returns stored publications of a topic and its current position, as of one moment. It
	// never reads a replica, so the position is not older than what any node has received. It
	// deletes nothing, whatever the retention says, and needs no memory of the store for the topic.
	Read(ctx context.Context, q Query) (Page, error)

	// ReadAll reads several topics in few round trips, each as of one moment, and returns a page for each of
	// b.Topics, in their order. An error of the second result means that nothing was read; if only some of
	// the topics could not be read, their pages have errors. What Read says about replicas, deletions and
	// memory holds here, too.
	ReadAll(ctx context.Context, b Batch) ([]BatchPage, error)

	// ReadState returns a part of the current state of a topic whose publications have keys, as of one
	// moment. Retention.Age applies to the publications of the state, Messages and Bytes do not: a
	// key keeps its state when the history no longer contains the publication.
	//
	// A caller reads the whole state by passing StatePart.Next until it is empty. As long as the epoch of
	// StatePart.Position is the same in all parts, a key whose publication does not change meanwhile is
	// in at least one of them. A key that changes may be in none, in one, or in several: its later
	// publications have offsets above the Position of the first part. However fast keys change, the
	// parts end. If the epoch differs, the caller must begin again.
	ReadState(ctx context.Context, q StateQuery) (StatePart, error)

	// Follow requests the publications of a topic, including those of this node:
	// HistoryCallbacks.Published is called for each, in order. After an interruption there may be
	// gaps and duplicates; offsets show them. Following a topic again has no effect except another
	// call of HistoryCallbacks.Following.
	Follow(topic string)

	// Unfollow undoes Follow, however often it was called. Publications in flight may still be
	// delivered.
	Unfollow(topic string)
}

// HistoryCallbacks are the functions that a broker with histories calls on a node, in addition
// to those of [Callbacks]. The rules of Callbacks apply: one that is nil is not called, the functions must
// return quickly, and none is called after Close. Calls for one topic are made one at a time.
type HistoryCallbacks struct {
	// Published handles a publication of a topic that this node follows. The packet is valid
	// until Published returns, and must not be changed.
	Published func(topic string, p Publication)

	// Following reports that everything stored from this moment on is passed to Published; what a
	// later fault loses shows as a missing offset or is followed by another call. It is called
	// once after Follow, and again after every interruption that may have lost publications: the
	// node then reads what it has missed.
	Following func(topic string)
}

// Complete returns h with functions that do nothing in place of those that are nil. It is for adapters.
func (h HistoryCallbacks) Complete() HistoryCallbacks {
	if h.Published == nil {
		h.Published = func(string, Publication) {}
	}
	if h.Following == nil {
		h.Following = func(string) {}
	}
	return h
}

// A Position is a place in the history of a topic: right after the publication with this offset. The
// zero Position is none; the position of a topic always has an epoch.
type Position struct {
	Epoch  string // random, and never used again by the topic
	Offset uint64 // at most 1<<53 - 1, so that JavaScript represents it exactly
}

// A Retention bounds what a history stores. It is not stored: it applies to the call that it is passed
// to, and changing it keeps positions. Append removes the oldest publications beyond Messages and
// Bytes, perhaps not all in one call. The zero Retention keeps one publication for a day.
type Retention struct {
	// Messages is how many publications are kept, the newest ones. Values below 1 mean 1. A store
	// may keep some more.
	Messages int

	// Age is how long a publication is returned, by the clock of the store. 0 means a day.
	Age time.Duration

	// Bytes bounds the total length of the stored packets of the topic, without the overhead of the
	// store. A packet that is larger than Bytes is published but not kept. 0 is unlimited.
	Bytes int64
}

// DefaultAge is the Age of a [Retention] that has none.
const DefaultAge = 24 * time.Hour

// An Append is a publication to be stored.
type Append struct {
	Topic     string
	Retention Retention
	Packet    []byte // opaque to the broker; neither it nor the caller changes it from then on

	// IdempotencyKey makes a repeated Append harmless: if one with the same topic and key was
	// stored at most [IdempotencyTime] ago, Append stores nothing, publishes nothing, and returns
	// the position of the first one. Only the key counts, whatever the packet is. "" is no key.
	IdempotencyKey string

	// StateKey makes the publication the current state of the key, which [Histories.ReadState]
	// returns. If Removed is set, the key has no state any more; the removal is a publication too.
	// "" is no key.
	StateKey string
	Removed  bool

	// Fence keeps a replaced producer from storing anything more: Append stores p only if no
	// publication with a higher Fence was stored in the topic. Otherwise it stores and publishes
	// nothing, and returns an error with the code ABORTED. Only a stored publication raises the
	// fence of a topic. 0 is the lowest fence, so a topic with a fence refuses plain publications.
	Fence uint64

	// Last closes the topic with p, its last publication. Every later Append that is not a duplicate
	// by its idempotency key stores and publishes nothing, and returns an error with the code
	// FAILED_PRECONDITION.
	Last bool

	// Epoch is the one that the topic must be in: otherwise Append stores and publishes nothing, and
	// returns an error with the code ABORTED. A producer that passes the epoch of its last
	// publication never stores one behind others that a failover has lost. "" is any epoch.
	Epoch string

	// Durability is what Append waits for after the store has stored and published p: nodes do not
	// wait for it. It applies to a duplicate, too, so a repeated Append confirms the first one. If it
	// is not confirmed while Append waits, the error has the code [errors.OutcomeUnknown], and p stays
	// stored unless a failover loses it. If the store can never confirm it, the code is
	// FAILED_PRECONDITION, and p is not stored. A store in the memory of one process has one copy
	// of p, and accepts every Durability.
	Durability Durability
}

// A Durability is where a publication must be before it is acknowledged. The zero Durability is the
// memory of the server that stores it, so that a failover may lose acknowledged publications.
type Durability struct {
	// Replicas is how many replicas of that server must have the publication, too.
	Replicas int

	// OnDisk requires that the server, and as many replicas, have written it to disk (fsync). It
	// protects from a loss of power, and from a restart of all servers.
	OnDisk bool
}

// Check returns what is wrong with d, or nil.
func (d Durability) Check() error {
	if d.Replicas < 0 {
		return errors.Errorf(errors.InvalidArgument, "Durability.Replicas is %d; it must not be negative", d.Replicas)
	}
	return nil
}

// IdempotencyTime is how long an idempotency key is remembered, unless a broker is configured
// otherwise.
const IdempotencyTime = 5 * time.Minute

// An Appended is the result of an Append.
type Appended struct {
	Position  Position
	Duplicate bool // the position is that of an earlier Append with the same idempotency key
}

// A Publication is a stored packet, which must not be changed.
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

	After  uint64 // publications with a higher offset; 0 begins with the oldest one
	Before uint64 // and with a lower offset; 0 is unlimited
	Limit  int    // at most this many; 0 or less returns only the position

	// Backward selects the newest publications instead of the oldest. They are returned in
	// ascending order nevertheless.
	Backward bool
}

// A Page is the result of a Query: adjacent publications in ascending order. If the first one has a
// higher offset than Query.After + 1, those before it are no longer stored. A page is empty if none
// is stored, or if Query.After is the offset of Position or beyond it.
type Page struct {
	Publications []Publication
	Position     Position // the current one, of the last publication

	// Previous is the position at which the previous epoch ended: publications with a higher
	// offset in that epoch, if there were any, are lost. It is the zero Position if the current
	// epoch is the first that is known.
	Previous Position

	// Closed reports that the topic was closed by Append.Last when the page was read, even if its
	// last publication is no longer stored.
	Closed bool
}

// A Batch selects publications of several topics.
type Batch struct {
	Topics []TopicQuery

	// MaxMessages and MaxBytes bound the publications and the total length of their packets. A page that
	// does not fit into what others have left is omitted. A page that MaxBytes omits counts for MaxMessages
	// nevertheless, since the store has looked at its publications: so MaxMessages also bounds the work
	// of the store. The store chooses the order in which topics take from what is left.
	MaxMessages int
	MaxBytes    int
}

// A TopicQuery selects publications of a topic: the first ones, up to Limit, with a higher offset than
// After. It counts as many for Batch.MaxMessages as there are offsets up to Limit and the current position,
// even if the store has fewer. Without a Limit, it returns only the position, and counts nothing.
type TopicQuery struct {
	Topic     string
	Retention Retention
	After     uint64
	Limit     int

	// Epoch is that of After, if the caller has received a publication there, and otherwise "". An After
	// above the current position of the same epoch proves that publications are lost, to a store whose
	// data may have been restored from a copy without a trace: it begins a new epoch before it answers.
	// A client may have invented it, so a store must bound how often it does so. Other stores ignore it.
	Epoch string
}

// A BatchPage is the page of a topic in a Batch.
type BatchPage struct {
	Page
	Omitted bool  // the page has no publications, because they exceed the bounds
	Err     error // nil, or why the topic could not be read
}

// A StateQuery selects a part of the state of a topic.
type StateQuery struct {
	Topic     string
	Retention Retention

	// Cursor is StatePart.Next of the part before; "" begins. Other values have no meaning to
	// anyone but the broker that has returned them, whatever node reads on.
	Cursor string

	// MaxBytes bounds the length of the packets and keys that a store reads for a part, about: a part ends with the
	// publication that reaches it, perhaps with a few more that the store keeps together. 0 is
	// [DefaultStateBytes].
	MaxBytes int
}

// DefaultStateBytes is the MaxBytes of a [StateQuery] that has none: 128 KiB.
const DefaultStateBytes = 128 << 10

// A StatePart is the result of ReadState: the latest publications of some keys, in any order, as of
// Position. Keys that were removed, and publications older than Retention.Age, are not included. A part
// may be empty though others follow.
type StatePart struct {
	Publications []Publication
	Position     Position // the current one of the topic
	Next         string   // the Cursor of the next part; "" if this is the last one
}

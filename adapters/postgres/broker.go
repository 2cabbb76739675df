package postgres

import (
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/appendqueue"
	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/cluster"
)

// Options are those of a [Broker]. The zero Options are the defaults.
type Options struct {
	// Schema is the PostgreSQL schema of the tables; [DefaultSchema] if empty. A name has at most 63
	// bytes.
	Schema string

	// Listen leads to the server directly. It is needed if the pool leads to it through PgBouncer
	// in transaction mode, where notifications do not arrive. Nil is what the pool has.
	Listen *pgx.ConnConfig

	// PollInterval is how often the outbox is looked at for publications of transactions that
	// [InTx] has not committed. 50 ms if zero.
	PollInterval time.Duration

	// Observe is called when this node has stored publications of the outbox. It must not block. Nil
	// is nothing.
	Observe func(OutboxBatch)
}

// An OutboxBatch is what a node has stored of the outbox in one transaction.
type OutboxBatch struct {
	Publications int

	// Lag is the time from the begin of the transaction that has published the oldest of them, on the
	// clock of the server, until they were stored.
	Lag time.Duration
}

// A Broker is a [broker.HistoryBroker] on PostgreSQL. It is safe for concurrent use.
//
// Each node has a connection that listens, and up to 8 others: with the configuration of the pool,
// but not from it, so that an application that uses all connections of its pool does not stop the
// broker. Packets are notifications (NOTIFY), or rows of a table if they are larger than 5,900
// bytes. While PostgreSQL is unavailable, a node still serves its own subscribers. Up to 32 MiB
// wait to be published; beyond that Publish returns an error. Packets are numbered, so that each
// receiver detects its losses and reports them with [broker.Callbacks.MessagesLost]. Nodes publish a
// heartbeat every second; a node without one for four seconds has failed.
type Broker struct {
	pool *pgxpool.Pool
	opts Options

	// Tests change them.
	metadataAge, idempotencyTime time.Duration
	rules                        transactionRules
}

var _ broker.HistoryBroker = (*Broker)(nil)

const (
	// metadataAge is how long a topic is kept after its publications have expired, or after it was
	// read.
	metadataAge = 24 * time.Hour

	defaultPollInterval = 50 * time.Millisecond
)

// NewBroker returns a broker. It panics if the pool is nil or the name of the schema is invalid.
// It sends nothing before Connect. [Migrate] must have created the schema. Nil options are the zero ones.
func NewBroker(pool *pgxpool.Pool, opts *Options) *Broker {
	if pool == nil {
		panic("postgres: NewBroker needs a pool")
	}
	b := &Broker{pool: pool, metadataAge: metadataAge, idempotencyTime: broker.IdempotencyTime, rules: sequencingRules()}
	if opts != nil {
		b.opts = *opts
	}
	mustBeSchema(b.opts.Schema)
	b.opts.Schema = schemaOr(b.opts.Schema)
	if b.opts.PollInterval <= 0 {
		b.opts.PollInterval = defaultPollInterval
	}
	if b.opts.Observe == nil {
		b.opts.Observe = func(OutboxBatch) {}
	}
	return b
}

// Connect adds a node.
func (b *Broker) Connect(handler broker.Callbacks) broker.Node {
	return b.ConnectHistory(handler, broker.HistoryCallbacks{})
}

// ConnectHistory adds a node that also uses histories. Positions are assigned by the node that
// stores a publication, under a lock of one of 4 shards, each with a part of the topics. A position
// is kept for at least a day after the last publication has expired or the position was last read.
//
// A failover to a replica begins a new epoch of each topic, which continues at the offset that the
// replica has; a restart does not. A [broker.Durability] with Replicas needs
// synchronous_standby_names: Append waits for a commit with synchronous_commit = remote_write, or
// on with OnDisk, for at most 5 s, while other nodes do not.
//
// If the disk is full, Append returns an error with the code RESOURCE_EXHAUSTED.
func (b *Broker) ConnectHistory(handler broker.Callbacks, history broker.HistoryCallbacks) broker.HistoryNode {
	s := &historyNode{store: newStore(b)}
	s.follows.init(history)
	e := &engine{store: s.store, received: s.follows.received, reconnected: s.follows.confirmed}
	s.Node = cluster.New(e).Connect(handler).(*cluster.Node)
	s.link = e.link
	s.queue = appendqueue.New(shardPath, s.append, s.store.confirm)
	s.reads = batch.New("postgres: history", batch.HistoryTimeout, s.store.execReads, false)
	s.values = batch.New("postgres: value", batch.HistoryTimeout, s.store.execValues, false)
	s.sequencer = startSequencer(s.store, s.Node)
	e.wakes.Store(s.sequencer)
	return s
}

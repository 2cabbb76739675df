package postgres

import (
	"context"
	"crypto/sha256"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/appendqueue"
	"github.com/penstock-go/penstock/internal/batch"
)

// shards is the number of shards. It belongs to the version of the schema.
const shards = 4

// A store is the database as one node uses it.
type store struct {
	schema      string
	pool        *pgxpool.Pool // of the node
	listen      *pgx.ConnConfig
	beforeDial  func(context.Context, *pgx.ConnConfig) error // of the pool: it may set the password; nil if listen is another one
	poll        time.Duration
	metadataAge time.Duration
	keyTime     time.Duration
	observe     func(OutboxBatch)

	rules   transactionRules
	shards  [shards]shardState
	lineage lineageState
}

// transactionRules decide what a transaction that sequences takes from the outbox. Tests change them, to see that
// their check finds the mistake.
type transactionRules struct {
	lock, candidates string
	forgetSnapshot   time.Duration // how often everything is looked at
}

func sequencingRules() transactionRules {
	return transactionRules{shardLockSQL, candidatesSQL, 5 * time.Second}
}

// A shardState is what a node remembers of a shard.
type shardState struct {
	mu sync.Mutex // held while the node stores publications of the shard

	// Guarded by mu: the snapshot in which everything of the outbox was taken that it shows, see
	// candidates. "" is none. The transaction IDs of another server mean nothing to it.
	snapshot   string
	snapshotAt time.Time
	lineage    string // the epoch of that of the snapshot
}

// maxConns are the connections of a node: one for each shard, and others for reads and
// notifications.
const maxConns = 8

const (
	connectTimeout = 5 * time.Second
	callTimeout    = 5 * time.Second // of what no caller bounds

	// What waits for a lock waits for longer than one that holds it and does not continue.
	lockTimeout      = "4s"
	idleTimeout      = "3s"
	statementTimeout = "5s"
)

func newStore(b *Broker) *store {
	config := b.pool.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns = maxConns, 0, 0
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	listen, beforeDial := b.opts.Listen, config.BeforeConnect
	if listen == nil {
		listen = config.ConnConfig.Copy()
	} else {
		listen, beforeDial = listen.Copy(), nil
	}
	config.ConnConfig.OnNotice = recordWarning
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		panic("postgres: the configuration of the pool: " + err.Error()) // the pool has been created with it
	}
	return &store{
		schema: b.opts.Schema, pool: pool, listen: listen, beforeDial: beforeDial, poll: b.opts.PollInterval,
		metadataAge: b.metadataAge, keyTime: b.idempotencyTime, observe: b.opts.Observe, rules: b.rules,
	}
}

// sql returns a statement for the schema of the store.
func (s *store) sql(text string) string { return inSchema(text, s.schema) }

// shardOf returns the shard of a topic, as the SQL function publish does.
func shardOf(topic string) int {
	hash := sha256.Sum256([]byte(topic))
	return int(hash[0]) % shards
}

// shardPath is the path of a shard in the queue: shards do not wait for each other.
func shardPath(shard int) string { return strconv.Itoa(shard) }

func hashOf(name string) []byte {
	hash := sha256.Sum256([]byte(name))
	return hash[:]
}

// begin queues what begins a transaction that writes. Its settings end with it, so that the
// connection may be one of PgBouncer. It does not wait for replicas: they confirm in confirm.
func begin(b *pgx.Batch) {
	b.Queue("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
	b.Queue(`SELECT set_config('lock_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $2, true),
		set_config('statement_timeout', $3, true), set_config('synchronous_commit', 'local', true)`, lockTimeout, idleTimeout, statementTimeout)
}

// storeError converts an error of a batch that ends with COMMIT: its code says whether something
// may have been stored. Only an ERROR of the server proves that nothing was. An error of pgx does
// not, even if it is safe to retry: in the mode exec, pgx reports a connection that broke after it
// was written to as one that was closed before.
func storeError(what string, err error) error {
	pg, isPg := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil:
		return nil
	case hasOutcome(err):
		return err
	case !isPg || !isRollback(pg):
		return unknownOutcome(what, err)
	}
	code := errors.Unavailable
	switch {
	case isFull(pg):
		code = errors.ResourceExhausted
	case isMissing(pg):
		code = errors.FailedPrecondition
	}
	return &errors.Error{Code: code, Message: "the " + what + " was not stored" + hint(code), Err: err}
}

// notStored gives an error before the batch with COMMIT its code.
func notStored(what string, err error) error {
	if errors.CodeOf(storeError(what, err)) != errors.OutcomeUnknown {
		return err
	}
	return &errors.Error{Code: errors.Unavailable, Message: "the " + what + " was not stored", Err: err}
}

// hasOutcome reports whether an error has a code that says whether something was stored.
func hasOutcome(err error) bool {
	switch errors.CodeOf(err) {
	case errors.Unavailable, errors.FailedPrecondition, errors.OutcomeUnknown:
		return true
	}
	return false
}

// isRollback reports whether the server has ended a transaction with an error. Those of class 08
// are of a pooler that has lost its server.
func isRollback(err *pgconn.PgError) bool {
	return err.SeverityUnlocalized == "ERROR" && !strings.HasPrefix(err.Code, "08")
}

func unknownOutcome(what string, err error) error {
	return &errors.Error{Code: errors.OutcomeUnknown, Message: "the " + what + " may have been stored", Err: err}
}

// hint says what to do about a code.
func hint(code errors.Code) string {
	switch code {
	case errors.FailedPrecondition:
		return "; call postgres.Migrate, or grant the privileges of the guide, docs/guides/postgresql.md"
	case errors.ResourceExhausted:
		return ", because PostgreSQL has no space or memory left"
	}
	return ""
}

// isFull reports whether the disk or the memory of the server is full.
func isFull(err *pgconn.PgError) bool { return err.Code == "53100" || err.Code == "53200" }

// isMissing reports whether a schema, table, column, function or privilege is missing.
func isMissing(err *pgconn.PgError) bool {
	switch err.Code {
	case "3F000", "42P01", "42703", "42883", "42501":
		return true
	}
	return false
}

// readError gives an error a code, unless it is that of ctx.
func readError(ctx context.Context, what string, err error) error {
	pg, isPg := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil || batch.IsOfContext(ctx, err) || errors.Is(err, appendqueue.ErrClosed):
		return err
	case isPg && isMissing(pg):
		return &errors.Error{Code: errors.FailedPrecondition, Message: "the " + what + " cannot be read" + hint(errors.FailedPrecondition), Err: err}
	default:
		return &errors.Error{Code: errors.Unavailable, Message: "the " + what + " cannot be read", Err: err}
	}
}

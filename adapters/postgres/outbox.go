package postgres

import (
	"context"
	"database/sql"
	"encoding/base64"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock-go/penstock/adapters/postgres/schema"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// An Outbox publishes in transactions of the application. The zero Outbox is that of
// [DefaultSchema].
type Outbox struct {
	Schema string // of the Broker; an error if its name is invalid
}

// Publish publishes a in a transaction: it is stored and delivered to the nodes if and only if the
// transaction commits. It takes no lock and waits for no other transaction. What one transaction
// publishes on a topic keeps its order; what two transactions publish has the order of the calls if
// one had committed before the other one called. A router returns the a of a message with
// Router.PrepareAppend.
//
// A publication with an IdempotencyKey that is known is dropped, and so is one that the topic
// refuses because it is closed, or because of its Fence or Epoch, with a warning in the log.
// Durability is ignored: that of the transaction applies.
func (o Outbox) Publish(ctx context.Context, tx pgx.Tx, a broker.Append) error {
	if err := schema.Check(o.Schema); err != nil {
		return err
	}
	statement, args := o.insert(&a)
	_, err := tx.Exec(ctx, statement, args...)
	if err == nil {
		notePublished(ctx, a.Topic)
	}
	return o.insertError(err)
}

// PublishSQL is Publish for database/sql with the driver of pgx.
func (o Outbox) PublishSQL(ctx context.Context, tx *sql.Tx, a broker.Append) error {
	if err := schema.Check(o.Schema); err != nil {
		return err
	}
	statement, args := o.insert(&a)
	_, err := tx.ExecContext(ctx, statement, args...)
	return o.insertError(err)
}

// Publish publishes in a transaction, in the [DefaultSchema]; see [Outbox.Publish].
func Publish(ctx context.Context, tx pgx.Tx, a broker.Append) error {
	return Outbox{}.Publish(ctx, tx, a)
}

// PublishSQL is [Publish] for database/sql with the driver of pgx.
func PublishSQL(ctx context.Context, tx *sql.Tx, a broker.Append) error {
	return Outbox{}.PublishSQL(ctx, tx, a)
}

// insert returns the statement for a publication.
func (o Outbox) insert(a *broker.Append) (statement string, args []any) {
	packet := a.Packet
	if packet == nil {
		packet = []byte{}
	}
	statement = inSchema(`INSERT INTO penstock.outbox (shard, topic, packet, state_key, removed, idempotency_key,
		messages, age_ms, bytes, fence, last, epoch) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`, schemaOr(o.Schema))
	return statement, []any{
		shardOf(a.Topic), []byte(a.Topic), packet, keyOrNull(a.StateKey), a.Removed && a.StateKey != "", keyOrNull(a.IdempotencyKey),
		min(max(a.Retention.Messages, 1), maxSlots), ageOf(a.Retention).Milliseconds(), max(a.Retention.Bytes, 0),
		int64(a.Fence), a.Last, a.Epoch, //nolint:gosec // the bits
	}
}

func (o Outbox) insertError(err error) error {
	if err == nil {
		return nil
	}
	if stored := storeError("publication", err); errors.CodeOf(stored) == errors.FailedPrecondition {
		return stored
	}
	return err // of the transaction, whose owner knows it
}

// publishedKey is the key of a context in InTx.
type publishedKey struct{}

func notePublished(ctx context.Context, topic string) {
	if published, ok := ctx.Value(publishedKey{}).(*[shards]bool); ok {
		published[shardOf(topic)] = true
	}
}

// InTx calls f in a transaction and commits it, or rolls it back if f returns an error.
// Publications of f with its context are delivered at once: without InTx, a node finds them when it
// next looks, after [Options.PollInterval]. It sends one notification after the commit; if that
// fails, a node finds them, too.
//
// An error with the code [errors.OutcomeUnknown] means that the transaction may have been
// committed: the answer of the server is missing. After any other error, it was rolled back.
func (o Outbox) InTx(ctx context.Context, pool *pgxpool.Pool, f func(ctx context.Context, tx pgx.Tx) error) error {
	if err := schema.Check(o.Schema); err != nil {
		return err
	}
	var published [shards]bool
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // nothing after a commit
	if err := f(context.WithValue(ctx, publishedKey{}, &published), tx); err != nil {
		return err
	}
	if err := commit(ctx, tx); err != nil {
		return err
	}
	var changed []byte
	for shard, isChanged := range published {
		if isChanged {
			changed = append(changed, byte(shard))
		}
	}
	if len(changed) > 0 {
		s := &store{schema: schemaOr(o.Schema)}
		text := inlinePrefix + base64.StdEncoding.EncodeToString(appendRecord(nil, record{wakePrefix, changed}))
		_, _ = pool.Exec(ctx, "SELECT pg_notify($1, $2)", s.pgChannel(allSuffix), text)
	}
	return nil
}

// InTx calls f in a transaction, with the [DefaultSchema]; see [Outbox.InTx].
func InTx(ctx context.Context, pool *pgxpool.Pool, f func(ctx context.Context, tx pgx.Tx) error) error {
	return Outbox{}.InTx(ctx, pool, f)
}

// commit commits a transaction. Its error says whether it may have been committed.
func commit(ctx context.Context, tx pgx.Tx) error {
	if ctx.Err() != nil {
		return ctx.Err() // nothing is sent
	}
	err := tx.Commit(ctx)
	pg, isPg := errors.AsType[*pgconn.PgError](err)
	if err == nil || errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, pgx.ErrTxClosed) || isPg && isRollback(pg) {
		return err
	}
	return &errors.Error{Code: errors.OutcomeUnknown, Message: "the transaction may have been committed", Err: err}
}

package postgres

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/limit"
)

// WithTx returns a limiter of this package that decides in a transaction of the application: what
// it takes is taken if and only if the transaction commits.
//
//	d, err := limit.Consume(ctx, postgres.WithTx(tx, orders), limit.Key{"customer", id}, 1)
//
// Each call locks its key until the transaction ends, even if it is denied or only looks.
// Meanwhile, other transactions that decide about the key wait in the server, and calls without a
// transaction in their processes, at most until their contexts end. Calls for other keys do not
// wait. So take last, and commit soon. Transactions that take from several keys must do so in the
// same order, or by one call of [limit.ConsumeAll], which sorts them. Otherwise, PostgreSQL ends
// one of two transactions that wait for each other, with the error deadlock_detected.
//
// WithTx needs the isolation level READ COMMITTED, which is the default of PostgreSQL. With a
// higher one, a call fails with serialization_failure if another transaction has taken from the key
// since this one began. After an error, the transaction cannot continue: roll it back.
//
// No denial is remembered, and a [Cooldown] does not call its function for penalties. Processes may
// deny a key for up to a second after a transaction has returned tokens to it.
//
// The limiter is valid until the transaction ends, and not safe for concurrent use. It is a
// [limit.Batcher], a [limit.Checker] and a [limit.Describer]. WithTx panics if l is not a limiter
// of this package.
func WithTx(tx pgx.Tx, l limit.Limiter) limit.Limiter {
	own := txLimiterOf(l)
	limits := own.store()
	return &txLimiter{
		txable: own, tx: tx,
		each: func(ctx context.Context, calls []limitCall) ([]limitReply, error) {
			return limits.queryEach(ctx, tx, nil, calls)
		},
		all: func(ctx context.Context, calls []limitCall) ([]limitReply, error) {
			return limits.queryAll(ctx, tx, nil, []int32{int32(len(calls))}, calls) //nolint:gosec // few
		},
	}
}

// WithSQLTx is [WithTx] for database/sql with the driver of pgx.
func WithSQLTx(tx *sql.Tx, l limit.Limiter) limit.Limiter {
	own := txLimiterOf(l)
	schema := own.store().schema
	query := func(ctx context.Context, function string, calls []limitCall) ([]limitReply, error) {
		text := inSchema("SELECT call, array_to_string(n, ' ') FROM penstock."+function, schema)
		c := columnsOf(calls)
		rows, err := tx.QueryContext(ctx, text, textOf(c.locks), textOfBytes(c.keys), textOf(c.args), len(calls))
		if err != nil {
			return nil, err
		}
		defer func() { _ = rows.Close() }()
		return readTextReplies(rows, len(calls))
	}
	return &txLimiter{
		txable: own, tx: tx,
		each: func(ctx context.Context, calls []limitCall) ([]limitReply, error) {
			return query(ctx, "limit_each(NULL, $1::bigint[], $2::bytea[], $3::bigint[]) WHERE call <= $4::int", calls)
		},
		all: func(ctx context.Context, calls []limitCall) ([]limitReply, error) {
			return query(ctx, "limit_all(NULL, ARRAY[$4::int], $1::bigint[], $2::bytea[], $3::bigint[])", calls)
		},
	}
}

// A txable is a limiter of this package.
type txable interface {
	jointLimiter
	limit.Describer
	takeWithoutMemory(key *limit.Key, take *limit.Take, do func(limitCall) (limitReply, error)) (limit.Decision, error)
	partWithoutMemory(key *limit.Key, take limit.Take) (jointPart, error)
}

func txLimiterOf(l limit.Limiter) txable {
	own, ok := l.(txable)
	if !ok {
		panic(fmt.Sprintf("postgres: a %T is not a limiter of this package; in a transaction, pass each limiter of AllOf to WithTx", l))
	}
	return own
}

// A txLimiter is a limiter in a transaction of the application.
type txLimiter struct {
	txable
	tx        any // a pgx.Tx or a *sql.Tx
	each, all func(context.Context, []limitCall) ([]limitReply, error)
}

var (
	_ limit.Batcher   = (*txLimiter)(nil)
	_ limit.Checker   = (*txLimiter)(nil)
	_ limit.Describer = (*txLimiter)(nil)
)

// Check returns an error if the limiter cannot do a Take.
func (t *txLimiter) Check(take limit.Take) error { return limit.Check(t.txable, take) }

// Take takes tokens of key in the transaction.
func (t *txLimiter) Take(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	return t.takeWithoutMemory(&key, &take, func(call limitCall) (limitReply, error) {
		replies, err := t.each(ctx, []limitCall{call})
		if err != nil {
			return limitReply{}, t.explain(err)
		}
		return replies[0], nil
	})
}

func (t *txLimiter) explain(err error) error {
	return fmt.Errorf("postgres: limiter: %w", t.store().explain(err))
}

// BatchesWith reports whether other is in the same transaction and schema.
func (t *txLimiter) BatchesWith(other limit.Limiter) bool {
	o, ok := other.(*txLimiter)
	return ok && o.tx == t.tx && o.store().schema == t.store().schema
}

// TakeBatch takes the cost of every request, or of none.
func (t *txLimiter) TakeBatch(ctx context.Context, requests []limit.Request, take limit.Take) ([]limit.Decision, error) {
	parts := make([]jointPart, len(requests))
	for i, r := range requests {
		one := take
		one.Cost = r.Cost
		part, err := r.Limiter.(*txLimiter).partWithoutMemory(&r.Key, one)
		if err != nil {
			return nil, err
		}
		parts[i] = part
	}
	calls, err := jointCalls(parts)
	if err != nil {
		return nil, err
	}
	replies, err := t.all(ctx, calls)
	if err != nil {
		return nil, t.explain(err)
	}
	decisions, _, err := decideJointly(parts, replies)
	return decisions, err
}

func (b *Limiter) takeWithoutMemory(key *limit.Key, take *limit.Take, do func(limitCall) (limitReply, error)) (limit.Decision, error) {
	return b.take(key, take, b.policy.Load().WithoutMemory(), do)
}

func (b *Limiter) partWithoutMemory(key *limit.Key, take limit.Take) (jointPart, error) {
	return b.partBy(key, take, b.policy.Load().WithoutMemory())
}

func (r *limitRecords) takeWithoutMemory(key *limit.Key, take *limit.Take, do func(limitCall) (limitReply, error)) (limit.Decision, error) {
	d, _, err := r.takeBy(key, take, r.policy.Load().withoutMemory(), do)
	return d, err
}

func (r *limitRecords) partWithoutMemory(key *limit.Key, take limit.Take) (jointPart, error) {
	return r.partBy(key, take, r.policy.Load().withoutMemory())
}

func (p *limitRecordPolicy) withoutMemory() *limitRecordPolicy {
	return &limitRecordPolicy{RecordPolicy: p.WithoutMemory(), numbers: p.numbers}
}

// textOf returns numbers as an array in text, which every driver can send.
func textOf(numbers []int64) string {
	b := []byte{'{'}
	for i, n := range numbers {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return string(append(b, '}'))
}

func textOfBytes(values [][]byte) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = `"\\x` + hex.EncodeToString(v) + `"`
	}
	return "{" + strings.Join(texts, ",") + "}"
}

// readTextReplies is readReplies for numbers in text.
func readTextReplies(rows *sql.Rows, n int) ([]limitReply, error) {
	replies, read := make([]limitReply, n), 0
	for rows.Next() {
		var call int
		var text string
		if err := rows.Scan(&call, &text); err != nil {
			return nil, err
		}
		for i, field := range strings.Fields(text) {
			number, err := strconv.ParseInt(field, 10, 64)
			if err != nil || call < 1 || call > n || i >= batch.RecordNumbers {
				return nil, fmt.Errorf("the server answers call %d of %d with %q", call, n, text)
			}
			replies[call-1].numbers[i] = number
		}
		read++
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if read != n {
		return nil, fmt.Errorf("the server has answered %d of %d calls", read, n)
	}
	return replies, nil
}

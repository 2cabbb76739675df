package postgres

import (
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

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
// [adapter.Batcher], a [adapter.Checker], a [adapter.Describer] and a [limit.Blocker], whose Reset and Block
// are a part of the transaction too. WithTx panics if l is not a limiter of this package.
func WithTx(tx pgx.Tx, l limit.Limiter) limit.Limiter {
	return inTransaction(l, func(rows *limitRows) batch.Store {
		limits := rows.limits
		return &txStore{
			limitRows: rows, tx: tx,
			each: func(ctx context.Context, calls []limitCall) ([]limitReply, error) {
				return limits.queryEach(ctx, tx, nil, calls)
			},
			all: func(ctx context.Context, calls []limitCall) ([]limitReply, error) {
				return limits.queryAll(ctx, tx, nil, []int32{int32(len(calls))}, calls) //nolint:gosec // few
			},
		}
	})
}

// WithSQLTx is [WithTx] for database/sql with the driver of pgx.
func WithSQLTx(tx *sql.Tx, l limit.Limiter) limit.Limiter {
	return inTransaction(l, func(own *limitRows) batch.Store {
		schema := own.limits.schema
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
		return &txStore{
			limitRows: own, tx: tx,
			each: func(ctx context.Context, calls []limitCall) ([]limitReply, error) {
				return query(ctx, "limit_each(NULL, $1::bigint[], $2::bytea[], $3::bigint[]) WHERE call <= $4::int", calls)
			},
			all: func(ctx context.Context, calls []limitCall) ([]limitReply, error) {
				return query(ctx, "limit_all(NULL, ARRAY[$4::int], $1::bigint[], $2::bytea[], $3::bigint[])", calls)
			},
		}
	})
}

// inTransaction returns a limiter with the store that in returns for its rows.
func inTransaction(l limit.Limiter, in func(*limitRows) batch.Store) limit.Limiter {
	tx, ok := batch.InTransaction(l, func(store batch.Store) batch.Store {
		if rows, ok := store.(*limitRows); ok {
			return in(rows)
		}
		return nil
	})
	if !ok {
		panic(fmt.Sprintf("postgres: a %T is not a limiter of this package; in a transaction, pass each limiter of AllOf to WithTx", l))
	}
	return tx
}

// A txStore is the rows of a limiter in a transaction of the application.
type txStore struct {
	*limitRows
	tx        any // a pgx.Tx or a *sql.Tx
	each, all func(context.Context, []limitCall) ([]limitReply, error)
}

// SharesWith reports whether a store is in the same transaction and schema.
func (t *txStore) SharesWith(other batch.Store) bool {
	o, ok := other.(*txStore)
	return ok && o.tx == t.tx && o.limits.schema == t.limits.schema
}

// Do executes a request in the transaction.
func (t *txStore) Do(ctx context.Context, request *batch.Request) (batch.Reply, error) {
	replies, err := t.each(ctx, []limitCall{t.call(request)})
	if err != nil {
		return batch.Reply{}, t.explain(err)
	}
	return replyTo(request, &replies[0])
}

// DoAll takes what all parts say, or nothing, in the transaction.
func (t *txStore) DoAll(ctx context.Context, parts []batch.Part) ([]batch.Reply, error) {
	replies, err := t.all(ctx, jointCalls(parts))
	if err != nil {
		return nil, t.explain(err)
	}
	return repliesTo(parts, replies)
}

// SetBlock removes what a key has taken, and blocks it unless d is 0, in the transaction.
func (t *txStore) SetBlock(ctx context.Context, key *limit.Key, d time.Duration) error {
	if _, err := t.each(ctx, []limitCall{t.blockCall(key, d)}); err != nil {
		return t.explain(err)
	}
	return nil
}

func (t *txStore) explain(err error) error {
	return fmt.Errorf("postgres: limiter: %w", t.limits.explain(err))
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

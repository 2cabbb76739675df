package postgres

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock-go/penstock/errors"
)

// A pgxQuerier is a pool, or a transaction.
type pgxQuerier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// SQLSTATEs.
const (
	stateNeedsLevel   = "PS001" // of limit_begin: the isolation level is not READ COMMITTED
	stateLockTimeout  = "55P03"
	stateNoFunction   = "42883"
	stateNoSchema     = "3F000"
	stateNoPrivileges = "42501"
)

// compareCalls orders calls by their locks and keys, so that those of one key follow each other.
func compareCalls(a, b *limitCall) int {
	return cmp.Or(cmp.Compare(a.lock, b.lock), cmp.Compare(a.key, b.key))
}

// send executes a statement in a transaction of its own.
func (l *LimitStore) send(ctx context.Context, query func(context.Context, pgxQuerier) ([]limitReply, error), n int) ([]limitReply, error) {
	sent, namesLevel := l.now(), l.needsLevel.Load()
	replies, err := l.sendOnce(ctx, query, namesLevel)
	if stateOf(err) == stateNeedsLevel && !namesLevel {
		l.needsLevel.Store(true)
		replies, err = l.sendOnce(ctx, query, true) // the first one has done nothing
	}
	if stateOf(err) == stateLockTimeout {
		replies, err = make([]limitReply, n), nil
		for i := range replies {
			replies[i].numbers[0] = replyLocked
		}
	}
	if err != nil {
		return nil, l.explain(err)
	}
	received := l.now()
	for i := range replies {
		replies[i].sent, replies[i].received = sent, received
	}
	l.sweepSoon()
	return replies, nil
}

func (l *LimitStore) sendOnce(ctx context.Context, query func(context.Context, pgxQuerier) ([]limitReply, error), namesLevel bool) ([]limitReply, error) {
	if !namesLevel {
		return query(ctx, l.pool)
	}
	var replies []limitReply
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
	err := pgx.BeginTxFunc(ctx, l.pool, options, func(tx pgx.Tx) (err error) {
		replies, err = query(ctx, tx)
		return err
	})
	return replies, err
}

// explain adds to an error what would be right, if it has one of the usual causes.
func (l *LimitStore) explain(err error) error {
	switch stateOf(err) {
	case stateNoFunction, stateNoSchema:
		return fmt.Errorf("the schema %q has no limits; call postgres.Migrate: %w", l.schema, err)
	case stateNoPrivileges:
		return fmt.Errorf("the role needs USAGE on the schema %q and EXECUTE on its functions: %w", l.schema, err)
	default:
		return err
	}
}

// stateOf returns the SQLSTATE of an error, "" if it has none.
func stateOf(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// A limitColumns value is calls as a statement takes them.
type limitColumns struct {
	locks []int64
	keys  [][]byte
	args  []int64
}

func columnsOf(calls []limitCall) limitColumns {
	c := limitColumns{make([]int64, len(calls)), make([][]byte, len(calls)), make([]int64, 0, len(limitArgs{})*len(calls))}
	for i := range calls {
		c.locks[i], c.keys[i] = calls[i].lock, []byte(calls[i].key)
		c.args = append(c.args, calls[i].args[:]...)
	}
	return c
}

// limitSQL are the statements of the limits.
type limitSQL struct{ each, all, sweep, keys string }

func limitSQLFor(schema string) limitSQL {
	return limitSQL{
		each:  inSchema("SELECT call, n FROM penstock.limit_each($1, $2, $3, $4)", schema),
		all:   inSchema("SELECT call, n FROM penstock.limit_all($1, $2, $3, $4, $5)", schema),
		sweep: inSchema("SELECT last_key, seen, removed FROM penstock.limit_sweep($1, $2)", schema),
		keys:  inSchema("SELECT * FROM penstock.limit_keys($1, $2, $3)", schema),
	}
}

// queryEach executes independent calls, which are in the order of compareCalls. patience is the
// first argument of the function.
func (l *LimitStore) queryEach(ctx context.Context, q pgxQuerier, patience *int, calls []limitCall) ([]limitReply, error) {
	c := columnsOf(calls)
	rows, err := q.Query(ctx, l.sql.each, patience, c.locks, c.keys, c.args)
	if err != nil {
		return nil, err
	}
	return readReplies(rows, len(calls))
}

// queryAll executes groups of calls. The first group is the first sizes[0] calls.
func (l *LimitStore) queryAll(ctx context.Context, q pgxQuerier, patience *int, sizes []int32, calls []limitCall) ([]limitReply, error) {
	c := columnsOf(calls)
	rows, err := q.Query(ctx, l.sql.all, patience, sizes, c.locks, c.keys, c.args)
	if err != nil {
		return nil, err
	}
	return readReplies(rows, len(calls))
}

// readReplies reads the replies about n calls, in any order.
func readReplies(rows pgx.Rows, n int) ([]limitReply, error) {
	replies, read := make([]limitReply, n), 0
	var call int
	var numbers []int64
	_, err := pgx.ForEachRow(rows, []any{&call, &numbers}, func() error {
		if call < 1 || call > n {
			return fmt.Errorf("the server answers call %d of %d", call, n)
		}
		copy(replies[call-1].numbers[:], numbers)
		read++
		return nil
	})
	if err == nil && read != n {
		err = fmt.Errorf("the server has answered %d of %d calls", read, n)
	}
	return replies, err
}

package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/limit"
)

// A LimitStore has the limiters and semaphores of one PostgreSQL schema, which many processes share.
// Their decisions equal those of package memory, on the clock of the server. [Migrate] must have
// created the schema.
//
// A decision takes one round trip, and concurrent calls share round trips, whatever their limiters:
// at most two at the same time, with up to 64 calls each, and as many more for joint calls and for
// calls that wait for a lock. A denial that is known is repeated without a round trip, for at most
// a second. The pool should be one of its own, such as of 6 connections: a limit that waits for a
// connection while handlers use all of them delays every message.
//
// Decisions are stored by the functions of the schema, under an advisory lock per key until the
// transaction ends. Their commits do not wait for the disk (synchronous_commit = off): a crash of
// the server forgets the last ones, those of at most three times wal_writer_delay, 0.6 seconds by
// default. A failover to a replica forgets what the replica had not received. What is taken in a
// transaction of the application is as durable as the transaction; see [WithTx].
//
// Statements are transactions of their own, without state of a session, so a pool may lead through
// PgBouncer in transaction mode. PgBouncer before version 1.21, or without max_prepared_statements,
// needs a pool whose ConnConfig.DefaultQueryExecMode is [pgx.QueryExecModeExec]: by default, pgx
// prepares statements. If the role has another isolation level than READ COMMITTED by default, each
// decision takes three round trips.
//
// An error is that of ctx, of the pool or of the server; it is then unknown whether tokens were
// taken. No statement is repeated after it may have been executed. Records that have expired are
// removed in small steps, which calls start. A LimitStore is safe for concurrent use. It has
// nothing to close but the pool.
type LimitStore struct {
	pool   *pgxpool.Pool
	schema string
	sql    limitSQL
	calls  *batch.Batcher[limitCall, limitReply]
	locked *batch.Batcher[limitCall, limitReply] // calls whose key another transaction had locked
	joints *batch.Batcher[[]limitCall, []limitReply]
	sweep  limitSweep
	now    func() time.Duration // a monotonic clock of this process

	// needsLevel says that a transaction must name its isolation level, because the role has another
	// one by default.
	needsLevel atomic.Bool
}

// NewLimitStore returns the limits of a schema; "" is [DefaultSchema]. It panics if the pool is nil or the
// name is invalid. It sends nothing.
func NewLimitStore(pool *pgxpool.Pool, schema string) *LimitStore {
	if pool == nil {
		panic("postgres: NewLimitStore needs a pool")
	}
	mustBeSchema(schema)
	epoch := time.Now()
	l := &LimitStore{pool: pool, schema: schemaOr(schema), sql: limitSQLFor(schemaOr(schema)), now: func() time.Duration { return time.Since(epoch) }}
	// A caller executes a round trip with its own context only if that never ends: otherwise, pgx
	// would close the connection at its end.
	exec := func(patience int) func(context.Context, []*batch.Call[limitCall, limitReply]) {
		return func(ctx context.Context, calls []*batch.Call[limitCall, limitReply]) {
			l.execEach(ctx, calls, patience)
		}
	}
	l.calls = batch.New("postgres: limiter", batch.LimiterTimeout, exec(0), false)
	l.locked = batch.New("postgres: limiter", batch.LimiterTimeout, exec(lockPatience), false)
	l.joints = batch.New("postgres: limiter", batch.LimiterTimeout, l.execAll, false)
	return l
}

// A limitCall is one call of limit_each or limit_all.
type limitCall struct {
	key  string
	lock int64 // the advisory lock of the key
	args limitArgs
}

// limitArgs are the arguments of a call; see the functions of the kinds. The first two are the kind
// and the operation.
type limitArgs [16]int64

// argNever is the index of the argument of limit_all that is 1 if a call denies in any case.
const argNever = 15

// The kinds of limiters.
const (
	limitBucket = iota + 1
	limitCounter
	limitLog // and cooldowns
	limitQuota
	limitSemaphore
)

// The operations of a call.
const (
	opTake = iota
	opLook
	opTakeUpTo
	opCharge
	opRefund
	opUndo
	opSettle
	opBlock
	opReset
	opRenew   // a permit
	opRelease // a permit
)

// A limitReply is the numbers about one call, and when it was sent and received.
type limitReply struct {
	numbers        [batch.RecordNumbers]int64
	sent, received time.Duration
}

// replyLocked stands for a call whose key another transaction has locked: nothing was done.
const replyLocked = -1

func (r *limitReply) isLocked() bool { return r.numbers[0] == replyLocked }

// limitKeys are the keys of a limiter of a kind.
type limitKeys struct {
	schema, prefix string
}

// keysOf returns the keys of a limiter.
func (l *LimitStore) keysOf(kind, name string) limitKeys {
	return limitKeys{l.schema, keyname.Join(kind, []string{name})}
}

// call returns a call for a key. The number of its lock is a hash of the schema and the key; keys
// that share one wait for each other.
func (k *limitKeys) call(key *limit.Key, args limitArgs) limitCall {
	return k.named(keyname.Join(k.prefix, keyname.Parts(key)), args)
}

// named is call for the name of a key.
func (k *limitKeys) named(name string, args limitArgs) limitCall {
	sum := sha256.Sum256([]byte(k.schema + "\x00" + name))
	return limitCall{name, int64(binary.BigEndian.Uint64(sum[:8])), args} //nolint:gosec // any 64 bits
}

// lockBackoff returns how long a call waits before it asks again about a key that another transaction
// has locked: mostly a decision of another process, which takes a millisecond, or a transaction of the
// application.
func lockBackoff() rules.Backoff {
	return rules.Backoff{Min: time.Millisecond, Max: 20 * time.Millisecond}
}

// lockPatience is how long a statement waits for the lock of its only key, in milliseconds, in the
// order of the statements that wait. It then gives its round trip to calls for other keys.
const lockPatience = 50

// do executes a call. If another transaction has locked the key, it asks again until ctx is done,
// in round trips of its own: calls for other keys do not wait.
func (l *LimitStore) do(ctx context.Context, request limitCall) (*batch.Call[limitCall, limitReply], error) {
	calls := l.calls
	for wait := lockBackoff(); ; {
		c := &batch.Call[limitCall, limitReply]{Request: request}
		if err := calls.Do(ctx, c); err != nil || !c.Response.isLocked() {
			return c, err
		}
		if calls == l.locked {
			if err := waitForLock(ctx, &wait); err != nil {
				return c, err
			}
		}
		calls = l.locked
	}
}

// reply is do for who needs only the reply. Without one, nothing is read of the call: a batch may still
// answer it.
func (l *LimitStore) reply(ctx context.Context, request limitCall) (limitReply, error) {
	c, err := l.do(ctx, request)
	if err != nil {
		return limitReply{}, err
	}
	return c.Response, nil
}

// doAll is do for calls that take all or nothing.
func (l *LimitStore) doAll(ctx context.Context, requests []limitCall) ([]limitReply, error) {
	for wait := lockBackoff(); ; {
		c := &batch.Call[[]limitCall, []limitReply]{Request: requests}
		if err := l.joints.Do(ctx, c); err != nil {
			return nil, err
		}
		if !c.Response[0].isLocked() {
			return c.Response, nil
		}
		if err := waitForLock(ctx, &wait); err != nil {
			return nil, err
		}
	}
}

func waitForLock(ctx context.Context, wait *rules.Backoff) error {
	if err := wait.Wait(ctx); err != nil {
		return fmt.Errorf("postgres: limiter: another transaction has locked the key: %w", err)
	}
	return nil
}

// execEach executes independent calls in one statement. It waits for a lock if all calls have one
// key.
func (l *LimitStore) execEach(ctx context.Context, calls []*batch.Call[limitCall, limitReply], patience int) {
	calls = slices.Clone(calls)
	slices.SortStableFunc(calls, func(a, b *batch.Call[limitCall, limitReply]) int {
		return compareCalls(&a.Request, &b.Request)
	})
	requests := make([]limitCall, len(calls))
	for i, c := range calls {
		requests[i] = c.Request
		if c.Request.key != calls[0].Request.key {
			patience = 0
		}
	}
	replies, err := l.send(ctx, func(ctx context.Context, q pgxQuerier) ([]limitReply, error) {
		return l.queryEach(ctx, q, &patience, requests)
	}, len(calls))
	for i, c := range calls {
		if c.Err = err; err == nil {
			c.Response = replies[i]
		}
	}
}

// maxJointKeys bounds the keys that a statement of limit_all locks, as 64 calls bound those of
// limit_each: the server has room for 64 locks per connection by default
// (max_locks_per_transaction).
const maxJointKeys = 64

// execAll executes groups of calls, several in one statement.
func (l *LimitStore) execAll(ctx context.Context, groups []*batch.Call[[]limitCall, []limitReply]) {
	for len(groups) > 0 {
		n, keys := 1, len(groups[0].Request)
		for n < len(groups) && keys+len(groups[n].Request) <= maxJointKeys {
			keys += len(groups[n].Request)
			n++
		}
		l.execGroups(ctx, groups[:n])
		groups = groups[n:]
	}
}

func (l *LimitStore) execGroups(ctx context.Context, groups []*batch.Call[[]limitCall, []limitReply]) {
	var requests []limitCall
	sizes := make([]int32, len(groups))
	for i, c := range groups {
		requests = append(requests, c.Request...)
		sizes[i] = int32(len(c.Request)) //nolint:gosec // few
	}
	patience := 0
	replies, err := l.send(ctx, func(ctx context.Context, q pgxQuerier) ([]limitReply, error) {
		return l.queryAll(ctx, q, &patience, sizes, requests)
	}, len(requests))
	for i, c := range groups {
		if c.Err = err; err == nil {
			c.Response = replies[:sizes[i]]
			replies = replies[sizes[i]:]
		}
	}
}

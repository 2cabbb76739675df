package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

const (
	// maxCandidates and maxCandidateBytes bound what one transaction takes from the outbox.
	maxCandidates     = 1000
	maxCandidateBytes = 4 << 20

	// noSnapshot is one in which nothing was visible.
	noSnapshot = "1:1:"
)

// candidatesSQL removes what has become visible in the outbox since a snapshot: a transaction below
// its xmax that is not in its xip had ended, so its publications were taken. The first row has the
// snapshot of the statement, and whether more is visible. Only the holder of the shard's lock
// deletes rows, so a ctid stays that of its row.
const candidatesSQL = `
WITH c AS MATERIALIZED (
  SELECT ctid, id, octet_length(packet) AS size FROM penstock.outbox
  WHERE shard = $1 AND (xid >= pg_snapshot_xmax($2::text::pg_snapshot) OR xid = ANY (ARRAY(SELECT pg_snapshot_xip($2::text::pg_snapshot))))
  ORDER BY id LIMIT $3 + 1
), taken AS (
  SELECT ctid FROM (SELECT ctid, row_number() OVER w AS n, sum(size) OVER w - size AS before FROM c WINDOW w AS (ORDER BY id)) s
  WHERE n <= $3 AND before < $4
), d AS (
  DELETE FROM penstock.outbox WHERE ctid = ANY (ARRAY(SELECT ctid FROM taken))
  RETURNING id, topic, packet, state_key, removed, idempotency_key, messages, age_ms, bytes, fence, last, epoch, at
)
SELECT pg_current_snapshot()::text, (SELECT count(*) FROM c) > (SELECT count(*) FROM taken), d.*, clock_timestamp()
FROM (SELECT) one LEFT JOIN d ON true ORDER BY d.id`

// shardLockSQL is a statement of its own: the next one takes its snapshot when the lock is held.
const shardLockSQL = "SELECT pg_advisory_xact_lock(('penstock.topic'::regclass::oid::bigint % 2147483647)::int, $1::int)"

// sequence stores what waits in the outbox of a shard, and then the calls, in one transaction that
// also notifies the nodes: PostgreSQL delivers notifications in the order of the commits. It sets
// the results of the calls unless it returns an error. It reports whether more waits in the outbox.
//
// Any node may call it at any time. The lock of the shard orders them.
func (s *store) sequence(ctx context.Context, shard int, calls []*appendCall) (more bool, err error) {
	st := &s.shards[shard]
	st.mu.Lock()
	defer st.mu.Unlock()
	const attempts = 3
	for range attempts {
		t := &sequencing{store: s, shard: shard, state: st, calls: calls}
		if more, err = t.run(ctx); !errors.Is(err, errOldLineage) {
			break
		}
	}
	if err != nil {
		st.snapshot = ""
	}
	return more, err
}

// A sequencing is one transaction of sequence. The mutex of the shard is held.
type sequencing struct {
	store *store
	shard int
	state *shardState
	calls []*appendCall

	conn     *pgxpool.Conn
	facts    facts
	snapshot string
	more     bool
	outbox   []outboxRow
	lag      time.Duration // of the oldest row when it was taken
	taken    time.Time
	plan     *plan
}

// An outboxRow is a publication of the outbox.
type outboxRow struct {
	broker.Append
	noRetention bool // that of the topic applies
}

func (t *sequencing) run(ctx context.Context) (more bool, err error) {
	before := t.store.lineage.seen()
	if t.conn, err = t.store.pool.Acquire(ctx); err != nil {
		return false, notStored("publication", err)
	}
	defer t.conn.Release() // closes it if the transaction is open
	if err := t.take(ctx); err != nil {
		return false, notStored("publication", err)
	}
	if err := t.checkLineage(ctx, before); err != nil {
		return false, err
	}
	if len(t.outbox) == 0 && len(t.calls) == 0 {
		if _, err = t.conn.Exec(ctx, "COMMIT"); err != nil {
			return false, err
		}
	} else if err := t.write(ctx); err != nil {
		return false, err
	}
	// Without a write, nothing was flushed: after a crash, transactions may have the IDs of some that
	// the snapshot shows as ended.
	if isWritten := len(t.outbox) > 0 || len(t.plan.order) > 0; isWritten && !t.more {
		t.state.snapshot, t.state.lineage = t.snapshot, t.facts.lineage.epoch
	}
	t.plan.finish()
	if len(t.outbox) > 0 {
		t.store.observe(OutboxBatch{len(t.outbox), t.lag + time.Since(t.taken)})
	}
	return t.more, nil
}

// checkLineage rolls back and returns errOldLineage if the transaction must be repeated, because
// the server has no lineage yet, or because the snapshot by which publications were taken is that of
// another server.
func (t *sequencing) checkLineage(ctx context.Context, before seen) error {
	err := t.store.lineage.check(&t.facts, before)
	if err == nil && (t.state.snapshot == noSnapshot || t.state.lineage == t.facts.lineage.epoch) {
		return nil
	}
	t.state.snapshot = ""
	if _, err := t.conn.Exec(ctx, "ROLLBACK"); err != nil {
		return notStored("publication", err)
	}
	if err != nil {
		if err := t.store.beginLineage(ctx, &t.facts, before); err != nil {
			return notStored("publication", err)
		}
	}
	return errOldLineage
}

// take locks the shard, takes publications from the outbox, and reads what is known of the topics.
func (t *sequencing) take(ctx context.Context) error {
	now := time.Now()
	if t.state.snapshot == "" || now.Sub(t.state.snapshotAt) > t.store.rules.forgetSnapshot {
		t.state.snapshot, t.state.snapshotAt = noSnapshot, now
	}
	b := &pgx.Batch{}
	begin(b)
	b.Queue(t.store.sql(t.store.rules.lock), t.shard)
	b.Queue(t.store.sql(t.store.rules.candidates), t.shard, t.state.snapshot, maxCandidates, maxCandidateBytes)
	t.store.queueFacts(b)
	own := make([]*broker.Append, len(t.calls))
	for i, c := range t.calls {
		own[i] = &c.Append
	}
	t.store.queueTopics(b, own)
	results := t.conn.SendBatch(ctx, b)
	err := t.readTaken(results)
	if err == nil {
		t.plan, err = newPlan(t.store, t.shard, &t.facts, results, own)
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	if err != nil || len(t.outbox) == 0 {
		return err
	}
	others := make([]*broker.Append, len(t.outbox))
	for i := range t.outbox {
		others[i] = &t.outbox[i].Append
	}
	b = &pgx.Batch{}
	t.store.queueTopics(b, others)
	results = t.conn.SendBatch(ctx, b)
	err = t.plan.load(results, others)
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return err
}

// readTaken reads the results of take before those about topics.
func (t *sequencing) readTaken(results pgx.BatchResults) error {
	for range 3 { // begin and lock
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id *int64
		var topic, stateKey, idempotencyKey []byte
		var removed *bool
		var messages *int32
		var age, bytes, fence *int64
		var last *bool
		var epoch *string
		var at *time.Time
		var now time.Time
		var a outboxRow
		if err := rows.Scan(&t.snapshot, &t.more, &id, &topic, &a.Packet, &stateKey, &removed, &idempotencyKey, &messages, &age, &bytes, &fence, &last, &epoch, &at, &now); err != nil {
			return err
		}
		if id == nil {
			break // there is none
		}
		a.Topic, a.StateKey, a.IdempotencyKey = string(topic), string(stateKey), string(idempotencyKey)
		t.lag = max(t.lag, now.Sub(*at))
		a.Removed, a.Last, a.Epoch, a.Fence = *removed, *last, *epoch, uint64(*fence) //nolint:gosec // the bits
		if a.noRetention = messages == nil; !a.noRetention {
			a.Retention = broker.Retention{Messages: int(*messages), Age: time.Duration(orZero(age)) * time.Millisecond, Bytes: orZero(bytes)}
		}
		t.outbox = append(t.outbox, a)
	}
	rows.Close()
	t.taken = time.Now()
	if err := rows.Err(); err != nil {
		return err
	}
	t.facts, err = scanFacts(results)
	return err
}

func orZero(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// write stores the plan, notifies and commits. See storeError for its error.
func (t *sequencing) write(ctx context.Context) error {
	for i := range t.outbox {
		t.plan.add(&t.outbox[i], nil)
	}
	for _, c := range t.calls {
		if err := t.facts.checkConfirmable(c.Durability); err != nil {
			t.plan.refuse(c, err)
			continue
		}
		t.plan.add(&outboxRow{Append: c.Append}, c)
	}
	b := &pgx.Batch{}
	t.plan.queueWrites(b)
	t.store.queueNotifications(b, t.plan.notifications())
	b.Queue("COMMIT")
	if ctx.Err() != nil {
		return notStored("publication", ctx.Err())
	}
	return t.conn.SendBatch(ctx, b).Close()
}

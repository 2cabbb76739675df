package postgres

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock-go/penstock/internal/rules"
)

const (
	maintainInterval = 30 * time.Second
	sweepInterval    = time.Hour
	maxDeleted       = 5000 // rows of one statement
)

// expiredSQL returns the statements that delete rows that have expired, some at a time, so that
// none holds locks or a snapshot for long. They find the rows by an index, and skip locked ones: a
// sequencing transaction may wait for rows that the statement has locked.
func expiredSQL() []string {
	return []string{
		`DELETE FROM penstock.idempotency WHERE ctid = ANY (ARRAY(SELECT ctid FROM penstock.idempotency WHERE expires_at < now() LIMIT $1 FOR UPDATE SKIP LOCKED))`,
		`DELETE FROM penstock.value WHERE ctid = ANY (ARRAY(SELECT ctid FROM penstock.value WHERE expires_at < now() LIMIT $1 FOR UPDATE SKIP LOCKED))`,
		`DELETE FROM penstock.packet WHERE ctid = ANY (ARRAY(SELECT ctid FROM penstock.packet WHERE at < now() - interval '1 minute' ORDER BY id LIMIT $1))`,
	}
}

// sweepSQL returns the statements that read whole tables. What they delete is not returned any
// more.
func sweepSQL() []string {
	return []string{
		`DELETE FROM penstock.history WHERE ctid = ANY (ARRAY(SELECT h.ctid FROM penstock.history h JOIN penstock.topic t ON t.id = h.topic_id
		   WHERE h.at < now() - t.age_ms * 1.25 * interval '1 ms' LIMIT $1 FOR UPDATE OF h SKIP LOCKED))`,
		`DELETE FROM penstock.state WHERE ctid = ANY (ARRAY(SELECT s.ctid FROM penstock.state s JOIN penstock.topic t ON t.id = s.topic_id
		   WHERE s.at < now() - t.age_ms * 1.25 * interval '1 ms' LIMIT $1 FOR UPDATE OF s SKIP LOCKED))`,
	}
}

// maintain deletes what has expired, on the owner of the first shard.
func (q *sequencer) maintain() {
	interval := min(maintainInterval, q.store.metadataAge/4)
	swept := time.Now()
	for rules.Sleep(q.ctx, interval) == nil {
		if !q.owns(0) {
			continue
		}
		err := q.deleteExpired()
		if err == nil && time.Since(swept) > sweepInterval {
			swept = time.Now()
			err = q.deleteAll(sweepSQL())
		}
		if err != nil && q.ctx.Err() == nil {
			slog.Default().WarnContext(q.ctx, "postgres: expired rows are not deleted", "schema", q.store.schema, "error", err)
		}
	}
}

// deleteExpired deletes expired rows and topics.
func (q *sequencer) deleteExpired() error {
	if err := q.deleteAll(expiredSQL()); err != nil {
		return err
	}
	for shard := range shards {
		for more := true; more; {
			var err error
			if more, err = q.store.forget(q.ctx, shard); err != nil {
				return err
			}
		}
	}
	return nil
}

// deleteAll repeats each statement until it finds no more rows.
func (q *sequencer) deleteAll(statements []string) error {
	for _, text := range statements {
		for deleted := int64(maxDeleted); deleted == maxDeleted; {
			ctx, cancel := context.WithTimeout(q.ctx, time.Minute)
			tag, err := q.store.pool.Exec(ctx, q.store.sql(text), maxDeleted)
			cancel()
			if err != nil {
				return err
			}
			deleted = tag.RowsAffected()
		}
	}
	return nil
}

// firstSQL is the epoch in which a topic of a shard without a row begins, see facts.first.
const firstSQL = `
SELECT CASE WHEN s.lineage < l.no THEN l.epoch ELSE s.first END
FROM penstock.shard s, (SELECT * FROM penstock.lineage ORDER BY no DESC LIMIT 1) l WHERE s.no = $1`

// forgetSQL deletes topics that have expired and have not begun in the first epoch of their shard,
// and notes that: where their epoch has ended is not known then.
const forgetSQL = `
WITH gone AS (
  DELETE FROM penstock.topic WHERE id = ANY (ARRAY(
    SELECT id FROM penstock.topic WHERE shard = $1 AND expires_at < now() AND epoch <> (` + firstSQL + `) LIMIT $2)) RETURNING id, hash
), h AS (DELETE FROM penstock.history WHERE topic_id IN (SELECT id FROM gone)),
s AS (DELETE FROM penstock.state WHERE topic_id IN (SELECT id FROM gone)),
k AS (DELETE FROM penstock.idempotency WHERE topic_id IN (SELECT id FROM gone)),
f AS (INSERT INTO penstock.forgotten (hash, shard) SELECT hash, $1 FROM gone ON CONFLICT DO NOTHING)
SELECT count(*) FROM gone`

// endFirstSQL ends the first epoch of a shard if a topic that has expired is in it. A topic without
// a row is at offset 0 of that epoch.
const endFirstSQL = `
UPDATE penstock.shard SET previous = (` + firstSQL + `), first = $2, lineage = (SELECT max(no) FROM penstock.lineage), forgot_at = now()
WHERE no = $1 AND forgot_at < now() - $3 * interval '1 ms'
  AND EXISTS (SELECT FROM penstock.topic WHERE shard = $1 AND expires_at < now() AND epoch = (` + firstSQL + `))`

// forget deletes some topics of a shard that have expired. A topic that is used again begins in
// another epoch than before, so no position is used twice: the first epoch ends before a topic of
// it is deleted. That happens at most once in metadataAge, because a topic that begins in an epoch
// does not expire for so long.
func (s *store) forget(ctx context.Context, shard int) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Release() // closes it if the transaction is open
	var isDue bool
	err = conn.QueryRow(ctx, s.sql("SELECT EXISTS (SELECT FROM penstock.topic WHERE shard = $1 AND expires_at < now())"), shard).Scan(&isDue)
	if err != nil || !isDue {
		return false, err
	}
	b := &pgx.Batch{}
	begin(b)
	b.Queue(s.sql(shardLockSQL), shard)
	b.Queue(s.sql(endFirstSQL), shard, rand.Text(), s.metadataAge.Milliseconds())
	b.Queue(s.sql("DELETE FROM penstock.forgotten WHERE shard = $1 AND (SELECT forgot_at FROM penstock.shard WHERE no = $1) = now()"), shard)
	var deleted int
	b.Queue(s.sql(forgetSQL), shard, maxForgotten).QueryRow(func(row pgx.Row) error { return row.Scan(&deleted) })
	b.Queue("COMMIT")
	err = conn.SendBatch(ctx, b).Close()
	return err == nil && deleted == maxForgotten, err
}

// maxForgotten bounds the topics of one transaction, which holds the lock of the shard.
const maxForgotten = 2000

package postgres

import (
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock-go/penstock/internal/sleep"
)

const (
	maintainInterval = 30 * time.Second
	maxDeleted       = 5000 // rows of one statement
)

// expiredSQL deletes rows that have expired, so that no statement holds locks or a snapshot for long.
var expiredSQL = []string{
	`DELETE FROM penstock.idempotency WHERE ctid = ANY (ARRAY(SELECT ctid FROM penstock.idempotency WHERE expires_at < now() LIMIT $1))`,
	`DELETE FROM penstock.value WHERE ctid = ANY (ARRAY(SELECT ctid FROM penstock.value WHERE expires_at < now() LIMIT $1)) AND expires_at < now()`,
	`DELETE FROM penstock.packet WHERE ctid = ANY (ARRAY(SELECT ctid FROM penstock.packet WHERE at < now() - interval '1 minute' ORDER BY id LIMIT $1))`,
	`DELETE FROM penstock.history WHERE ctid = ANY (ARRAY(SELECT h.ctid FROM penstock.history h JOIN penstock.topic t ON t.id = h.topic_id
	   WHERE h.at < now() - t.age_ms * 1.25 * interval '1 ms' LIMIT $1))`,
	`DELETE FROM penstock.state WHERE ctid = ANY (ARRAY(SELECT s.ctid FROM penstock.state s JOIN penstock.topic t ON t.id = s.topic_id
	   WHERE s.at < now() - t.age_ms * 1.25 * interval '1 ms' LIMIT $1))`,
}

// maintain deletes what has expired, on the owner of the first shard.
func (q *sequencer) maintain() {
	interval := min(maintainInterval, q.store.metadataAge/4)
	for sleep.For(q.ctx, interval) == nil {
		if !q.owns(0) {
			continue
		}
		if err := q.deleteExpired(); err != nil && q.ctx.Err() == nil {
			slog.Default().WarnContext(q.ctx, "postgres: expired rows are not deleted", "schema", q.store.schema, "error", err)
		}
	}
}

func (q *sequencer) deleteExpired() error {
	for _, text := range expiredSQL {
		for {
			ctx, cancel := context.WithTimeout(q.ctx, time.Minute)
			tag, err := q.store.pool.Exec(ctx, q.store.sql(text), maxDeleted)
			cancel()
			if err != nil {
				return err
			}
			if tag.RowsAffected() < maxDeleted {
				break
			}
		}
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

// forgetSQL deletes topics, and notes that. Their first epoch ends if any of them began in it, see forget.
const forgetSQL = `
WITH gone AS (
  DELETE FROM penstock.topic WHERE id = ANY (ARRAY(SELECT id FROM penstock.topic WHERE shard = $1 AND expires_at < now() LIMIT $2)) RETURNING id, hash
), h AS (DELETE FROM penstock.history WHERE topic_id IN (SELECT id FROM gone)),
s AS (DELETE FROM penstock.state WHERE topic_id IN (SELECT id FROM gone)),
k AS (DELETE FROM penstock.idempotency WHERE topic_id IN (SELECT id FROM gone)),
f AS (INSERT INTO penstock.forgotten (hash, shard) SELECT hash, $1 FROM gone ON CONFLICT DO NOTHING)
SELECT count(*) FROM gone`

// forget deletes topics of a shard that have expired, at most once in metadataAge. It ends the first
// epoch of the shard before: a topic that is used again begins in another one than before, so no position is
// used twice. A topic that begins in the new epoch does not expire for metadataAge, so the epoch before is
// known for so long.
func (s *store) forget(ctx context.Context, shard int) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Release()
	var isDue bool
	err = conn.QueryRow(ctx, s.sql(`SELECT EXISTS (SELECT FROM penstock.topic WHERE shard = $1 AND expires_at < now())
		AND forgot_at < now() - $2 * interval '1 ms' FROM penstock.shard WHERE no = $1`), shard, s.metadataAge.Milliseconds()).Scan(&isDue)
	if err != nil || !isDue {
		return false, err
	}
	b := &pgx.Batch{}
	begin(b)
	b.Queue(s.sql(shardLockSQL), shard)
	b.Queue(s.sql("DELETE FROM penstock.forgotten WHERE shard = $1"), shard)
	// The epochs are those of facts.first. A topic without a row is at offset 0 in each.
	b.Queue(s.sql(`UPDATE penstock.shard s SET previous = CASE WHEN s.lineage < l.no THEN l.epoch ELSE s.first END, first = $2, lineage = l.no, forgot_at = now()
		FROM (SELECT * FROM penstock.lineage ORDER BY no DESC LIMIT 1) l WHERE s.no = $1`), shard, rand.Text())
	b.Queue(s.sql(forgetSQL), shard, maxForgotten)
	b.Queue("COMMIT")
	return false, conn.SendBatch(ctx, b).Close()
}

// maxForgotten bounds the topics of one transaction, which holds the lock of the shard.
const maxForgotten = 20_000

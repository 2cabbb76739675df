package postgres

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// facts are what a transaction reads about the server and the schema.
type facts struct {
	identity string    // of the data that the server has: system identifier, timeline, table
	lsn      uint64    // how much it has written
	now      time.Time // by the clock of the server
	standbys string    // synchronous_standby_names
	fsync    bool
	lineage  lineage
	shards   [shards]shardEpochs

	// restarted is true if the server has started since the lineage began, perhaps with the data of a
	// copy. A position above the top of its epoch then begins a new lineage, and not after that: so a
	// client that invents one causes at most one false notice for each start of the server.
	restarted bool
}

// A lineage is a row of the table lineage.
type lineage struct {
	no       int
	epoch    string // of topics that continue in it
	identity string
}

// shardEpochs are a row of the table shard.
type shardEpochs struct {
	lineage         int
	first, previous string
}

// factsSQL has a row for each shard. A replica refuses it. The timeline is that of the WAL that is
// written now: pg_control_checkpoint would show that of the last checkpoint, which is older after a
// promotion.
const factsSQL = `
SELECT (SELECT system_identifier FROM pg_control_system())::text || '/' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
         || '/' || 'penstock.topic'::regclass::oid,
       (pg_current_wal_insert_lsn() - '0/0')::bigint, clock_timestamp(),
       current_setting('synchronous_standby_names'), current_setting('fsync') = 'on',
       l.no, l.epoch, l.identity, l.began < pg_postmaster_start_time(), s.lineage, s.first, coalesce(s.previous, '')
FROM (SELECT * FROM penstock.lineage ORDER BY no DESC LIMIT 1) l, penstock.shard s ORDER BY s.no`

// queueFacts queues the statement that reads the facts.
func (s *store) queueFacts(b *pgx.Batch) { b.Queue(s.sql(factsSQL)) }

func scanFacts(results pgx.BatchResults) (f facts, err error) {
	rows, err := results.Query()
	if err != nil {
		return f, err
	}
	defer rows.Close()
	n := 0
	for ; rows.Next() && n < shards; n++ {
		e := &f.shards[n]
		if err := rows.Scan(&f.identity, &f.lsn, &f.now, &f.standbys, &f.fsync,
			&f.lineage.no, &f.lineage.epoch, &f.lineage.identity, &f.restarted, &e.lineage, &e.first, &e.previous); err != nil {
			return f, err
		}
	}
	rows.Close()
	if rows.Err() == nil && n != shards {
		return f, errors.Errorf(errors.FailedPrecondition, "the table shard has %d rows instead of %d; call postgres.Migrate on a new schema", n, shards)
	}
	return f, rows.Err()
}

// first returns the position of a topic without a row, and where its previous epoch ended.
func (f *facts) first(shard int, forgotten bool) (position, previous broker.Position) {
	e := f.shards[shard]
	if e.lineage < f.lineage.no {
		return broker.Position{Epoch: f.lineage.epoch}, broker.Position{Epoch: e.first}
	}
	if !forgotten {
		previous.Epoch = e.previous
	}
	return broker.Position{Epoch: e.first}, previous
}

// A lineageState is what a node has seen of the server.
type lineageState struct {
	mu  sync.Mutex
	no  int
	lsn uint64 // the highest one
}

// seen is what a node had seen before it called the server.
type seen struct {
	no  int
	lsn uint64
}

func (l *lineageState) seen() seen {
	l.mu.Lock()
	defer l.mu.Unlock()
	return seen{l.no, l.lsn}
}

// errOldLineage means that the newest lineage is not that of the server.
var errOldLineage = errors.Errorf(errors.Unavailable, "another server writes now, and its lineage is not recorded yet")

// check records facts. It returns errOldLineage if the newest lineage is not that of the data that
// the server has: another server was promoted, or its data was restored, which is shown by less WAL
// than the node had seen before it asked.
func (l *lineageState) check(f *facts, before seen) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.identity != f.lineage.identity || f.lineage.no < before.no || f.lineage.no == before.no && f.lsn < before.lsn {
		return errOldLineage
	}
	if f.lineage.no > l.no {
		l.no, l.lsn = f.lineage.no, 0
	}
	if f.lineage.no == l.no {
		l.lsn = max(l.lsn, f.lsn)
	}
	return nil
}

// beginLineage records a lineage for the data that the server has, unless another node has done so
// since the facts were read.
func (s *store) beginLineage(ctx context.Context, f *facts, before seen) error {
	b := &pgx.Batch{}
	begin(b)
	b.Queue(s.sql("SELECT pg_advisory_xact_lock('penstock.topic'::regclass::oid::bigint)"))
	no := max(f.lineage.no, before.no) + 1
	b.Queue(s.sql(`INSERT INTO penstock.lineage (no, epoch, identity)
		SELECT $1, $2, $3 WHERE NOT EXISTS (SELECT FROM penstock.lineage WHERE no > $4)`), no, rand.Text(), f.identity, f.lineage.no)
	b.Queue(s.sql("UPDATE penstock.shard SET lineage = $1 WHERE lineage = 0 AND $2 = 0"), no, f.lineage.no) // nothing was stored before
	b.Queue("COMMIT")
	err := s.pool.SendBatch(ctx, b).Close()
	if err == nil && f.lineage.no > 0 {
		slog.Default().WarnContext(ctx, "postgres: another server writes, or its data was restored; all topics begin a new epoch",
			"schema", s.schema, "lineage", no, "server", f.identity, "before", f.lineage.identity)
	}
	return err
}

package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock-go/penstock/adapters/postgres/schema"
)

// A Backlog is what waits in an outbox, visible to other transactions.
type Backlog struct {
	Publications int           // at most 10,000 are counted
	Oldest       time.Duration // of these, since its transaction began, on the clock of the server; 0 without any
}

// Backlog returns what waits. If it grows, no node stores publications: see the log of the nodes. It
// reads at most 10,000 rows, so that a large backlog does not become larger by it.
func (o Outbox) Backlog(ctx context.Context, pool *pgxpool.Pool) (b Backlog, err error) {
	if err := schema.Check(o.Schema); err != nil {
		return b, err
	}
	var micros int64
	err = pool.QueryRow(ctx, inSchema(`SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(at)) * 1000000, 0)::bigint
		FROM (SELECT at FROM penstock.outbox LIMIT 10000) o`, schemaOr(o.Schema))).Scan(&b.Publications, &micros)
	b.Oldest = time.Duration(micros) * time.Microsecond
	return b, err
}

package postgres

import (
	"context"

	"github.com/penstock-go/penstock/broker"
)

// ReadAll reads several topics in one transaction: their positions, the sizes of the pages that
// MaxMessages permits, and those that MaxBytes permits, too. It begins a lineage if a query proves
// that the data of the server was restored from a copy.
func (s *historyNode) ReadAll(ctx context.Context, b broker.Batch) ([]broker.BatchPage, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	topics := make([]topicUse, len(b.Topics))
	for i, q := range b.Topics {
		topics[i] = topicUse{q.Topic, ageOf(q.Retention)}
	}
	var pages []broker.BatchPage
	err := s.store.snapshot(ctx, topics, func(r *reading) (err error) {
		pages, err = r.batch(&b)
		return err
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return pages, readError(ctx, "history", err)
}

// batch returns the pages of a batch.
func (r *reading) batch(b *broker.Batch) ([]broker.BatchPage, error) {
	pages := make([]broker.BatchPage, len(b.Topics))
	messages := uint64(max(b.MaxMessages, 0)) //nolint:gosec // not negative
	var queries []pageQuery
	for i, q := range b.Topics {
		t := r.topics[q.Topic]
		if r.facts.restarted && q.Epoch == t.position.Epoch && q.After > t.position.Offset {
			return nil, errOldLineage
		}
		pages[i].Page = broker.Page{Position: t.position, Previous: t.previous, Closed: t.closed}
		if q.Limit <= 0 || t.position.Offset <= q.After {
			continue
		}
		count := min(uint64(q.Limit), t.position.Offset-q.After)
		if count > messages {
			pages[i].Omitted = true
			continue
		}
		messages -= count
		queries = append(queries, pageQuery{call: i, topic: q.Topic, after: q.After, limit: q.Limit, age: ageOf(q.Retention)})
	}
	queries, err := r.fitting(queries, int64(max(b.MaxBytes, 0)), pages)
	if err != nil {
		return nil, err
	}
	err = r.pages(queries, func(call int, p broker.Publication) {
		pages[call].Publications = append(pages[call].Publications, p)
	})
	return pages, err
}

// fitting returns the queries whose pages have no more than a number of bytes together, and omits
// the others.
func (r *reading) fitting(queries []pageQuery, left int64, pages []broker.BatchPage) (fitting []pageQuery, err error) {
	if len(queries) == 0 {
		return nil, nil
	}
	rows, err := r.conn.Query(r.ctx, r.store.sql("SELECT q.call, sum(octet_length(p.packet))"+pagesFrom+" GROUP BY q.call"), r.pageArgs(queries)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	sizes := map[int]int64{}
	for rows.Next() {
		var call int
		var size int64
		if err := rows.Scan(&call, &size); err != nil {
			return nil, err
		}
		sizes[call] = size
	}
	for _, q := range queries {
		if sizes[q.call] > left {
			pages[q.call].Omitted = true
			continue
		}
		left -= sizes[q.call]
		fitting = append(fitting, q)
	}
	return fitting, rows.Err()
}

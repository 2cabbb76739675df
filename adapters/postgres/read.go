package postgres

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/batch"
)

// A readRequest is a query of publications, or of a state.
type readRequest struct {
	page  *broker.Query
	state *broker.StateQuery
}

type readResponse struct {
	page broker.Page
	part broker.StatePart
}

type readCall = batch.Call[readRequest, readResponse]

// Read returns a page of a topic.
func (s *historyNode) Read(ctx context.Context, q broker.Query) (broker.Page, error) {
	if err := s.check(ctx); err != nil {
		return broker.Page{}, err
	}
	c := &readCall{Request: readRequest{page: &q}}
	if err := s.reads.Do(ctx, c); err != nil {
		return broker.Page{}, readError(ctx, "history", err)
	}
	return c.Response.page, nil
}

// ReadState returns a part of the current state of a topic. A cursor is the hash of the last key.
func (s *historyNode) ReadState(ctx context.Context, q broker.StateQuery) (broker.StatePart, error) {
	if err := s.check(ctx); err != nil {
		return broker.StatePart{}, err
	}
	if _, err := hex.DecodeString(q.Cursor); err != nil {
		return broker.StatePart{}, errors.Errorf(errors.InvalidArgument, "the cursor %q is not the Next of a part", q.Cursor)
	}
	c := &readCall{Request: readRequest{state: &q}}
	if err := s.reads.Do(ctx, c); err != nil {
		return broker.StatePart{}, readError(ctx, "history", err)
	}
	return c.Response.part, nil
}

// execReads executes calls in one transaction. No caller alone ends it.
func (s *store) execReads(ctx context.Context, calls []*readCall) {
	topics := make([]topicUse, len(calls))
	for i, c := range calls {
		if q := c.Request.page; q != nil {
			topics[i] = topicUse{q.Topic, ageOf(q.Retention)}
		} else {
			topics[i] = topicUse{c.Request.state.Topic, ageOf(c.Request.state.Retention)}
		}
	}
	err := s.snapshot(context.WithoutCancel(ctx), topics, func(r *reading) error { return r.answer(calls) })
	if err != nil {
		for _, c := range calls {
			c.Err = err
		}
	}
}

// A topicUse is a topic that is read, and the age of its publications.
type topicUse struct {
	name string
	age  time.Duration
}

// A reading is a transaction that reads topics as of one moment.
type reading struct {
	store  *store
	ctx    context.Context //nolint:containedctx // of the transaction
	conn   *pgx.Conn
	facts  facts
	topics map[string]readTopic // by name
}

// A readTopic is a topic as it is stored, or as it is before the first publication.
type readTopic struct {
	position, previous broker.Position
	expiresAt          time.Time // zero if it is not stored
	closed             bool
}

// snapshot calls read in a transaction that has read topics, and then extends their lifetimes. If
// the server has no lineage yet, it begins one and tries again.
func (s *store) snapshot(ctx context.Context, topics []topicUse, read func(*reading) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	const attempts = 3
	var err error
	for range attempts {
		before := s.lineage.seen()
		r := &reading{store: s, ctx: ctx, topics: map[string]readTopic{}}
		if err = r.run(topics, before, read); err == nil {
			s.extend(ctx, r, topics)
			return nil
		}
		if !errors.Is(err, errOldLineage) {
			return err
		}
		if err := s.beginLineage(ctx, &r.facts, before); err != nil {
			return err
		}
	}
	return err
}

// run executes the transaction.
func (r *reading) run(topics []topicUse, before seen, read func(*reading) error) error {
	conn, err := r.store.pool.Acquire(r.ctx)
	if err != nil {
		return err
	}
	defer conn.Release() // closes it if the transaction is open
	r.conn = conn.Conn()
	b := &pgx.Batch{}
	b.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
	b.Queue("SELECT set_config('statement_timeout', $1, true)", statementTimeout)
	r.store.queueFacts(b)
	hashes := make([][]byte, len(topics))
	for i, t := range topics {
		hashes[i] = hashOf(t.name)
	}
	b.Queue(r.store.sql(`SELECT name, epoch, lineage, top, coalesce(previous_epoch, ''), coalesce(previous_top, 0), expires_at, closed
		FROM penstock.topic WHERE hash = ANY ($1::bytea[])`), hashes)
	b.Queue(r.store.sql("SELECT hash FROM penstock.forgotten WHERE hash = ANY ($1::bytea[])"), hashes)
	results := r.conn.SendBatch(r.ctx, b)
	err = r.load(results, topics)
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = r.store.lineage.check(&r.facts, before)
	}
	if err == nil {
		err = read(r)
	}
	if _, endErr := r.conn.Exec(r.ctx, "ROLLBACK"); err == nil {
		err = endErr
	}
	return err
}

// load reads what run has requested.
func (r *reading) load(results pgx.BatchResults, topics []topicUse) error {
	for range 2 {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	var err error
	if r.facts, err = scanFacts(results); err != nil {
		return err
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	var t readTopic
	var name []byte
	var lineage int
	if _, err := pgx.ForEachRow(rows, []any{&name, &t.position.Epoch, &lineage, &t.position.Offset, &t.previous.Epoch, &t.previous.Offset, &t.expiresAt, &t.closed}, func() error {
		stored := t
		if lineage < r.facts.lineage.no {
			stored.previous, stored.position.Epoch = t.position, r.facts.lineage.epoch
		}
		r.topics[string(name)] = stored
		return nil
	}); err != nil {
		return err
	}
	if rows, err = results.Query(); err != nil {
		return err
	}
	forgotten := map[string]bool{}
	var hash []byte
	if _, err := pgx.ForEachRow(rows, []any{&hash}, func() error { forgotten[string(hash)] = true; return nil }); err != nil {
		return err
	}
	for _, use := range topics {
		if _, ok := r.topics[use.name]; !ok {
			var t readTopic
			t.position, t.previous = r.facts.first(shardOf(use.name), forgotten[string(hashOf(use.name))])
			r.topics[use.name] = t
		}
	}
	return nil
}

// answer executes calls.
func (r *reading) answer(calls []*readCall) error {
	var pages []pageQuery
	var states []*readCall
	for i, c := range calls {
		q := c.Request.page
		if q == nil {
			states = append(states, c)
			continue
		}
		t := r.topics[q.Topic]
		c.Response.page = broker.Page{Position: t.position, Previous: t.previous, Closed: t.closed}
		if q.Limit > 0 && t.position.Offset > q.After {
			pages = append(pages, pageQuery{i, q.Topic, q.After, q.Before, q.Limit, q.Backward, ageOf(q.Retention)})
		}
	}
	if err := r.pages(pages, func(call int, p broker.Publication) {
		page := &calls[call].Response.page
		page.Publications = append(page.Publications, p)
	}); err != nil {
		return err
	}
	for _, c := range states {
		if err := r.state(c); err != nil {
			return err
		}
	}
	return nil
}

// A pageQuery selects publications for a call.
type pageQuery struct {
	call          int
	topic         string
	after, before uint64
	limit         int
	backward      bool
	age           time.Duration
}

// pagesFrom is what pages and their sizes are selected from: the slots of the offsets that a query
// may select, in their order, of which those are used that have the offset, up to the limit.
const pagesFrom = `
FROM unnest($1::int[], $2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bool[], $7::bigint[]) AS q (call, hash, after, before, lim, backward, age)
JOIN penstock.topic t ON t.hash = q.hash
CROSS JOIN LATERAL (SELECT greatest(q.after, t.floor, t.top - t.slots) + 1 AS low, least(q.before - 1, t.top) AS high) r
CROSS JOIN LATERAL (
  SELECT s.* FROM generate_series(CASE WHEN q.backward THEN r.high ELSE r.low END, CASE WHEN q.backward THEN r.low ELSE r.high END,
    CASE WHEN q.backward THEN -1 ELSE 1 END) AS o
  CROSS JOIN LATERAL (
    SELECT * FROM penstock.history h WHERE h.topic_id = t.id AND h.slot = (o % t.slots)::int AND h.off = o
      AND h.total - octet_length(h.packet) >= t.pruned AND h.at > $8::timestamptz - q.age * interval '1 ms' LIMIT 1
  ) s LIMIT q.lim
) p`

// maxOffset is the highest offset.
const maxOffset = 1<<53 - 1

// pageArgs returns the arguments of pagesFrom.
func (r *reading) pageArgs(queries []pageQuery) []any {
	calls, hashes := make([]int32, len(queries)), make([][]byte, len(queries))
	after, before, limits, ages := make([]int64, len(queries)), make([]int64, len(queries)), make([]int64, len(queries)), make([]int64, len(queries))
	backward := make([]bool, len(queries))
	for i, q := range queries {
		calls[i], hashes[i] = int32(q.call), hashOf(q.topic) //nolint:gosec // an index
		after[i] = int64(min(q.after, maxOffset))            //nolint:gosec // below 1<<53
		if before[i] = maxOffset; q.before > 0 {
			before[i] = int64(min(q.before, maxOffset)) //nolint:gosec // below 1<<53
		}
		limits[i], backward[i], ages[i] = int64(q.limit), q.backward, q.age.Milliseconds()
	}
	return []any{calls, hashes, after, before, limits, backward, ages, r.facts.now}
}

// pages passes on publications in the order of their offsets.
func (r *reading) pages(queries []pageQuery, add func(call int, p broker.Publication)) error {
	if len(queries) == 0 {
		return nil
	}
	rows, err := r.conn.Query(r.ctx, r.store.sql(`SELECT q.call, p.epoch, p.off, p.at, p.packet, p.state_key, p.removed`+pagesFrom+` ORDER BY q.call, p.off`),
		r.pageArgs(queries)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var p broker.Publication
		var key []byte
		var call int
		if err := rows.Scan(&call, &p.Position.Epoch, &p.Position.Offset, &p.At, &p.Packet, &key, &p.Removed); err != nil {
			return err
		}
		p.StateKey = string(key)
		add(call, p)
	}
	return rows.Err()
}

// stateRows is how many bytes a row of a state has at least, as far as the work for a part is
// concerned.
const stateRows = 16

// state reads a part of a state: keys in the order of their hashes, up to the one that reaches
// MaxBytes.
func (r *reading) state(c *readCall) error {
	q := c.Request.state
	maxBytes := q.MaxBytes
	if maxBytes <= 0 {
		maxBytes = broker.DefaultStateBytes
	}
	cursor, err := hex.DecodeString(q.Cursor)
	if err != nil {
		return err
	}
	limit := min(maxBytes/stateRows+stateRows, 1<<24)
	rows, err := r.conn.Query(r.ctx, r.store.sql(`
WITH s AS MATERIALIZED (
  SELECT s.* FROM penstock.state s JOIN penstock.topic t ON t.id = s.topic_id WHERE t.hash = $1 AND s.hash > $2 ORDER BY s.hash LIMIT $3 + 1
), w AS (
  SELECT *, row_number() OVER w AS n, sum(octet_length(packet) + octet_length(key)) OVER w - octet_length(packet) - octet_length(key) AS before
  FROM s WINDOW w AS (ORDER BY hash)
)
SELECT hash, key, off, epoch, at, packet, n < (SELECT count(*) FROM s) FROM w WHERE before < $4 AND n <= $3 ORDER BY hash`),
		hashOf(q.Topic), cursor, limit, maxBytes)
	if err != nil {
		return err
	}
	defer rows.Close()
	part := &c.Response.part
	part.Position = r.topics[q.Topic].position
	oldest := r.facts.now.Add(-ageOf(q.Retention))
	var hash, key []byte
	var more bool
	for rows.Next() {
		var p broker.Publication
		if err := rows.Scan(&hash, &key, &p.Position.Offset, &p.Position.Epoch, &p.At, &p.Packet, &more); err != nil {
			return err
		}
		if p.StateKey = string(key); p.At.After(oldest) {
			part.Publications = append(part.Publications, p)
		}
	}
	if more {
		part.Next = hex.EncodeToString(hash)
	}
	return rows.Err()
}

// extend extends the lifetimes of topics that have been read, about once an hour. A failure is
// harmless: the next read tries again.
func (s *store) extend(ctx context.Context, r *reading, topics []topicUse) {
	var hashes [][]byte
	var lifetimes []int64
	for _, use := range topics {
		lifetime := s.lifetime(use.age)
		if t := r.topics[use.name]; !t.expiresAt.IsZero() && t.expiresAt.Sub(r.facts.now) < lifetime-s.lifetimeMargin() {
			hashes, lifetimes = append(hashes, hashOf(use.name)), append(lifetimes, lifetime.Milliseconds())
		}
	}
	if len(hashes) == 0 {
		return
	}
	// A row that is locked is being written, which extends its lifetime, too.
	_, _ = s.pool.Exec(ctx, s.sql(`
UPDATE penstock.topic t SET expires_at = greatest(t.expires_at, clock_timestamp() + u.lifetime * interval '1 ms')
FROM unnest($1::bytea[], $2::bigint[]) AS u (hash, lifetime)
WHERE t.hash = u.hash AND t.id IN (SELECT id FROM penstock.topic WHERE hash = ANY ($1::bytea[]) FOR UPDATE SKIP LOCKED)`), hashes, lifetimes)
}

package postgres

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/postgrestest"
	"github.com/penstock-go/penstock/internal/redistest"
)

// A faultyDatabase is a database with a writer, which publishes in transactions, and a node that
// follows: through a proxy, or through PgBouncer.
type faultyDatabase struct {
	t       *testing.T
	primary *postgrestest.Server
	replica *postgrestest.Server // nil unless the fault has one
	proxy   *redistest.Proxy     // of the node that follows
	pooler  *postgrestest.PgBouncer
	pool    *pgxpool.Pool // of the writer
	lasts   time.Duration

	other *node // sequences, and appends
	reader
	appends int // calls of Append
	codes   map[errors.Code]int
}

const faultTopic = "news"

// A reader follows a topic as a router does: it reads what it has missed.
type reader struct {
	*node

	mu       sync.Mutex
	position broker.Position
	arrivals []time.Time
	ended    int // publications after the position at which an epoch ended
	behind   chan struct{}
}

// published handles a publication.
func (r *reader) receive(p broker.Publication) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.Position.Epoch == r.position.Epoch && p.Position.Offset <= r.position.Offset {
		return
	}
	if p.Position.Epoch != r.position.Epoch || p.Position.Offset != r.position.Offset+1 {
		r.readLocked()
		return
	}
	r.position = p.Position
	r.arrivals = append(r.arrivals, time.Now())
}

func (r *reader) readLocked() {
	select {
	case r.behind <- struct{}{}:
	default:
	}
}

// run reads when publications are missing.
func (r *reader) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.behind:
		}
		r.mu.Lock()
		after := r.position
		r.mu.Unlock()
		page, err := r.Read(ctx, broker.Query{Topic: faultTopic, Retention: keepAll, After: after.Offset, Limit: 1 << 20})
		r.mu.Lock()
		switch {
		case err != nil:
			time.AfterFunc(20*time.Millisecond, func() { r.mu.Lock(); defer r.mu.Unlock(); r.readLocked() })
		case page.Position.Epoch != after.Epoch:
			if page.Previous.Epoch == after.Epoch && page.Previous.Offset < after.Offset {
				r.ended += int(after.Offset - page.Previous.Offset)
			}
			r.position = broker.Position{Epoch: page.Position.Epoch, Offset: page.Previous.Offset}
			r.readLocked()
		case r.position == after:
			for range page.Publications {
				r.arrivals = append(r.arrivals, time.Now())
			}
			r.position = page.Position
		default:
			r.readLocked()
		}
		r.mu.Unlock()
	}
}

// write publishes numbers in transactions, and calls Append with others, until ctx is done.
func (d *faultyDatabase) write(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		once, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		packet := fmt.Sprint("transaction ", i)
		_ = InTx(once, d.pool, func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO written VALUES ($1)", packet); err != nil {
				return err
			}
			return Publish(ctx, tx, appendOf(faultTopic, packet))
		})
		if i%5 == 0 {
			_, err := d.other.Append(once, appendOf(faultTopic, fmt.Sprint("append ", i)))
			d.appends++
			d.codes[errors.CodeOf(err)]++
		}
		cancel()
		time.Sleep(5 * time.Millisecond)
	}
}

// A faultCase is a row of the table.
type faultCase struct {
	name  string
	setup func(d *faultyDatabase)
	begin func(d *faultyDatabase) (end func())
	lasts time.Duration
	check func(t *testing.T, d *faultyDatabase)
}

// start starts what a case needs, and returns the function that stops the writer and the reader.
func (c *faultCase) start(t *testing.T) (d *faultyDatabase, stop func()) {
	d = &faultyDatabase{t: t, lasts: c.lasts, codes: map[errors.Code]int{}}
	if c.setup != nil {
		c.setup(d)
	}
	if d.primary == nil {
		d.primary = startServer(t)
	}
	servers := []*postgrestest.Server{d.primary}
	if d.replica != nil {
		servers = append(servers, d.replica)
	}
	d.pool = ofAny(t, servers...)
	_, err := d.pool.Exec(t.Context(), "CREATE TABLE written (packet text)")
	require.NoError(t, err)
	d.other = connect(t, NewBroker(d.pool, nil))
	d.behind = make(chan struct{}, 1)
	d.node = &node{published: map[string][]broker.Publication{}, following: map[string]int{}}
	d.HistoryNode = d.brokerOfReader(servers).ConnectHistory(broker.Handler{}, broker.HistoryHandler{
		Published: func(_ string, p broker.Publication) { d.receive(p) },
		Following: func(string) { d.mu.Lock(); defer d.mu.Unlock(); d.readLocked() },
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { d.run(ctx) })
	d.Follow(faultTopic)
	writing, stopWriting := context.WithCancel(ctx)
	written := make(chan struct{})
	go func() { defer close(written); d.write(writing) }()
	t.Cleanup(func() {
		cancel()
		running.Wait()
		d.HistoryNode.(*historyNode).Kill()
	})
	return d, func() { stopWriting(); <-written }
}

// brokerOfReader returns a broker of which the fault disturbs the connections.
func (d *faultyDatabase) brokerOfReader(servers []*postgrestest.Server) *Broker {
	switch {
	case d.pooler != nil:
		return throughPgBouncer(d.t, d.pooler, d.primary.URL(), "")
	case d.replica != nil:
		return NewBroker(ofAny(d.t, servers...), nil)
	}
	d.proxy = redistest.StartProxy(d.t, d.primary.Addr())
	return NewBroker(openPool(d.t, strings.Replace(d.primary.URL(), d.primary.Addr(), d.proxy.Addr, 1)+"&connect_timeout=2"), nil)
}

// received returns how many publications the reader has received.
func (d *faultyDatabase) received() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.arrivals)
}

// A faultResult is what a fault has caused.
type faultResult struct {
	name                     string
	transactions             int
	lost, repeated, ended    int
	appends, refused, unsure int
	silence, recovery        time.Duration
}

// run injects the fault while the writer publishes.
func (c *faultCase) run(t *testing.T) faultResult {
	d, stop := c.start(t)
	require.Eventually(t, func() bool { return d.received() > 50 }, time.Minute, time.Millisecond)
	end := c.begin(d)
	time.Sleep(c.lasts)
	end()
	ended := time.Now()
	// What is published from now on must arrive.
	after := d.committedAfterFault()
	require.Eventually(t, func() bool { return d.hasReceived(after) }, time.Minute, time.Millisecond, "delivery after the fault")
	recovery := time.Since(ended)
	time.Sleep(200 * time.Millisecond)
	stop()
	r := d.compare(c)
	r.recovery = recovery
	if c.check != nil {
		c.check(t, d)
	}
	return r
}

// committedAfterFault publishes until that succeeds, and returns the position.
func (d *faultyDatabase) committedAfterFault() broker.Position {
	return d.other.eventuallyStores(d.t, "after the fault").Position
}

func (d *faultyDatabase) hasReceived(at broker.Position) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.position.Epoch == at.Epoch && d.position.Offset >= at.Offset
}

// compare waits until the outbox is empty, and compares the history with the rows of the
// transactions.
func (d *faultyDatabase) compare(c *faultCase) (r faultResult) {
	t := d.t
	require.Eventually(t, func() bool {
		var rows int
		err := d.pool.QueryRow(t.Context(), "SELECT count(*) FROM penstock.outbox").Scan(&rows)
		return err == nil && rows == 0
	}, time.Minute, 10*time.Millisecond, "the outbox is empty")
	page, packets := d.other.page(t, faultTopic)
	require.Eventually(t, func() bool { return d.hasReceived(page.Position) }, time.Minute, time.Millisecond, "everything is delivered")
	times := map[string]int{}
	for i, packet := range packets {
		require.EqualValues(t, i+1, page.Publications[i].Position.Offset, "offsets are gapless")
		times[packet]++
	}
	rows, err := d.pool.Query(t.Context(), "SELECT packet FROM written")
	require.NoError(t, err)
	written, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	r = faultResult{name: c.name, transactions: len(written), ended: d.ended, appends: d.appends}
	for _, packet := range written {
		switch n := times[packet]; {
		case n == 0:
			r.lost++
		case n > 1:
			r.repeated++
		}
		delete(times, packet)
	}
	for packet := range times {
		assert.False(t, strings.HasPrefix(packet, "transaction"), "%q was published by a transaction that was rolled back", packet)
	}
	assert.Zero(t, r.lost, "lost")
	assert.Zero(t, r.repeated, "repeated")
	r.unsure = d.codes[errors.OutcomeUnknown]
	r.refused = r.appends - r.unsure - d.codes[""]
	for i := 1; i < len(d.arrivals); i++ {
		r.silence = max(r.silence, d.arrivals[i].Sub(d.arrivals[i-1]))
	}
	return r
}

package postgres

import (
	"context"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/rules"
)

// A sequencer moves publications from the outbox to the histories. Each shard has an owner among
// the nodes, which polls; two owners at once do no harm. One goroutine polls, one maintains the
// tables, and one for each shard stores publications.
type sequencer struct {
	store *store
	node  *cluster.Node

	ctx     context.Context //nolint:containedctx // of the goroutines
	cancel  context.CancelFunc
	running sync.WaitGroup
	wakes   [shards]chan struct{}
}

func startSequencer(s *store, node *cluster.Node) *sequencer {
	q := &sequencer{store: s, node: node}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	for shard := range shards {
		q.wakes[shard] = make(chan struct{}, 1)
		q.running.Go(func() { q.run(shard) })
	}
	q.running.Go(q.poll)
	q.running.Go(q.maintain)
	return q
}

// stop ends the goroutines, and interrupts what they do.
func (q *sequencer) stop() {
	q.cancel()
	q.running.Wait()
}

// wake makes this node look at a shard.
func (q *sequencer) wake(shard int) {
	select {
	case q.wakes[shard] <- struct{}{}:
	default:
	}
}

// wakeOwner looks at shards that have publications, if this node owns them.
func (q *sequencer) wakeOwner(changed []byte) {
	for _, shard := range changed {
		if int(shard) < shards && q.owns(int(shard)) {
			q.wake(int(shard))
		}
	}
}

// owns reports whether this node owns a shard: of all nodes, its name has the highest hash with the
// shard. While it does not know all nodes, it owns each.
func (q *sequencer) owns(shard int) bool {
	others, all := q.node.Nodes()
	if !all {
		return true
	}
	own := rank(q.node.Name(), shard)
	for _, name := range others {
		if other := rank(name, shard); other > own || other == own && name > q.node.Name() {
			return false
		}
	}
	return true
}

func rank(node string, shard int) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte{byte(shard)})
	_, _ = h.Write([]byte(node))
	return h.Sum64()
}

// failurePause is how long a sequencer waits after an error.
const failurePause = 250 * time.Millisecond

// run stores publications of a shard.
func (q *sequencer) run(shard int) {
	for {
		select {
		case <-q.ctx.Done():
			return
		case <-q.wakes[shard]:
		}
		for more := true; more && q.ctx.Err() == nil; {
			ctx, cancel := context.WithTimeout(q.ctx, callTimeout)
			var err error
			more, err = q.store.sequence(ctx, shard, nil)
			cancel()
			if err != nil && q.ctx.Err() == nil {
				slog.Default().WarnContext(q.ctx, "postgres: publications stay in the outbox", "schema", q.store.schema, "shard", shard, "error", err)
				_ = rules.Sleep(q.ctx, failurePause)
			}
		}
	}
}

// waitingSQL returns the shards that have publications in the outbox.
const waitingSQL = "SELECT no::int FROM penstock.shard s WHERE EXISTS (SELECT FROM penstock.outbox o WHERE o.shard = s.no)"

// poll looks at the outbox for publications of transactions without a wake-up.
func (q *sequencer) poll() {
	for rules.Sleep(q.ctx, q.store.poll) == nil {
		var own [shards]bool
		ownsAny := false
		for shard := range shards {
			own[shard] = q.owns(shard)
			ownsAny = ownsAny || own[shard]
		}
		if !ownsAny {
			continue
		}
		waiting, err := q.waiting()
		if err != nil {
			_ = rules.Sleep(q.ctx, failurePause)
			continue
		}
		for _, shard := range waiting {
			if shard < shards && own[shard] {
				q.wake(shard)
			}
		}
	}
}

func (q *sequencer) waiting() ([]int, error) {
	ctx, cancel := context.WithTimeout(q.ctx, callTimeout)
	defer cancel()
	rows, err := q.store.pool.Query(ctx, q.store.sql(waitingSQL))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

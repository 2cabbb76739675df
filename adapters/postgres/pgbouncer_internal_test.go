package postgres

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/broker/brokertest"
	"github.com/penstock-go/penstock/internal/postgrestest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// throughPgBouncer returns a broker whose pool leads through PgBouncer in transaction mode.
func throughPgBouncer(t testing.TB, pooler *postgrestest.PgBouncer, direct, schema string) *Broker {
	listen, err := pgx.ParseConfig(direct)
	require.NoError(t, err)
	return NewBroker(openPool(t, pooler.URL()+"&default_query_exec_mode=exec"), &Options{Schema: schema, Listen: listen})
}

// TestPgBouncer_KeepsContract runs the cases of histories through PgBouncer. Those with faults have
// a fault of it.
func TestPgBouncer_KeepsContract(t *testing.T) {
	t.Parallel()
	quick := []string{"one order", "pages", "duplicate", "state", "value is patched", "batch pages", "following means delivered", "history packets"}
	all := brokertest.HistoryCases()
	few := slices.DeleteFunc(slices.Clone(all), func(c brokertest.HistoryCase) bool { return !slices.Contains(quick, c.Name) })
	for _, c := range testscale.Pick(few, testscale.SoakSample(all, 15)) {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			pool, schema := newSchema(t)
			direct := pool.Config().ConnString()
			poolers := map[broker.Node]*postgrestest.PgBouncer{}
			c.Run(t, brokertest.HistoryCluster{
				Connect: func(handler broker.Callbacks, history broker.HistoryCallbacks) broker.HistoryNode {
					pooler := postgrestest.StartPgBouncer(t, direct)
					n := throughPgBouncer(t, pooler, direct, schema).ConnectHistory(handler, history)
					poolers[n] = pooler
					return n
				},
				Faults: []brokertest.Fault{{Name: "PgBouncer is restarted", Duration: time.Second, Begin: func(n broker.Node) func() {
					poolers[n].Kill()
					return poolers[n].Restart
				}}},
				Timeout: 20 * time.Second, QuietPeriod: 100 * time.Millisecond, Age: 500 * time.Millisecond,
			})
		})
	}
}

// TestPgBouncer_OutboxKeepsItsPromises runs the check of the outbox through PgBouncer.
func TestPgBouncer_OutboxKeepsItsPromises(t *testing.T) {
	testscale.FullOnly(t, "TestPgBouncer_KeepsContract")
	t.Parallel()
	direct, schema := newSchema(t)
	pooler := postgrestest.StartPgBouncer(t, direct.Config().ConnString())
	pool := openPool(t, pooler.URL()+"&default_query_exec_mode=exec")
	c := &outboxCheck{pool: pool, schema: schema, rules: sequencingRules(), lasts: 5 * time.Second, wait: 20 * time.Second}
	c.disturb = func(ctx context.Context) {
		for ctx.Err() == nil {
			time.Sleep(1500 * time.Millisecond)
			pooler.Kill()
			pooler.Restart()
		}
	}
	require.NoError(t, c.run(t))
}

// TestPgBouncer_ListenThroughItIsReported listens through PgBouncer, where nothing arrives. It
// replaces the default logger, so it is not parallel.
func TestPgBouncer_ListenThroughItIsReported(t *testing.T) {
	testscale.FullOnly(t, "TestPgBouncer_KeepsContract")
	pool, schema := newSchema(t)
	pooler := postgrestest.StartPgBouncer(t, pool.Config().ConnString())
	log := &lockedBuffer{}
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	defer slog.SetDefault(before)
	n := connect(t, NewBroker(openPool(t, pooler.URL()+"&default_query_exec_mode=exec"), &Options{Schema: schema}))
	n.Follow("news")
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "Options.Listen") }, time.Minute, 10*time.Millisecond)
	n.mu.Lock()
	defer n.mu.Unlock()
	assert.Empty(t, n.following, "nothing is promised")
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

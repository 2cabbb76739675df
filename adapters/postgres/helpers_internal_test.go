package postgres

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/broker/brokertest"
	"github.com/penstock-go/penstock/internal/postgrestest"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// openPool returns a pool that ends with the test.
func openPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	return openConfig(t, config)
}

func openConfig(t testing.TB, config *pgxpool.Config) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// newSchema creates a schema of the shared server, and returns a pool for it.
func newSchema(t testing.TB) (pool *pgxpool.Pool, schema string) {
	t.Helper()
	pool = openPool(t, postgrestest.Shared(t))
	schema = "test_" + strings.ToLower(rand.Text())
	require.NoError(t, Migrate(t.Context(), pool, schema))
	t.Cleanup(func() {
		_, _ = pool.Exec(context.Background(), "DROP SCHEMA "+schema+" CASCADE")
	})
	return pool, schema
}

// A faultyCluster has a proxy between each node and the server.
type faultyCluster struct {
	t      *testing.T
	url    string
	schema string
	edit   func(*Broker)

	mu      sync.Mutex
	proxies map[broker.Node]*redistest.Proxy
}

func newFaultyCluster(t *testing.T) *faultyCluster {
	pool, schema := newSchema(t)
	return &faultyCluster{t: t, url: pool.Config().ConnString(), schema: schema, proxies: map[broker.Node]*redistest.Proxy{}}
}

// connect adds a node. A connection that is not established in a second is given up.
func (f *faultyCluster) connect(handler broker.Callbacks, history broker.HistoryCallbacks) broker.HistoryNode {
	server := postgrestest.Addr(f.url)
	proxy := redistest.StartProxy(f.t, server)
	config, err := pgxpool.ParseConfig(strings.Replace(f.url, server, proxy.Addr, 1) + "&connect_timeout=1")
	require.NoError(f.t, err)
	b := NewBroker(openConfig(f.t, config), &Options{Schema: f.schema})
	if f.edit != nil {
		f.edit(b)
	}
	n := b.ConnectHistory(handler, history)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.proxies[n] = proxy
	return n
}

func (f *faultyCluster) proxy(n broker.Node) *redistest.Proxy {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.proxies[n]
}

// faults are those of the network of one node.
func (f *faultyCluster) faults() []brokertest.Fault {
	stall := func(begin func(*redistest.Proxy)) func(broker.Node) func() {
		return func(n broker.Node) func() {
			proxy := f.proxy(n)
			begin(proxy)
			return proxy.Restore
		}
	}
	return testscale.SoakSample([]brokertest.Fault{
		{Name: "connections are closed", Duration: 300 * time.Millisecond, Begin: func(n broker.Node) func() {
			f.proxy(n).Cut()
			f.proxy(n).Restore()
			return func() {}
		}},
		{Name: "server is not reachable", Duration: 1500 * time.Millisecond, Begin: stall((*redistest.Proxy).Cut)},
		{Name: "connections are paused", Duration: 1500 * time.Millisecond, Begin: stall((*redistest.Proxy).Stall)},
		{Name: "replies are paused", Duration: 1500 * time.Millisecond, Begin: stall((*redistest.Proxy).StallReplies)},
	}, 3)
}

func (f *faultyCluster) historyCluster() brokertest.HistoryCluster {
	return brokertest.HistoryCluster{
		Connect: f.connect, Faults: f.faults(),
		Timeout: 20 * time.Second, QuietPeriod: 100 * time.Millisecond, Age: 500 * time.Millisecond,
	}
}

func appendOf(topic, packet string) broker.Append {
	return broker.Append{Topic: topic, Retention: keepAll, Packet: []byte(packet)}
}

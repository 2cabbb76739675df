package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/postgrestest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// ofAny returns a pool of the server that accepts writes, as an application with replicas has it.
func ofAny(t testing.TB, servers ...*postgrestest.Server) *pgxpool.Pool {
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	return openPool(t, fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable&target_session_attrs=read-write&connect_timeout=2", strings.Join(addrs, ",")))
}

// startServer returns a server with the default schema.
func startServer(t testing.TB, settings ...string) *postgrestest.Server {
	server := postgrestest.Start(t, settings...)
	require.NoError(t, Migrate(t.Context(), openPool(t, server.URL()), ""))
	return server
}

// eventuallyStores appends to news until that succeeds. A key makes it harmless.
func (n *node) eventuallyStores(t testing.TB, packet string) (stored broker.Appended) {
	t.Helper()
	require.Eventually(t, func() bool {
		a := appendOf("news", packet)
		a.IdempotencyKey = packet
		var err error
		stored, err = n.Append(t.Context(), a)
		return err == nil
	}, time.Minute, 20*time.Millisecond)
	return stored
}

// eventuallyReads reads a topic until that succeeds: a pool has connections to the server that has
// ended.
func (n *node) eventuallyReads(t testing.TB, topic string) (broker.Page, []string) {
	t.Helper()
	var page broker.Page
	require.Eventually(t, func() bool {
		var err error
		page, err = n.Read(t.Context(), broker.Query{Topic: topic, Retention: keepAll, Limit: 1 << 20})
		return err == nil
	}, time.Minute, 20*time.Millisecond)
	return page, packetsOf(page)
}

func TestFailover_RestartKeepsEpoch(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	n := connect(t, NewBroker(openPool(t, server.URL()), nil))
	n.follow(t, "news")
	for _, packet := range []string{"1", "2", "3"} {
		n.publish(t, "news", packet)
	}
	before, _ := n.page(t, "news")
	server.Kill()
	server.Restart()
	stored := n.eventuallyStores(t, "4")
	assert.Equal(t, broker.Position{Epoch: before.Position.Epoch, Offset: 4}, stored.Position)
	_, packets := n.eventuallyReads(t, "news")
	assert.Equal(t, []string{"1", "2", "3", "4"}, packets)
	n.eventually(t, "following again", func() bool { return n.following["news"] > 1 })
	n.publish(t, "news", "5")
	n.eventually(t, "delivery", func() bool {
		all := n.published["news"]
		return string(all[len(all)-1].Packet) == "5"
	})
}

// TestFailover_LostTailEndsEpoch promotes a replica that has not received the last publications.
func TestFailover_LostTailEndsEpoch(t *testing.T) {
	t.Parallel()
	primary := startServer(t)
	replica := primary.StartReplica("replica")
	pool := ofAny(t, primary, replica)
	n, reader := connect(t, NewBroker(pool, nil)), connect(t, NewBroker(pool, nil))
	n.follow(t, "news")
	for _, packet := range []string{"1", "2"} {
		n.publish(t, "news", packet)
	}
	n.publish(t, "unused since", "1")
	awaitReplay(t, primary, replica)
	replica.Settings("primary_conninfo = ''")
	awaitDetached(t, primary)
	n.publish(t, "news", "lost 3")
	n.publish(t, "created", "lost 1")
	before, _ := n.page(t, "news")
	created, _ := n.page(t, "created")
	primary.Stop()
	replica.Promote()

	stored := n.eventuallyStores(t, "3")
	after, packets := reader.eventuallyReads(t, "news")
	assert.NotEqual(t, before.Position.Epoch, after.Position.Epoch)
	assert.Equal(t, stored.Position, after.Position)
	assert.EqualValues(t, 3, after.Position.Offset)
	assert.Equal(t, broker.Position{Epoch: before.Position.Epoch, Offset: 2}, after.Previous)
	assert.Equal(t, []string{"1", "2", "3"}, packets)

	for topic, top := range map[string]uint64{"unused since": 1, "created": 0} {
		page, _ := reader.eventuallyReads(t, topic)
		assert.Equal(t, broker.Position{Epoch: after.Position.Epoch, Offset: top}, page.Position, topic)
		assert.NotEmpty(t, page.Previous.Epoch, topic)
		assert.Equal(t, top, page.Previous.Offset, topic)
	}
	page, _ := reader.eventuallyReads(t, "created")
	assert.Equal(t, broker.Position{Epoch: created.Position.Epoch}, page.Previous, "its publication is lost")
	n.eventually(t, "following the new primary", func() bool { return n.following["news"] > 1 })
}

// awaitReplay waits until a replica has everything.
func awaitReplay(t testing.TB, primary, replica *postgrestest.Server) {
	t.Helper()
	var lsn string
	require.NoError(t, openPool(t, primary.URL()).QueryRow(t.Context(), "SELECT pg_current_wal_insert_lsn()::text").Scan(&lsn))
	pool := openPool(t, replica.URL())
	require.Eventually(t, func() bool {
		var hasReplayed bool
		err := pool.QueryRow(t.Context(), "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn", lsn).Scan(&hasReplayed)
		return err == nil && hasReplayed
	}, time.Minute, 5*time.Millisecond)
	pool.Close()
}

// awaitDetached waits until no replica is connected.
func awaitDetached(t testing.TB, primary *postgrestest.Server) {
	t.Helper()
	pool := openPool(t, primary.URL())
	require.Eventually(t, func() bool {
		var replicas int
		err := pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_replication").Scan(&replicas)
		return err == nil && replicas == 0
	}, time.Minute, 5*time.Millisecond)
	pool.Close()
}

// TestFailover_RestoredDataEndsEpoch goes back to a copy of the data, which nothing in the server
// shows.
func TestFailover_RestoredDataEndsEpoch(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	setup := connect(t, NewBroker(openPool(t, server.URL()), nil))
	setup.publish(t, "news", "1")
	server.Stop()
	restored := server.Copy()
	server.Restart()
	n := connect(t, NewBroker(ofAny(t, server, restored), nil))
	for i := range 200 {
		n.publish(t, "news", fmt.Sprint("lost ", i))
	}
	before, _ := n.page(t, "news")
	server.Stop()
	restored.Restart()
	stored := n.eventuallyStores(t, "2")
	assert.NotEqual(t, before.Position.Epoch, stored.Position.Epoch)
	assert.EqualValues(t, 2, stored.Position.Offset)
	after, packets := n.eventuallyReads(t, "news")
	assert.Equal(t, []string{"1", "2"}, packets)
	assert.Equal(t, broker.Position{Epoch: before.Position.Epoch, Offset: 1}, after.Previous)
}

// TestFailover_ReplicaIsNotUsed connects a node to a replica.
func TestFailover_ReplicaIsNotUsed(t *testing.T) {
	testscale.FullOnly(t, "TestFailover_LostTailEndsEpoch")
	t.Parallel()
	primary := startServer(t)
	connect(t, NewBroker(openPool(t, primary.URL()), nil)).publish(t, "news", "1")
	replica := primary.StartReplica("replica")
	n := connect(t, NewBroker(openPool(t, replica.URL()), nil))
	_, err := n.Append(t.Context(), appendOf("news", "2"))
	assert.Equal(t, errors.Unavailable, errors.CodeOf(err), err)
	_, err = n.Read(t.Context(), broker.Query{Topic: "news"})
	assert.Equal(t, errors.Unavailable, errors.CodeOf(err), err)
	_, err = n.LoadValue(t.Context(), "key")
	assert.Equal(t, errors.Unavailable, errors.CodeOf(err), err)
	_, err = n.StoreValue(t.Context(), "key", nil, 0, time.Hour)
	assert.Equal(t, errors.Unavailable, errors.CodeOf(err), err)
}

func TestDurability_SettingsArePreconditions(t *testing.T) {
	t.Parallel()
	pool, schema := newSchema(t)
	n := connect(t, NewBroker(pool, &Options{Schema: schema}))
	for _, d := range []broker.Durability{{Replicas: 1}, {OnDisk: true}} { // the shared server has fsync = off
		a := appendOf("news", "never")
		a.Durability = d
		_, err := n.Append(t.Context(), a)
		assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(err), err)
	}
	page, _ := n.eventuallyReads(t, "news")
	assert.Zero(t, page.Position.Offset)
}

func TestSynchronousReplicas(t *testing.T) {
	t.Parallel()
	for standbys, want := range map[string]int{
		"": 0, "a": 1, "a, b": 1, "*": 1, "FIRST 2 (a, b, c)": 2, "ANY 3 (*)": 3, "any 1(a,b)": 1, "2 (a, b)": 2, `"FIRST"`: 1,
	} {
		assert.Equal(t, want, synchronousReplicas(standbys), standbys)
	}
}

// TestDurability_AcknowledgedIsNotLost kills a primary, and promotes the replica that has
// confirmed.
func TestDurability_AcknowledgedIsNotLost(t *testing.T) {
	t.Parallel()
	primary := startServer(t, "fsync=on", "synchronous_standby_names=ANY 1 (*)", "synchronous_commit=local")
	replica := primary.StartReplica("replica", "fsync=on")
	n := connect(t, NewBroker(ofAny(t, primary, replica), nil))
	durable := func(ctx context.Context, packet string, d broker.Durability) error {
		a := appendOf("news", packet)
		a.Durability = d
		_, err := n.Append(ctx, a)
		return err
	}
	assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(durable(t.Context(), "never", broker.Durability{Replicas: 2})))
	require.NoError(t, durable(t.Context(), "1", broker.Durability{Replicas: 1}))
	require.NoError(t, durable(t.Context(), "2", broker.Durability{Replicas: 1, OnDisk: true}))

	replica.Pause()
	result := make(chan error, 1)
	go func() { result <- durable(t.Context(), "3", broker.Durability{Replicas: 1, OnDisk: true}) }()
	n.publish(t, "news", "4") // does not wait for a replica
	err := <-result
	assert.Equal(t, errors.OutcomeUnknown, errors.CodeOf(err), err)
	require.ErrorContains(t, err, "have not confirmed")
	replica.Resume()
	var acknowledged []string
	for i := range 10 {
		packet := fmt.Sprint("acknowledged ", i)
		if durable(t.Context(), packet, broker.Durability{Replicas: 1, OnDisk: true}) == nil {
			acknowledged = append(acknowledged, packet)
		}
	}
	assert.NotEmpty(t, acknowledged)
	primary.Kill()
	replica.Settings("synchronous_standby_names = ''")
	replica.Promote()
	n.eventuallyStores(t, "after")
	_, packets := n.eventuallyReads(t, "news")
	for _, packet := range append(acknowledged, "1", "2") {
		assert.Contains(t, packets, packet)
	}
}

package redis

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis/internal/pubsub"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// TestHistory_Cluster publishes on topics of all masters.
func TestHistory_Cluster(t *testing.T) {
	testscale.FullOnly(t, "TestHistory_PublicationIsStoredAndPublished")
	t.Parallel()
	const topics, each = 50, 20
	servers := redistest.StartCluster(t)
	a, b := connectHistory(t, servers.Client(t)), connectHistory(t, servers.Client(t))
	masters := map[int]bool{}
	for i := range topics {
		topic := fmt.Sprint("topic ", i)
		b.Follow(topic)
		masters[int(pubsub.SlotOf(b.engine.Tags[b.keysOf(topic).channel.Partition]))*len(servers.Nodes)/pubsub.SlotCount] = true
	}
	require.Len(t, masters, len(servers.Nodes))
	b.eventually(t, "following", func() bool { return b.following == topics })
	var wg sync.WaitGroup
	for i := range topics {
		wg.Go(func() {
			for j := range each {
				p := broker.Append{Topic: fmt.Sprint("topic ", i), Retention: retention, Packet: fmt.Append(nil, j), IdempotencyKey: fmt.Sprint(j), StateKey: "last"}
				appended, err := a.Append(t.Context(), p)
				assert.NoError(t, err)
				assert.EqualValues(t, j+1, appended.Position.Offset)
				appended, err = a.Append(t.Context(), p)
				assert.NoError(t, err)
				assert.True(t, appended.Duplicate)
			}
		})
	}
	wg.Wait()
	b.eventually(t, "published", func() bool { return len(b.published) == topics*each })
	for i := range topics {
		page, err := b.Read(t.Context(), broker.Query{Topic: fmt.Sprint("topic ", i), Retention: retention, Limit: 100})
		require.NoError(t, err)
		require.Len(t, page.Publications, each)
		state, err := b.ReadState(t.Context(), broker.StateQuery{Topic: fmt.Sprint("topic ", i), Retention: retention})
		require.NoError(t, err)
		require.Len(t, state.Publications, 1)
		assert.Equal(t, page.Publications[each-1], state.Publications[0])
	}
	require.NoError(t, checkPolicy(t.Context(), a.client))
}

// TestHistory_SlotMigration publishes while the slot of the topic moves to another master.
func TestHistory_SlotMigration(t *testing.T) {
	testscale.FullOnly(t, "TestHistory_PublicationIsStoredAndPublished")
	t.Parallel()
	servers := redistest.StartCluster(t)
	a, b := connectHistory(t, servers.Client(t)), connectHistory(t, servers.Client(t))
	b.followNews(t)
	stored, failed := map[uint64]string{}, 0
	publish := func() {
		packet := fmt.Sprint(len(stored), " ", failed)
		p := broker.Append{Topic: "news", Retention: broker.Retention{Messages: 1000}, Packet: []byte(packet)}
		appended, err := a.Append(t.Context(), p)
		if err != nil {
			failed++
			assert.Equal(t, errors.Unavailable, errors.CodeOf(err), err)
			return
		}
		stored[appended.Position.Offset] = packet
	}
	publish()
	first, _ := a.page(t)
	slot := int(pubsub.SlotOf(a.engine.Tags[a.keysOf("news").channel.Partition]))
	moveFromOwner(t, servers, slot, func() {
		for range 5 {
			publish()
		}
	})
	published := len(stored)
	require.Eventually(t, func() bool { publish(); return len(stored) > published }, time.Minute, 50*time.Millisecond)
	t.Logf("%d publications were stored and %d were not", len(stored), failed)
	page, packets := b.page(t)
	require.Len(t, packets, len(stored))
	for _, p := range page.Publications {
		assert.Equal(t, stored[p.Position.Offset], string(p.Packet))
	}
	assert.EqualValues(t, len(stored), page.Position.Offset)
	assert.Equal(t, first.Position.Epoch, page.Previous.Epoch, "the new master has another lineage")
	b.eventually(t, "following the new master", func() bool { return b.following >= 2 })
	publish()
	b.eventually(t, "published", func() bool { return b.published[len(b.published)-1].Position.Offset == uint64(len(stored)) })
}

// TestHistory_ClusterFailover kills a master, and publishes meanwhile on topics of all masters.
func TestHistory_ClusterFailover(t *testing.T) {
	testscale.FullOnly(t, "TestHistory_RestartBeginsEpoch")
	t.Parallel()
	servers, client := startReplicatedCluster(t)
	a, b := connectHistory(t, client()), connectHistory(t, client())
	const topics = 12
	topic := func(i int) string { return fmt.Sprint("topic ", i) }
	epochs := map[string]string{}
	affected := map[string]bool{}
	for i := range topics {
		b.Follow(topic(i))
		appended, err := a.Append(t.Context(), broker.Append{Topic: topic(i), Retention: retention})
		require.NoError(t, err)
		epochs[topic(i)] = appended.Position.Epoch
		affected[topic(i)] = int(pubsub.SlotOf(a.engine.Tags[a.keysOf(topic(i)).channel.Partition]))*3/pubsub.SlotCount == 1
	}
	b.eventually(t, "following", func() bool { return b.following == topics })
	require.NoError(t, servers[1].Client(t).Wait(t.Context(), 1, 10*time.Second).Err())
	servers[1].Stop()
	var wg sync.WaitGroup
	for i := range topics {
		wg.Go(func() {
			assert.Eventually(t, func() bool {
				appended, err := a.Append(t.Context(), broker.Append{Topic: topic(i), Retention: retention})
				if err != nil {
					assert.True(t, affected[topic(i)], "%s is on another master: %v", topic(i), err)
					return false
				}
				return assert.EqualValues(t, 2, appended.Position.Offset) &&
					assert.Equal(t, affected[topic(i)], appended.Position.Epoch != epochs[topic(i)])
			}, 30*time.Second, 100*time.Millisecond)
		})
	}
	wg.Wait()
	count := 0
	for _, is := range affected {
		if is {
			count++
		}
	}
	b.eventually(t, "following again", func() bool { return b.following >= topics+count })
}

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

// TestHistory_SlotMigration publishes while the slot of the topic moves to another master.
func TestHistory_SlotMigration(t *testing.T) {
	testscale.FullOnly(t, "TestHistory_KeepsContract")
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

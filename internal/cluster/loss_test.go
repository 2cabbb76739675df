package cluster_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/cluster/enginetest"
)

func lose(f *enginetest.Faults)        { f.Lose = true }
func failPublish(f *enginetest.Faults) { f.FailPublish = true }
func disconnect(f *enginetest.Faults)  { f.Disconnect = true }
func none(f *enginetest.Faults)        { *f = enginetest.Faults{} }

func TestNode_CountsMissingNumbers(t *testing.T) {
	run(t, func(t *testing.T, network *enginetest.Network) {
		a, b := connectPair(t, network)
		a.publish(t, "1")
		a.update(lose)
		a.publish(t, "2", "3")
		a.update(none)
		a.publish(t, "4")
		assert.Equal(t, []string{"news 1", "news 4"}, b.packets())
		time.Sleep(5 * time.Second)
		assert.Equal(t, []string{"news 2"}, b.lost())
		assert.Equal(t, []string{"news"}, b.subscriptions(), "Subscribed precedes only reports without a number")
	})
}

func TestNode_ReportsLossAfterSubscriptionIsRestored(t *testing.T) {
	run(t, func(t *testing.T, network *enginetest.Network) {
		a, b := connectPair(t, network)
		a.publish(t, "1")
		b.update(disconnect)
		for range 20 {
			a.publish(t, "lost")
			time.Sleep(time.Second)
		}
		assert.Empty(t, b.lost())
		b.update(none)
		restored := time.Now()
		a.publish(t, "2")
		time.Sleep(5 * time.Second)
		assert.Equal(t, []string{"news 1", "news 2"}, b.packets())
		require.Equal(t, []string{"news 0"}, b.lost(), "the numbers that are missing belong to the same outage")
		assert.True(t, b.reportedAt().After(restored))
		assert.Equal(t, []string{"news", "news"}, b.subscriptions())
		assert.Empty(t, b.failures())
	})
}

// TestNode_ReportsOutageOncePerTopic lets 15 publishers use 2,000 topics during an outage. Some
// publish again only long after it.
func TestNode_ReportsOutageOncePerTopic(t *testing.T) {
	const topics, publishers = 2000, 15
	run(t, func(t *testing.T, network *enginetest.Network) {
		subscriber := connect(t, network)
		var nodes []*node
		for range publishers {
			nodes = append(nodes, connect(t, network))
		}
		publish := func(n *node) {
			for topic := range topics {
				require.NoError(t, n.Publish(fmt.Sprint(topic), []byte("packet")))
			}
			synctest.Wait()
		}
		for topic := range topics {
			subscriber.Subscribe(fmt.Sprint(topic))
		}
		time.Sleep(3 * time.Second)
		for _, n := range nodes {
			publish(n)
		}
		subscriber.update(disconnect)
		for _, n := range nodes {
			publish(n)
		}
		time.Sleep(2 * time.Second)
		subscriber.update(none)
		for _, n := range nodes[:publishers/2] {
			publish(n)
		}
		time.Sleep(10 * time.Second)
		for _, n := range nodes[publishers/2:] {
			publish(n)
		}
		time.Sleep(10 * time.Second)
		assert.Len(t, subscriber.lost(), topics)
		assert.Len(t, subscriber.packets(), 2*publishers*topics)
	})
}

// TestNode_ReportsLossAfterReport loses packets that were published after the report,
// so that it cannot cover them.
func TestNode_ReportsLossAfterReport(t *testing.T) {
	run(t, func(t *testing.T, network *enginetest.Network) {
		a, b := connectPair(t, network)
		a.publish(t, "1")
		b.update(disconnect)
		a.publish(t, "lost")
		b.update(none)
		time.Sleep(5 * time.Second)
		require.Equal(t, []string{"news 0"}, b.lost())
		a.update(lose)
		a.publish(t, "lost")
		a.update(none)
		time.Sleep(2 * time.Second)
		a.publish(t, "2")
		time.Sleep(5 * time.Second)
		assert.Equal(t, []string{"news 0", "news 0"}, b.lost(), "one of the missing numbers was published after the first report")
	})
}

// TestNode_RevealsLossOfIdleTopic loses the last packets before the publisher forgets its numbers.
func TestNode_RevealsLossOfIdleTopic(t *testing.T) {
	for _, endIsLost := range []bool{false, true} {
		run(t, func(t *testing.T, network *enginetest.Network) {
			a, b := connectPair(t, network)
			a.publish(t, "1")
			a.update(lose)
			a.publish(t, "lost")
			if !endIsLost {
				a.update(none)
			}
			time.Sleep(65 * time.Second)
			if !endIsLost {
				assert.Equal(t, []string{"news 1"}, b.lost(), "the publisher sends its last number before it forgets it")
			}
			time.Sleep(65 * time.Second)
			a.update(none)
			time.Sleep(3 * time.Second)
			a.publish(t, "2", "3")
			time.Sleep(3 * time.Second)
			assert.Equal(t, []string{"news 1", "news 2", "news 3"}, b.packets())
			if endIsLost {
				assert.Equal(t, []string{"news 0"}, b.lost(), "a new epoch without the end of the last one")
			} else {
				assert.Len(t, b.lost(), 1)
			}
		})
	}
}

func TestNode_IdleTopicWithoutLossReportsNothing(t *testing.T) {
	run(t, func(t *testing.T, network *enginetest.Network) {
		a, b := connectPair(t, network)
		for range 5 {
			a.publish(t, "packet")
			time.Sleep(100 * time.Second)
		}
		assert.Len(t, b.packets(), 5)
		assert.Empty(t, b.lost())
	})
}

// TestNode_ReportsLossOfFirstNumberAfterIdleTime loses the first packets of a new epoch.
func TestNode_ReportsLossOfFirstNumberAfterIdleTime(t *testing.T) {
	run(t, func(t *testing.T, network *enginetest.Network) {
		a, b := connectPair(t, network)
		a.publish(t, "1")
		time.Sleep(100 * time.Second)
		a.update(lose)
		a.publish(t, "lost")
		a.update(none)
		a.publish(t, "2")
		time.Sleep(3 * time.Second)
		assert.Equal(t, []string{"news 1"}, b.lost())
	})
}

// TestNode_ReportsLossBeforeFirstDelivery silently loses the first packet that b could receive.
func TestNode_ReportsLossBeforeFirstDelivery(t *testing.T) {
	run(t, func(t *testing.T, network *enginetest.Network) {
		a, b := connectPair(t, network)
		a.update(lose)
		a.publish(t, "lost")
		a.update(none)
		time.Sleep(2 * time.Second)
		a.publish(t, "1")
		time.Sleep(3 * time.Second)
		assert.Equal(t, []string{"news 0"}, b.lost())
	})
}

// TestNode_AnnouncesFailureBeforeFirstDelivery loses the first packet of a node before any
// heartbeat could show that b should have received it.
func TestNode_AnnouncesFailureBeforeFirstDelivery(t *testing.T) {
	run(t, func(t *testing.T, network *enginetest.Network) {
		a, b := connect(t, network), connect(t, network)
		b.Subscribe("news")
		synctest.Wait()
		a.update(failPublish)
		a.publish(t, "lost")
		a.update(none)
		a.publish(t, "1")
		time.Sleep(3 * time.Second)
		assert.Equal(t, []string{"news 0"}, b.lost())
	})
}

func TestNode_EarlierNumbersOfLateSubscriptionAreNotLost(t *testing.T) {
	run(t, func(t *testing.T, network *enginetest.Network) {
		a, b := connectPair(t, network)
		b.Unsubscribe("news")
		for range 100 {
			a.publish(t, "not subscribed")
			time.Sleep(100 * time.Millisecond)
		}
		b.Subscribe("news")
		synctest.Wait()
		for range 100 {
			a.publish(t, "packet")
			time.Sleep(100 * time.Millisecond)
		}
		assert.Len(t, b.packets(), 100)
		assert.Empty(t, b.lost())
	})
}

func TestNode_AnnouncesFailedPublish(t *testing.T) {
	run(t, func(t *testing.T, network *enginetest.Network) {
		a, b := connectPair(t, network)
		a.update(failPublish)
		a.publish(t, "lost", "lost")
		time.Sleep(time.Second)
		assert.Empty(t, b.lost())
		a.update(none)
		time.Sleep(5 * time.Second)
		assert.Equal(t, []string{"news 0"}, b.lost())
		a.update(failPublish)
		a.publish(t, "lost", "lost")
		time.Sleep(time.Second)
		a.update(none)
		time.Sleep(5 * time.Second)
		assert.Equal(t, []string{"news 0", "news 2"}, b.lost())
	})
}

func TestNode_DiscardsDuplicates(t *testing.T) {
	run(t, func(t *testing.T, network *enginetest.Network) {
		a, b := connectPair(t, network)
		a.update(func(f *enginetest.Faults) { f.Duplicate = true })
		a.publish(t, "1", "2", "3")
		assert.Equal(t, []string{"news 1", "news 2", "news 3"}, b.packets())
		assert.Empty(t, b.lost())
	})
}

func TestNode_ReportsPacketAboveSizeLimit(t *testing.T) {
	run(t, func(t *testing.T, network *enginetest.Network) {
		a, b := connectPair(t, network)
		a.publish(t, "1")
		a.update(func(f *enginetest.Faults) { f.MaxBytes = 1000 })
		a.publish(t, string(make([]byte, 2000)), "2")
		time.Sleep(3 * time.Second)
		assert.Equal(t, []string{"news 1", "news 2"}, b.packets())
		assert.Equal(t, []string{"news 1"}, b.lost())
	})
}

package redis

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/testscale"
)

// TestHistory_PriceOfDurability prints what the table of docs/reference/guarantees.md has: how fast 64
// publishers, of which each waits for its publication, are with each Durability.
func TestHistory_PriceOfDurability(t *testing.T) {
	t.Parallel()
	lasts := testscale.Tiers(50*time.Millisecond, 500*time.Millisecond, 2*time.Second)
	cases := []struct {
		name       string
		durability broker.Durability
		args       []string // of master and replica
	}{
		{"memory of the master", broker.Durability{}, nil},
		{"and of a replica", onReplica, nil},
		{"memory of the master, AOF everysec", broker.Durability{}, []string{"--appendonly", "yes"}},
		{"disk of the master, AOF everysec", onDisk, []string{"--appendonly", "yes"}},
		{"memory of the master, AOF always", broker.Durability{}, []string{"--appendonly", "yes", "--appendfsync", "always"}},
		{"disk of the master, AOF always", onDisk, []string{"--appendonly", "yes", "--appendfsync", "always"}},
		{"disk of the master and of a replica, AOF always", broker.Durability{Replicas: 1, OnDisk: true}, []string{"--appendonly", "yes", "--appendfsync", "always"}},
	}
	for _, c := range testscale.Pick(cases[:2], cases) {
		t.Run(c.name, func(t *testing.T) {
			master, _ := startReplicated(t, c.args...)
			if c.durability.OnDisk && !master.HasCommand(t, "waitaof") {
				t.Skip("needs Redis 7.2 or newer, which has WAITAOF")
			}
			n := connectHistory(t, master.Client(t))
			began := time.Now()
			times := n.measure(t, c.durability, lasts)
			t.Logf("%.0f publications/s, p50 %v, p99 %v", float64(len(times))/time.Since(began).Seconds(),
				times[len(times)/2].Round(10*time.Microsecond), times[len(times)*99/100].Round(10*time.Microsecond))
			used := master.CommandStats(t)["wait"]+master.CommandStats(t)["waitaof"] > 0
			assert.Equal(t, c.durability != broker.Durability{}, used, "what is not used costs nothing")
		})
	}
}

// measure returns how long publications took, in ascending order.
func (n *observedNode) measure(t *testing.T, d broker.Durability, lasts time.Duration) (times []time.Duration) {
	t.Helper()
	const publishers = 64
	var mu sync.Mutex
	var wg sync.WaitGroup
	packet := make([]byte, 200)
	for i := range publishers {
		wg.Go(func() {
			var own []time.Duration
			for end := time.Now().Add(lasts); time.Now().Before(end) || len(own) == 0; {
				began := time.Now()
				_, err := n.Append(context.Background(), broker.Append{Topic: fmt.Sprint(i % 16), Retention: retention, Packet: packet, Durability: d})
				if !assert.NoError(t, err) {
					return
				}
				own = append(own, time.Since(began))
			}
			mu.Lock()
			defer mu.Unlock()
			times = append(times, own...)
		})
	}
	wg.Wait()
	slices.Sort(times)
	return times
}

package cluster_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/cluster/enginetest"
)

// TestNode_ReportsNothingWithoutAFault subscribes and unsubscribes while others publish, in a network that only delays: a message
// that was published to an earlier subscription may arrive at the next one, also before that is confirmed.
func TestNode_ReportsNothingWithoutAFault(t *testing.T) {
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			network := enginetest.New()
			network.Randomize(seed)
			rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // not secret
			publishers := []*node{connect(t, network), connect(t, network)}
			subscriber := connect(t, network)
			subscribed := false
			for range 300 {
				time.Sleep(time.Duration(rng.Int64N(int64(100 * time.Millisecond))))
				if rng.IntN(20) == 0 {
					time.Sleep(time.Duration(rng.Int64N(int64(5 * time.Second))))
				}
				if rng.IntN(4) > 0 {
					_ = publishers[rng.IntN(2)].Publish("news", []byte("packet"))
					continue
				}
				if subscribed {
					subscriber.Unsubscribe("news")
				} else {
					subscriber.Subscribe("news")
				}
				subscribed = !subscribed
			}
			if !subscribed {
				subscriber.Subscribe("news")
			}
			time.Sleep(5 * time.Second)
			assert.Empty(t, subscriber.lost(), "seed %d", seed)
		})
	}
}

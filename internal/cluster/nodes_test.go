package cluster_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/cluster/enginetest"
)

// others returns what Nodes returns, sorted.
func (n *node) others() (names []string, all bool) {
	names, all = n.Nodes()
	slices.Sort(names)
	return names, all
}

// TestNodes_SaysWhetherAllAreKnown compares what a node knows with the time since it can receive heartbeats.
func TestNodes_SaysWhetherAllAreKnown(t *testing.T) {
	for name, fault := range map[string]func(*enginetest.Faults){
		"interrupted":    disconnect,
		"cannot publish": failPublish, // not even a heartbeat to itself
		"cut off":        func(f *enginetest.Faults) { f.Disconnect, f.FailPublish = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, network *enginetest.Network) {
				a := connect(t, network)
				b := connect(t, network)
				_, all := b.others()
				assert.False(t, all, "no heartbeat has arrived")
				time.Sleep(3 * time.Second)
				names, all := b.others()
				assert.True(t, all)
				assert.Equal(t, []string{a.Name()}, names)

				b.update(fault)
				time.Sleep(2*time.Second + time.Millisecond)
				_, all = b.others()
				assert.False(t, all, "during the fault")
				c := connect(t, network)
				b.update(none)
				synctest.Wait()
				for range 30 { // until all are known, some may be missing, and not after that
					if names, all = b.others(); all {
						break
					}
					time.Sleep(100 * time.Millisecond)
				}
				require.True(t, all, "three seconds after the fault")
				want := []string{a.Name(), c.Name()}
				slices.Sort(want)
				assert.Equal(t, want, names)
			})
		})
	}
}

// TestNodes_FailedNodeReturns stops a node for longer than its time-out.
func TestNodes_FailedNodeReturns(t *testing.T) {
	run(t, func(t *testing.T, network *enginetest.Network) {
		a, b := connectPair(t, network)
		a.update(failPublish)
		time.Sleep(6 * time.Second)
		names, all := b.others()
		assert.True(t, all)
		assert.Empty(t, names)
		a.update(none)
		time.Sleep(2 * time.Second)
		names, _ = b.others()
		assert.Equal(t, []string{a.Name()}, names)
	})
}

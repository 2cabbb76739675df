package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/cluster/enginetest"
)

func TestClose_SendsEverythingThenLeaves(t *testing.T) {
	run(t, func(t *testing.T, network *enginetest.Network) {
		a, b := connectPair(t, network)
		a.update(func(f *enginetest.Faults) { f.Delay = 20 * time.Millisecond })
		for n := range 10_000 {
			require.NoError(t, a.Publish("news", fmt.Append(nil, n)))
		}
		require.NoError(t, a.Close(t.Context()))
		time.Sleep(time.Second)
		assert.Len(t, b.packets(), 10_000)
		assert.Equal(t, []string{a.Name()}, b.failures())
		time.Sleep(time.Minute)
		assert.Equal(t, []string{a.Name()}, b.failures())
		assert.Empty(t, b.lost())
		assert.Empty(t, a.failures())
		err := a.Publish("news", nil)
		assert.Equal(t, errors.Unavailable, errors.CodeOf(err))
		assert.NoError(t, a.Close(t.Context()))
	})
}

func TestClose_ReturnsNumberOfUnsentPackets(t *testing.T) {
	for name, fault := range map[string]func(*enginetest.Faults){
		"errors":      failPublish,
		"no response": func(f *enginetest.Faults) { f.Stall = true },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, network *enginetest.Network) {
				a, _ := connectPair(t, network)
				a.update(fault)
				for range 10_000 {
					require.NoError(t, a.Publish("news", []byte("packet")))
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				start := time.Now()
				err := a.Close(ctx)
				assert.LessOrEqual(t, time.Since(start), 1500*time.Millisecond)
				require.Error(t, err)
				assert.Contains(t, err.Error(), "10000 packets")
			})
		})
	}
}

func TestPublish_ReturnsErrorWhenTooMuchWaits(t *testing.T) {
	run(t, func(t *testing.T, network *enginetest.Network) {
		a, b := connectPair(t, network)
		a.publish(t, "1")
		a.update(func(f *enginetest.Faults) { f.Stall = true })
		accepted := 0
		var err error
		for err == nil {
			if err = a.Publish("news", make([]byte, 1<<16)); err == nil {
				accepted++
			}
		}
		assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(err))
		assert.InDelta(t, 32<<20, accepted<<16, 1<<18)
		a.update(none)
		time.Sleep(10 * time.Second)
		require.NoError(t, a.Publish("news", []byte("2")))
		time.Sleep(3 * time.Second)
		packets := b.packets()
		assert.Equal(t, "news 2", packets[len(packets)-1])
		assert.Len(t, b.lost(), 1, "also what was rejected is reported to receivers")
	})
}

func TestNode_PeerFailsAndReturns(t *testing.T) {
	run(t, func(t *testing.T, network *enginetest.Network) {
		a, b := connectPair(t, network)
		b.Track("news")
		a.Join("news", "1", "ann")
		time.Sleep(3 * time.Second) // the join is seen up to two seconds late
		a.update(func(f *enginetest.Faults) { f.Stall = true })
		time.Sleep(7 * time.Second)
		assert.Equal(t, []string{a.Name()}, b.failures())
		a.update(none)
		time.Sleep(10 * time.Second) // a stalled batch ends after that
		assert.Equal(t, []string{"news 1 ann", "news 1 ann left", "news 1 ann"}, b.changes())
		a.Kill()
		time.Sleep(7 * time.Second)
		assert.Equal(t, []string{a.Name(), a.Name()}, b.failures())
		assert.Equal(t, []string{"news"}, b.subscriptions())
	})
}

// TestNode_KeepsOrderOfEachPublisher delays two publishers differently.
func TestNode_KeepsOrderOfEachPublisher(t *testing.T) {
	run(t, func(t *testing.T, network *enginetest.Network) {
		a, b := connectPair(t, network)
		c := connect(t, network)
		a.update(func(f *enginetest.Faults) { f.Delay = 30 * time.Millisecond })
		c.update(func(f *enginetest.Faults) { f.Delay = 10 * time.Millisecond })
		var wantA, wantC []string
		for n := range 100 {
			a.publish(t, fmt.Sprint("a", n))
			c.publish(t, fmt.Sprint("c", n))
			wantA, wantC = append(wantA, fmt.Sprint("news a", n)), append(wantC, fmt.Sprint("news c", n))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		of := func(prefix string) []string {
			return slices.DeleteFunc(b.packets(), func(p string) bool { return !strings.HasPrefix(p, "news "+prefix) })
		}
		assert.Equal(t, wantA, of("a"))
		assert.Equal(t, wantC, of("c"))
		assert.Empty(t, b.lost())
	})
}

// TestNode_HandlersMayBeNil has no function that the events could be passed to.
func TestNode_HandlersMayBeNil(t *testing.T) {
	run(t, func(t *testing.T, network *enginetest.Network) {
		a := connect(t, network)
		b := cluster.New(network).Connect(broker.Callbacks{})
		b.Subscribe("news")
		b.Track("news")
		time.Sleep(3 * time.Second)
		require.NoError(t, a.Publish("news", []byte("hello")))
		a.Join("news", "ann", "")
		time.Sleep(3 * time.Second)
		require.NoError(t, a.Close(t.Context()))
		time.Sleep(3 * time.Second)
		assert.NoError(t, b.Close(t.Context()))
	})
}

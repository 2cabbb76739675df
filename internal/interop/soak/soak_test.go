package soak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/interop/exampletest"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

var chat = exampletest.Example{Name: "chat"}

func TestMain(m *testing.M) { chat.Main(m) }

// A soak is three nodes on one Redis. Two of them run all the time and are measured; the third is killed and started
// again.
type soak struct {
	t       *testing.T
	redis   *redistest.Server
	proxy   *redistest.Proxy // between the nodes and Redis
	nodes   []*exampletest.Program
	mortal  *exampletest.Program
	faults  map[string]int
	samples []sample
}

func startSoak(t *testing.T) *soak {
	s := &soak{t: t, redis: redistest.Start(t), faults: map[string]int{}}
	s.proxy = redistest.StartProxy(t, s.redis.Addr)
	start := func() *exampletest.Program {
		return chat.Start(t, "-metrics-addr=localhost:0", "-redis=redis://"+s.proxy.Addr, "-nodes=3", "-capacity=40", "-refill=10")
	}
	s.nodes = []*exampletest.Program{start(), start()}
	s.mortal = start()
	return s
}

// TestSoak_NothingGrows ends with the nodes without clients, whose goroutines and descriptors are then as few as at the
// beginning.
func TestSoak_NothingGrows(t *testing.T) {
	testscale.SoakOnly(t, "TestLoad_IsServed")
	s := startSoak(t)
	idle := s.sample(0)
	ctx, stop := context.WithTimeout(t.Context(), testscale.Soak())
	defer stop()
	var load sync.WaitGroup
	counted := s.startLoad(ctx, &load)
	load.Go(func() { s.injectFaults(ctx) })
	s.sampleUntil(ctx)
	load.Wait()
	t.Logf("clients: %+v", counted.snapshot())
	t.Logf("faults: %v", s.faults)
	s.write()
	for _, c := range checks {
		for node := range s.nodes {
			before, after := s.thirds(func(x sample) float64 { return c.of(x, node) })
			t.Logf("node %d, %s: median %.4g in the second third, %.4g in the last", node+1, c.name, before, after)
			assert.LessOrEqual(t, after, before*c.ratio+c.slack, "node %d: %s grows", node+1, c.name)
		}
	}
	assert.Positive(t, counted.received.Load())
	assert.Eventually(t, func() bool {
		now := s.sample(0)
		for i, node := range now.nodes {
			if node.goroutines > idle.nodes[i].goroutines+20 || node.descriptors > idle.nodes[i].descriptors+10 {
				return false
			}
		}
		return true
	}, 2*time.Minute, time.Second, "a node keeps goroutines or descriptors of clients that have left")
}

// TestLoad_IsServed runs the load for a moment, without faults.
func TestLoad_IsServed(t *testing.T) {
	s := startSoak(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var load sync.WaitGroup
	counted := s.startLoad(ctx, &load)
	assert.Eventually(t, func() bool {
		c := counted.snapshot()
		return c.Stored > 100 && c.Received > 100 && c.Refused > 10 && c.Dropped > 2
	}, time.Minute, 10*time.Millisecond)
	t.Logf("%+v", counted.snapshot())
	now := s.sample(time.Second)
	stop()
	load.Wait()
	for _, node := range now.nodes {
		assert.Positive(t, node.heapBytes)
		assert.Positive(t, node.residentBytes)
		assert.Positive(t, node.goroutines)
		assert.Positive(t, node.descriptors)
	}
	assert.Positive(t, now.keys)
}

// A fault is injected, and over when the function returns.
type fault struct {
	name   string
	inject func(s *soak, rng *rand.Rand)
}

// faults are injected at random. The first one removes what is measured later, the keys in Redis, and the first third of
// the time passes until they are as many again: those of idempotent messages live for five minutes.
var faults = []fault{
	{"Redis has lost its data", func(s *soak, _ *rand.Rand) {
		require.NoError(s.t, s.redis.Client(s.t).FlushAll(context.Background()).Err())
	}},
	{"Redis is paused", func(s *soak, rng *rand.Rand) {
		s.redis.Pause()
		time.Sleep(time.Duration(1+rng.IntN(8)) * time.Second)
		s.redis.Resume()
	}},
	{"connections to Redis are cut", func(s *soak, rng *rand.Rand) {
		s.proxy.Cut()
		time.Sleep(time.Duration(1+rng.IntN(5)) * time.Second)
		s.proxy.Restore()
	}},
	{"Redis does not answer", func(s *soak, rng *rand.Rand) {
		s.proxy.Stall()
		time.Sleep(time.Duration(1+rng.IntN(8)) * time.Second)
		s.proxy.Restore()
	}},
	{"a node is killed", func(s *soak, _ *rand.Rand) {
		s.mortal.Kill()
		time.Sleep(2 * time.Second)
		s.mortal.Restart()
	}},
	{"a node is restarted", func(s *soak, _ *rand.Rand) {
		s.mortal.Stop()
		s.mortal.Restart()
	}},
}

// injectFaults injects a random fault every 20 seconds until ctx ends, the first of all only in the first sixth of the time.
func (s *soak) injectFaults(ctx context.Context) {
	lastLoss := time.Now().Add(testscale.Soak() / 6)
	seed := uint64(time.Now().UnixNano())
	s.t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for {
		select {
		case <-time.After(20 * time.Second):
		case <-ctx.Done():
			return
		}
		f := faults[rng.IntN(len(faults))]
		if f.name == faults[0].name && time.Now().After(lastLoss) {
			continue
		}
		f.inject(s, rng)
		s.faults[f.name]++
	}
}

// thirds returns the medians of the second and of the last third of all samples: the first one is the warm-up.
func (s *soak) thirds(of func(sample) float64) (second, last float64) {
	third := len(s.samples) / 3
	require.Positive(s.t, third, "too few samples")
	return median(s.samples[third:2*third], of), median(s.samples[2*third:], of)
}

func url(p *exampletest.Program) string { return fmt.Sprintf("ws://%s/ws", p.Addr) }

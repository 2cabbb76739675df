//go:build linux

package faults_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
)

// The files stress_*_test.go run a router on real sockets against many clients that behave well, badly, and as networks
// do, and count every message.

var seed = flag.Uint64("stress.seed", 0, "the seed of a run to repeat; 0 chooses one")

func clientsPerRound() int { return testscale.Tiers(60, 100, 200) }

// TestStress runs rounds until its time is over. Each round has a router of its own, and one or several event
// loops. A part of the rounds shuts the router down while the clients send.
func TestStress(t *testing.T) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-stress.seed=%d", *seed)
	limit := testscale.Duration(0, 3*time.Second)
	round(t, rand.New(rand.NewPCG(*seed, 0)), false) // starts what a process starts once
	goroutines, descriptors := runtime.NumGoroutine(), openDescriptors(t)
	start := time.Now()
	n := uint64(1)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for ; n < testscale.Pick[uint64](2, 3) || time.Since(start) < limit; n++ {
		runtime.GOMAXPROCS([]int{1, 2, 8}[n%3]) // as many event loops
		round(t, rand.New(rand.NewPCG(*seed, n)), n%3 == 0)
		requireBaseline(t, goroutines, descriptors)
		if t.Failed() {
			t.Fatalf("round %d of -stress.seed=%d has failed", n, *seed)
		}
	}
	t.Logf("%d rounds of %d clients", n, clientsPerRound())
}

func round(t *testing.T, random *rand.Rand, shutdown bool) {
	s := newServer(t, clientsPerRound())
	clients := make([]*stressClient, clientsPerRound())
	var wg sync.WaitGroup
	stop := churn()
	for i := range clients {
		c := &stressClient{
			random:   rand.New(rand.NewPCG(random.Uint64(), random.Uint64())),
			number:   i,
			network:  []int{overTCP, overTCP, overTLS, overUnix}[random.IntN(4)],
			behavior: behavior(random.IntN(int(behaviors))),
			answers:  map[int]int{},
			answered: make(chan struct{}),
		}
		clients[i] = c
		delay := time.Duration(random.IntN(300)) * time.Millisecond
		wg.Go(func() {
			time.Sleep(delay)
			if err := c.run(s); err != nil && (!shutdown || !errors.Is(err, errRejected)) {
				t.Error(err)
			}
		})
	}
	if shutdown {
		time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
		s.shutdown(t)
	}
	wg.Wait()
	stop()
	if !shutdown {
		s.requireEmpty(t)
		s.shutdown(t)
	}
	s.requireEmpty(t)
	s.close()
	for i, c := range clients {
		s.check(t, s.records[i], c, shutdown)
	}
}

func (s *server) shutdown(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	assert.NoError(t, s.router.Shutdown(ctx))
}

// requireEmpty waits until no connection is left. The clients have ended, but the last handlers
// may still run.
func (s *server) requireEmpty(t *testing.T) {
	var state string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		opened, closed, eventsOpened, eventsClosed := s.opened.Load(), s.closed.Load(), s.eventsOpened.Load(), s.eventsClosed.Load()
		load := s.router.Stats()
		if opened == closed && opened == eventsOpened && opened == eventsClosed && load == (router.Stats{}) {
			return
		}
		state = fmt.Sprintf("OnOpen %d, OnClose %d, EventOpened %d, EventClosed %d, %+v", opened, closed, eventsOpened, eventsClosed, load)
	}
	require.Fail(t, "connections are left", "%s\n%s", state, stacks())
}

// check compares what a client has sent with what was handled and answered.
func (s *server) check(t *testing.T, r *record, c *stressClient, shutdown bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := fmt.Sprintf("connection %d, network %d, behavior %d, close code %d", c.number, c.network, c.behavior, c.code)
	assert.NoError(t, r.wrong, name)
	var ordered []int
	for seq, kind := range c.sent {
		if kind != "CALL" {
			ordered = append(ordered, seq)
			continue
		}
		assert.LessOrEqual(t, r.calls[seq], 1, "%s: call %d was handled twice", name, seq)
	}
	if !assert.LessOrEqual(t, len(r.ordered), len(ordered), name) {
		return
	}
	// A call is not handled after its connection has ended, and all after a reset may be lost.
	// What is handled is still in order.
	next := 0
	for _, seq := range r.ordered {
		for next < len(ordered) && ordered[next] != seq && (c.sent[ordered[next]] == "SERIAL" || shutdown) {
			next++
		}
		if !assert.True(t, next < len(ordered) && ordered[next] == seq, "%s: %d was handled twice, late or without those before it", name, seq) {
			return
		}
		next++
	}
	for seq, n := range c.answers {
		assert.Equal(t, 1, n, "%s: answers of call %d", name, seq)
	}
	if c.complete && !shutdown {
		c.checkComplete(t, r, name)
	}
}

// checkComplete checks a client that has sent everything before an orderly end, and has read to
// the end.
func (c *stressClient) checkComplete(t *testing.T, r *record, name string) {
	handled := map[int]bool{}
	for _, seq := range r.ordered {
		handled[seq] = true
	}
	for seq, kind := range c.sent {
		if kind == "EVENT" {
			assert.True(t, handled[seq], "%s: event %d was not handled", name, seq)
		}
	}
	assert.Zero(t, c.rejected, "%s: errors", name)
	switch c.behavior {
	case patient:
		assert.Len(t, r.calls, c.expected-serials(c.sent), "%s: concurrent calls", name)
		assert.Len(t, c.answers, c.expected, "%s: answers", name)
		assert.Equal(t, 1000, c.code, name)
	case closeFrame:
		assert.Equal(t, 1000, c.code, name)
	case invalidFrame:
		assert.Contains(t, []int{1002, 1007}, c.code, name)
	}
}

func serials(sent []string) (n int) {
	for _, kind := range sent {
		if kind == "SERIAL" {
			n++
		}
	}
	return n
}

// requireBaseline waits until the goroutines and descriptors of a round have ended.
func requireBaseline(t *testing.T, goroutines, descriptors int) {
	var g, d int
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		g, d = runtime.NumGoroutine(), openDescriptors(t)
		if g <= goroutines && d <= descriptors {
			return
		}
	}
	require.Fail(t, "a round has left something", "%d goroutines, %d before; %d descriptors, %d before\n%s", g, goroutines, d, descriptors, stacks())
}

func openDescriptors(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries)
}

func stacks() string {
	var b strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
	return b.String()
}

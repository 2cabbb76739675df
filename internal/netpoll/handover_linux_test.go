//go:build !386 && !s390x && !simulatedpoll

package netpoll_test

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/netpoll"
)

func TestTurn_IsOwnedUntilTheLoopIsTakenOver(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	p := netpoll.NewPoller()
	w := &waiter{}
	ended := make(chan struct{})
	owned := false
	w.onReady = func(turn netpoll.Turn) bool {
		defer close(ended)
		owned = turn.Owned()
		deadline := time.Now().Add(20 * time.Second)
		for w.takeover.Load() == 0 && time.Now().Before(deadline) {
			time.Sleep(time.Microsecond)
		}
		assert.False(t, turn.Owned())
		return false
	}
	write(t, attachWaiter(t, p, w))
	<-ended
	assert.True(t, owned, "only a preemption after 10 ms takes the loop away before that")
	assert.False(t, netpoll.Turn{}.Owned())
	w.socket.Close()
	requireLoopsEnd(t)
}

// TestLoop_NextMethodStartsAtOnceWhenOneBlocks counts how often other goroutines run between the
// moment in which a method blocks and the start of the next one.
func TestLoop_NextMethodStartsAtOnceWhenOneBlocks(t *testing.T) {
	for name, blocks := range map[string]func(n int) bool{
		"one blocks":             func(n int) bool { return n == 10 },
		"all but the last block": func(n int) bool { return n < burst-1 },
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				if testHandOver(t, blocks) {
					return
				}
			}
			assert.Fail(t, "the sockets have never become readable at the same time")
		})
	}
}

const (
	burst    = 64 // methods
	counters = 10 // goroutines that only count

	// maxCounted is far below the number of times that the goroutines run in 100 µs.
	maxCounted = 5 * counters
)

// testHandOver makes as many sockets readable at the same time as there are methods. blocks says
// which methods block, by the order in which they start. It returns false if the first method has
// started before all sockets were readable, as happens on a busy machine: the loop then waits for the
// others like for any socket.
func testHandOver(t *testing.T, blocks func(n int) bool) (atOnce bool) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var counter, started atomic.Int64
	var begins, ends [burst]atomic.Int64
	var readable, early atomic.Bool
	release, all := make(chan struct{}), make(chan struct{})
	p := netpoll.NewPoller()
	waiters := make([]*waiter, burst)
	clients := make([]net.Conn, burst)
	for i := range waiters {
		w := &waiter{onReady: func(netpoll.Turn) bool {
			n := int(started.Add(1)) - 1
			if !readable.Load() {
				early.Store(true)
			}
			begins[n].Store(counter.Load())
			ends[n].Store(counter.Load())
			if n == burst-1 {
				close(all)
			}
			if blocks(n) {
				<-release
			}
			return false
		}}
		waiters[i], clients[i] = w, attachWaiter(t, p, w)
	}
	var stop atomic.Bool
	var counting sync.WaitGroup
	for range counters {
		counting.Go(func() {
			for !stop.Load() {
				counter.Add(1)
				runtime.Gosched()
			}
		})
	}
	write(t, clients...)
	readable.Store(true)
	select {
	case <-all:
	case <-time.After(20 * time.Second):
		assert.Fail(t, "a method does not start", "%d of %d have started", started.Load(), burst)
	}
	stop.Store(true)
	close(release)
	counting.Wait()
	for n := range burst - 1 {
		if blocks(n) && !early.Load() && !t.Failed() {
			assert.LessOrEqual(t, begins[n+1].Load()-ends[n].Load(), int64(maxCounted), "between methods %d and %d", n, n+1)
		}
	}
	for _, w := range waiters {
		w.socket.Close()
	}
	requireLoopsEnd(t)
	return !early.Load()
}

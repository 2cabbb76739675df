//go:build !386 && !s390x

package netpoll_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/netpoll"
)

// A funcWaiter calls ready when there is something to read, and counts the calls of TakenOver.
type funcWaiter struct {
	socket   netpoll.Socket
	ready    func(netpoll.Turn)
	takeover atomic.Int32
}

// Ready implements netpoll.Waiter.
func (w *funcWaiter) Ready(e netpoll.Events, t netpoll.Turn) (again bool) {
	if e&netpoll.Readable != 0 {
		w.ready(t)
	}
	return false
}

// Continue implements netpoll.Waiter.
func (*funcWaiter) Continue(netpoll.Turn) (again bool) { return false }

// TakenOver implements netpoll.Waiter.
func (w *funcWaiter) TakenOver(netpoll.Turn) (again bool) {
	w.takeover.Add(1)
	return false
}

func TestTurn_IsOwnedUntilTheLoopIsTakenOver(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	p := netpoll.NewPoller()
	server, client := connect(t, "tcp")
	w := &funcWaiter{}
	ended := make(chan struct{})
	w.ready = func(turn netpoll.Turn) {
		defer close(ended)
		assert.True(t, turn.Owned() || w.takeover.Load() > 0)
		deadline := time.Now().Add(20 * time.Second)
		for w.takeover.Load() == 0 && time.Now().Before(deadline) {
			time.Sleep(time.Microsecond)
		}
		assert.False(t, turn.Owned())
	}
	require.NoError(t, p.Attach(server, w, &w.socket))
	write(t, client)
	<-ended
	assert.False(t, netpoll.Turn{}.Owned())
	w.socket.Close()
	requireLoopsEnd(t)
}

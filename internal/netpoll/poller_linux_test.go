//go:build !386 && !s390x && !simulatedpoll

package netpoll_test

import (
	"bytes"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/netpoll"
)

// A waiter passes on the events of a socket that may be readable.
type waiter struct {
	socket   netpoll.Socket
	events   chan netpoll.Events
	onReady  func(netpoll.Turn) (again bool) // may be nil
	more     func() (again bool)             // may be nil
	takeover atomic.Int32
}

// Ready implements netpoll.Waiter.
func (w *waiter) Ready(e netpoll.Events, t netpoll.Turn) (again bool) {
	if e&netpoll.Readable == 0 {
		return false
	}
	w.events <- e
	return w.onReady != nil && w.onReady(t)
}

// Continue implements netpoll.Waiter.
func (w *waiter) Continue(netpoll.Turn) (again bool) { return w.more != nil && w.more() }

// TakenOver implements netpoll.Waiter.
func (w *waiter) TakenOver(netpoll.Turn) (again bool) {
	w.takeover.Add(1)
	return false
}

// await returns the next events.
func (w *waiter) await(t *testing.T) netpoll.Events {
	t.Helper()
	select {
	case e := <-w.events:
		return e
	case <-time.After(20 * time.Second):
		require.Fail(t, "no event")
		return 0
	}
}

// attach returns the waiter for the server's end of a new connection.
func attach(t *testing.T, p *netpoll.Poller) (w *waiter, client net.Conn) {
	w = &waiter{}
	return w, attachWaiter(t, p, w)
}

func attachWaiter(t *testing.T, p *netpoll.Poller, w *waiter) (client net.Conn) {
	server, client := connect(t, "tcp")
	w.events = make(chan netpoll.Events, 100)
	require.NoError(t, p.Attach(server, w, &w.socket))
	return client
}

// newPoller returns a poller with one loop.
func newPoller() *netpoll.Poller { return netpoll.NewPollerOf(1) }

// requireLoopsEnd waits until no goroutine of a loop is left.
func requireLoopsEnd(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		stacks := make([]byte, 1<<20)
		return !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("netpoll.(*loop)"))
	}, time.Minute, time.Millisecond)
}

func write(t *testing.T, conns ...net.Conn) {
	t.Helper()
	for _, conn := range conns {
		_, err := conn.Write([]byte("x"))
		require.NoError(t, err)
	}
}

func TestPoller_ReportsDataOnce(t *testing.T) {
	p := newPoller()
	w, client := attach(t, p)
	for range 3 {
		write(t, client)
		assert.Zero(t, w.await(t)&netpoll.HangupOrUrgent, "data is nothing special")
	}
	assert.Empty(t, w.events, "it is edge-triggered")
	w.socket.Close()
	requireLoopsEnd(t)
}

func TestPoller_ReportsHangupAndUrgentDataAsSpecial(t *testing.T) {
	for name, event := range map[string]func(net.Conn) error{
		"end of the stream": func(c net.Conn) error { return c.(*net.TCPConn).CloseWrite() },
		"close":             func(c net.Conn) error { return c.Close() },
		"reset": func(c net.Conn) error {
			_ = c.(*net.TCPConn).SetLinger(0)
			return c.Close()
		},
		"urgent data": func(c net.Conn) error {
			raw, err := c.(*net.TCPConn).SyscallConn()
			if err != nil {
				return err
			}
			return raw.Control(func(fd uintptr) { _ = syscall.Sendto(int(fd), []byte("!"), syscall.MSG_OOB, nil) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, client := attach(t, newPoller())
			require.NoError(t, event(client))
			assert.NotZero(t, w.await(t)&netpoll.HangupOrUrgent)
			w.socket.Close()
		})
	}
}

func TestPoller_RemovedWaiterGetsNoEvents(t *testing.T) {
	p := newPoller()
	removed, removedClient := attach(t, p)
	other, otherClient := attach(t, p)
	removed.socket.Close()
	_, _ = removedClient.Write([]byte("x"))
	write(t, otherClient)
	other.await(t)
	write(t, otherClient)
	other.await(t) // events are delivered in order, so the removed one's would be here
	assert.Empty(t, removed.events)

	next, nextClient := attach(t, p) // in the slot of the removed one
	write(t, nextClient)
	next.await(t)
	assert.Empty(t, removed.events)
	next.socket.Close()
	other.socket.Close()
	requireLoopsEnd(t)

	again, client := attach(t, p)
	write(t, client)
	again.await(t)
	again.socket.Close()
	requireLoopsEnd(t)
}

func TestPoller_AttachFails(t *testing.T) {
	p := newPoller()
	var s netpoll.Socket
	server, _ := connect(t, "tcp")
	_ = server.Close()
	require.Error(t, p.Attach(server, &waiter{}, &s))
	pipe, _ := net.Pipe()
	require.Error(t, p.Attach(pipe, &waiter{}, &s))
	requireLoopsEnd(t)
}

// TestPoller_LoopsFollowGOMAXPROCS changes it while there are sockets, which keep their loops.
func TestPoller_LoopsFollowGOMAXPROCS(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	assert.GreaterOrEqual(t, netpoll.NewPoller().Loops(), runtime.NumCPU())
	p := netpoll.NewPollerOf(4)
	var waiters []*waiter
	var clients []net.Conn
	for _, procs := range []int{1, 4, 2, 5} {
		runtime.GOMAXPROCS(procs)
		loops := map[int]bool{}
		for range 8 {
			w, client := attach(t, p)
			waiters, clients = append(waiters, w), append(clients, client)
			loops[w.socket.Loop()] = true
		}
		assert.Len(t, loops, min(procs, 4), "loops of new sockets with GOMAXPROCS=%d", procs)
		write(t, clients...)
		for _, w := range waiters {
			w.await(t)
		}
	}
	for _, w := range waiters {
		w.socket.Close()
	}
	requireLoopsEnd(t)
}

// TestPoller_BlockedWaitersDelayNoOther blocks the methods of all sockets but one.
func TestPoller_BlockedWaitersDelayNoOther(t *testing.T) {
	for _, procs := range []int{1, 2} {
		func() {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			p := newPoller()
			release := make(chan struct{})
			var blocked []*waiter
			var clients []net.Conn
			for range 100 {
				w := &waiter{onReady: func(netpoll.Turn) bool {
					<-release
					return false
				}}
				blocked, clients = append(blocked, w), append(clients, attachWaiter(t, p, w))
			}
			quick, client := attach(t, p)
			write(t, clients...)
			for _, w := range blocked {
				w.await(t)
			}
			for range 10 {
				write(t, client)
				quick.await(t)
			}
			for _, w := range blocked {
				assert.NotZero(t, w.takeover.Load(), "the goroutine that takes the loop over says so")
			}
			close(release)
			for _, w := range append(blocked, quick) {
				w.socket.Close()
			}
			requireLoopsEnd(t)
		}()
	}
}

// TestPoller_ContinueFollowsOtherSockets has a socket that always has more to do.
func TestPoller_ContinueFollowsOtherSockets(t *testing.T) {
	p := newPoller()
	var continued atomic.Int64
	var stop atomic.Bool
	busy := &waiter{
		onReady: func(netpoll.Turn) bool { return true },
		more: func() bool {
			continued.Add(1)
			return !stop.Load()
		},
	}
	busyClient := attachWaiter(t, p, busy)
	quiet, quietClient := attach(t, p)
	write(t, busyClient)
	busy.await(t)
	for range 100 {
		before := continued.Load()
		require.Eventually(t, func() bool { return continued.Load() > before+2 }, 10*time.Second, time.Microsecond)
		write(t, quietClient)
		quiet.await(t)
	}
	stop.Store(true)
	busy.socket.Close()
	quiet.socket.Close()
	requireLoopsEnd(t)
}

// TestPoller_HandOverLosesNoEvent lets methods block, yield and exit at random, and counts bytes. There are more sockets than
// events in one batch.
func TestPoller_HandOverLosesNoEvent(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	p := netpoll.NewPoller()
	const sockets, messages = 300, 40
	var received [sockets]atomic.Int64
	var all sync.WaitGroup
	for i := range sockets {
		server, client := connect(t, "tcp")
		w := &countingWaiter{received: &received[i]}
		require.NoError(t, p.Attach(server, w, &w.socket))
		all.Go(func() {
			for range messages {
				_, err := client.Write([]byte("x"))
				if !assert.NoError(t, err) {
					return
				}
				if rand.IntN(4) == 0 {
					runtime.Gosched()
				}
			}
		})
		defer w.socket.Close()
	}
	all.Wait()
	for i := range received {
		require.Eventually(t, func() bool { return received[i].Load() == messages }, time.Minute, time.Millisecond, "socket %d: %d", i, received[i].Load())
	}
}

// A countingWaiter reads what has arrived, and then does something at random. One goroutine at a
// time reads; an event for another one makes it read again.
type countingWaiter struct {
	socket   netpoll.Socket
	received *atomic.Int64
	turn     atomic.Int32 // events that have not been handled
}

// Ready implements netpoll.Waiter.
func (w *countingWaiter) Ready(e netpoll.Events, _ netpoll.Turn) bool {
	if e&netpoll.Readable == 0 || w.turn.Add(1) > 1 {
		return false
	}
	var buf [16]byte
	for {
		seen := w.turn.Load()
		for {
			n, err := w.socket.Read(buf[:])
			w.received.Add(int64(n))
			if n == 0 || err != nil {
				break
			}
		}
		switch rand.IntN(20) {
		case 0:
			time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
		case 1:
			runtime.Gosched()
		}
		if w.turn.CompareAndSwap(seen, 0) {
			if rand.IntN(50) == 0 {
				runtime.Goexit()
			}
			return rand.IntN(10) == 0
		}
	}
}

// Continue implements netpoll.Waiter.
func (w *countingWaiter) Continue(t netpoll.Turn) bool { return w.Ready(netpoll.Readable, t) }

// TakenOver implements netpoll.Waiter.
func (w *countingWaiter) TakenOver(t netpoll.Turn) bool { return w.Ready(netpoll.Readable, t) }

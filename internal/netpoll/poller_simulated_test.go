//go:build simulatedpoll

package netpoll_test

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/netpoll"
	"github.com/penstock-go/penstock/internal/random"
)

const seeds = 30

// forSeeds runs a test in a bubble for several seeds, with one loop and with two.
func forSeeds(t *testing.T, test func(t *testing.T, p *netpoll.Poller)) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	for seed := range uint64(seeds) {
		restore := random.Seed(seed)
		synctest.Test(t, func(t *testing.T) { test(t, netpoll.NewPollerOf(1+int(seed%2))) })
		restore()
		if t.Failed() {
			t.Logf("with seed %d", seed)
			return
		}
	}
}

// An echoWaiter writes back what it reads. Like a connection of internal/wsconn, one goroutine at a
// time reads, until a read returns nothing or a short read has emptied the socket.
type echoWaiter struct {
	socket netpoll.Socket
	pause  func()       // before what was read is written; may be nil
	turns  atomic.Int32 // events that have not been handled
	hung   atomic.Bool
	room   chan struct{} // receives at Writable
	ended  chan error    // receives the error of the last read
}

func attachEcho(t *testing.T, p *netpoll.Poller, capacity int, pause func()) (*echoWaiter, net.Conn) {
	w := &echoWaiter{pause: pause, room: make(chan struct{}, 1), ended: make(chan error, 1)}
	server, client := netpoll.Pipe(capacity)
	require.NoError(t, p.Attach(server, w, &w.socket))
	return w, client
}

// Ready implements netpoll.Waiter.
func (w *echoWaiter) Ready(e netpoll.Events, t netpoll.Turn) (again bool) {
	if e&netpoll.HangupOrUrgent != 0 {
		w.hung.Store(true)
	}
	if e&netpoll.Writable != 0 {
		select {
		case w.room <- struct{}{}:
		default:
		}
	}
	return e&netpoll.Readable != 0 && w.turns.Add(1) == 1 && w.serve()
}

// Continue implements netpoll.Waiter.
func (w *echoWaiter) Continue(netpoll.Turn) (again bool) { return w.serve() }

// TakenOver implements netpoll.Waiter.
func (w *echoWaiter) TakenOver(netpoll.Turn) (again bool) { return false }

// serve reads once, and returns true if it must be called again.
func (w *echoWaiter) serve() (again bool) {
	seen := w.turns.Load()
	var buf [100]byte
	n, err := w.socket.Read(buf[:])
	if err != nil {
		w.ended <- err
		return false // no further turn
	}
	if w.pause != nil {
		w.pause()
	}
	for p := buf[:n]; len(p) > 0; {
		written, err := w.socket.Write(p)
		if p = p[written:]; err != nil {
			break
		}
		if len(p) > 0 {
			<-w.room
		}
	}
	emptied := n == 0 || w.socket.Emptied(n, len(buf)) && !w.hung.Load()
	return !emptied || !w.turns.CompareAndSwap(seen, 0)
}

// end waits until the client's end of the stream has arrived, and closes the socket.
func (w *echoWaiter) end(t *testing.T) {
	t.Helper()
	require.ErrorIs(t, <-w.ended, io.EOF)
	w.socket.Close()
}

// exchange writes messages, reads what comes back, and ends the stream.
func exchange(t *testing.T, client net.Conn) {
	t.Helper()
	sent := bytes.Repeat([]byte("0123456789"), 30)
	go func() {
		for part := range slices.Chunk(sent, 1+random.N(len(sent))) {
			time.Sleep(random.N(time.Millisecond))
			_, _ = client.Write(part)
		}
	}()
	got := make([]byte, len(sent))
	_, err := io.ReadFull(client, got)
	assert.NoError(t, err)
	assert.Equal(t, sent, got)
	assert.NoError(t, client.(netpoll.SimulatedConn).CloseWrite())
}

func TestSimulatedPoller_ServesManySockets(t *testing.T) {
	forSeeds(t, func(t *testing.T, p *netpoll.Poller) {
		var waiters []*echoWaiter
		for range 20 {
			pause := func() { time.Sleep(random.N(time.Millisecond)) }
			if random.N(2) == 0 {
				pause = nil
			}
			w, client := attachEcho(t, p, random.N(50), pause)
			waiters = append(waiters, w)
			go exchange(t, client)
		}
		for _, w := range waiters {
			w.end(t)
		}
	})
}

func TestSimulatedPoller_BlockedHandlersDelayNoOther(t *testing.T) {
	forSeeds(t, func(t *testing.T, p *netpoll.Poller) {
		release := make(chan struct{})
		var waiters []*echoWaiter
		for range 5 {
			w, client := attachEcho(t, p, 100, func() { <-release })
			waiters = append(waiters, w)
			go exchange(t, client)
		}
		synctest.Wait()
		quick, client := attachEcho(t, p, 100, nil)
		begin := time.Now()
		exchange(t, client)
		quick.end(t)
		assert.Less(t, time.Since(begin), time.Second)
		close(release)
		for _, w := range waiters {
			w.end(t)
		}
	})
}

func TestSimulatedPoller_WriterWaitsForSlowReader(t *testing.T) {
	forSeeds(t, func(t *testing.T, p *netpoll.Poller) {
		w, client := attachEcho(t, p, 10, nil)
		go func() { _, _ = client.Write(bytes.Repeat([]byte("x"), 200)) }()
		synctest.Wait()
		for range 200 {
			time.Sleep(time.Second)
			_, err := io.ReadFull(client, make([]byte, 1))
			require.NoError(t, err)
		}
		_ = client.Close()
		w.end(t)
	})
}

func TestSimulatedPoller_HangupIsReportedWithData(t *testing.T) {
	forSeeds(t, func(t *testing.T, p *netpoll.Poller) {
		w, client := attachEcho(t, p, 100, nil)
		_, err := client.Write([]byte("last"))
		require.NoError(t, err)
		require.NoError(t, client.(netpoll.SimulatedConn).CloseWrite())
		got := make([]byte, 4)
		_, err = io.ReadFull(client, got)
		require.NoError(t, err)
		assert.Equal(t, "last", string(got))
		w.end(t)
		assert.True(t, w.hung.Load())
	})
}

func TestSimulatedPoller_AbortEndsBothDirections(t *testing.T) {
	forSeeds(t, func(t *testing.T, p *netpoll.Poller) {
		w, client := attachEcho(t, p, 100, nil)
		synctest.Wait()
		w.socket.Abort()
		require.ErrorIs(t, <-w.ended, net.ErrClosed)
		_, err := client.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		_, err = w.socket.Write([]byte("x"))
		require.ErrorIs(t, err, net.ErrClosed)
		assert.False(t, w.socket.ReportAgain())
		w.socket.Close()
	})
}

// TestSimulatedPoller_ReportsOncePerChange does not read, so that only ReportAgain leads to an event.
func TestSimulatedPoller_ReportsOncePerChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := netpoll.NewPollerOf(1)
		w := &countWaiter{}
		server, client := netpoll.Pipe(100)
		require.NoError(t, p.Attach(server, w, &w.socket))
		synctest.Wait()
		_, err := client.Write([]byte("x"))
		require.NoError(t, err)
		synctest.Wait()
		before := w.readable.Load()
		require.Positive(t, before)
		time.Sleep(time.Hour)
		require.Equal(t, before, w.readable.Load(), "it is edge-triggered")
		require.True(t, w.socket.ReportAgain())
		synctest.Wait()
		require.Greater(t, w.readable.Load(), before)
		w.socket.Close()
		_ = client.Close()
	})
}

// A countWaiter counts events and reads nothing.
type countWaiter struct {
	socket   netpoll.Socket
	readable atomic.Int32
}

// Ready implements netpoll.Waiter.
func (w *countWaiter) Ready(e netpoll.Events, _ netpoll.Turn) (again bool) {
	if e&netpoll.Readable != 0 {
		w.readable.Add(1)
	}
	return false
}

// Continue implements netpoll.Waiter.
func (*countWaiter) Continue(netpoll.Turn) (again bool) { return false }

// TakenOver implements netpoll.Waiter.
func (*countWaiter) TakenOver(netpoll.Turn) (again bool) { return false }

func TestSimulatedPoller_RefusesOtherConnections(t *testing.T) {
	conn, _ := net.Pipe()
	var s netpoll.Socket
	require.ErrorIs(t, netpoll.NewPollerOf(1).Attach(conn, &countWaiter{}, &s), errors.ErrUnsupported)
	_ = conn.Close()
}

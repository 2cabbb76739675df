//go:build !386 && !s390x

package netpoll_test

import (
	"bytes"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/netpoll"
)

// A waiter passes on the events of a socket.
type waiter chan bool

func newWaiter() waiter { return make(waiter, 100) }

func (w waiter) Readable(special bool) { w <- special }

// await returns the next event.
func (w waiter) await(t *testing.T) (special bool) {
	t.Helper()
	select {
	case special = <-w:
	case <-time.After(20 * time.Second):
		require.Fail(t, "no event")
	}
	return special
}

// add returns a waiter for the server's end of a new connection.
func add(t *testing.T, p *netpoll.Poller) (w waiter, slot int32, server, client net.Conn) {
	server, client = connect(t, "tcp")
	w = newWaiter()
	slot, err := p.Add(w, newSocket(t, server, 0))
	require.NoError(t, err)
	return w, slot, server, client
}

// requirePollerEnds waits until no goroutine of a poller is left.
func requirePollerEnds(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		stacks := make([]byte, 1<<20)
		return !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("netpoll.(*Poller).open in goroutine"))
	}, 10*time.Second, time.Millisecond)
}

func TestPoller_ReportsDataOnce(t *testing.T) {
	var p netpoll.Poller
	w, slot, _, client := add(t, &p)
	for range 3 {
		_, err := client.Write([]byte("x"))
		require.NoError(t, err)
		assert.False(t, w.await(t), "data is nothing special")
	}
	assert.Empty(t, w, "it is edge-triggered")
	p.Remove(slot)
	requirePollerEnds(t)
}

func TestPoller_ReportsDataThatArrivedBeforeAdd(t *testing.T) {
	var p netpoll.Poller
	server, client := connect(t, "tcp")
	_, err := client.Write([]byte("x"))
	require.NoError(t, err)
	w := newWaiter()
	slot, err := p.Add(w, newSocket(t, server, 0))
	require.NoError(t, err)
	w.await(t)
	p.Remove(slot)
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
			var p netpoll.Poller
			w, slot, _, client := add(t, &p)
			require.NoError(t, event(client))
			assert.True(t, w.await(t))
			p.Remove(slot)
		})
	}
}

func TestPoller_ReusesSlots(t *testing.T) {
	var p netpoll.Poller
	first, firstSlot, server, client := add(t, &p)
	_, otherSlot, _, _ := add(t, &p)
	assert.NotEqual(t, firstSlot, otherSlot)
	p.Remove(firstSlot)
	_ = server.Close()
	_ = client.Close()
	next, nextSlot, _, nextClient := add(t, &p)
	assert.Equal(t, firstSlot, nextSlot)
	_, err := nextClient.Write([]byte("x"))
	require.NoError(t, err)
	next.await(t)
	assert.Empty(t, first, "the events of a slot reach its waiter only")
	p.Remove(nextSlot)
	p.Remove(otherSlot)
	requirePollerEnds(t)

	again, slot, _, client := add(t, &p) // the epoll instance was closed meanwhile
	_, err = client.Write([]byte("x"))
	require.NoError(t, err)
	again.await(t)
	p.Remove(slot)
	requirePollerEnds(t)
}

func TestPoller_RemovedWaiterGetsNoEvents(t *testing.T) {
	var p netpoll.Poller
	removed, removedSlot, _, removedClient := add(t, &p)
	other, otherSlot, _, otherClient := add(t, &p)
	p.Remove(removedSlot)
	for _, client := range []net.Conn{removedClient, otherClient} {
		_, err := client.Write([]byte("x"))
		require.NoError(t, err)
	}
	other.await(t)
	_, err := otherClient.Write([]byte("x"))
	require.NoError(t, err)
	other.await(t) // events are delivered in order, so the removed one's would be here
	assert.Empty(t, removed)
	p.Remove(otherSlot)
}

// TestPoller_DeliversMoreEventsThanOneBatch makes many sockets readable at the same time.
func TestPoller_DeliversMoreEventsThanOneBatch(t *testing.T) {
	var p netpoll.Poller
	const n = 100
	var waiters []waiter
	var slots []int32
	var clients []net.Conn
	for range n {
		w, slot, _, client := add(t, &p)
		waiters, slots, clients = append(waiters, w), append(slots, slot), append(clients, client)
	}
	for range 5 {
		for _, client := range clients {
			_, err := client.Write([]byte("x"))
			require.NoError(t, err)
		}
		for _, w := range waiters {
			w.await(t)
		}
	}
	for _, slot := range slots {
		p.Remove(slot)
	}
	requirePollerEnds(t)
}

func TestPoller_AddFailsForClosedSocket(t *testing.T) {
	var p netpoll.Poller
	server, _ := connect(t, "tcp")
	s := newSocket(t, server, 0)
	_ = server.Close()
	_, err := p.Add(newWaiter(), s)
	require.Error(t, err)
	requirePollerEnds(t)
}

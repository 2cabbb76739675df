//go:build !386 && !s390x && !simulatedpoll

package netpoll_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/netpoll"
)

func watch(t *testing.T, p *netpoll.Poller) (w *waiter, server *net.TCPConn, client net.Conn) {
	t.Helper()
	conn, client := connect(t, "tcp")
	w = &waiter{events: make(chan netpoll.Events, 100)}
	server = conn.(*net.TCPConn)
	require.NoError(t, p.Watch(server, w, &w.socket))
	return w, server, client
}

func TestWatch_ReportsDataThatTheConnectionReads(t *testing.T) {
	p := newPoller()
	w, server, client := watch(t, p)
	buf := make([]byte, 10)
	for range 3 {
		readable, err := w.socket.Readable()
		require.NoError(t, err)
		require.False(t, readable)
		write(t, client)
		assert.Zero(t, w.await(t)&netpoll.HangupOrUrgent)
		for range 2 { // it consumes nothing
			readable, err = w.socket.Readable()
			require.NoError(t, err)
			require.True(t, readable)
		}
		n, err := server.Read(buf)
		require.NoError(t, err)
		assert.Equal(t, 1, n)
	}
	assert.Empty(t, w.events, "it is edge-triggered")
	_ = client.Close()
	assert.NotZero(t, w.await(t)&netpoll.HangupOrUrgent)
	readable, err := w.socket.Readable()
	require.NoError(t, err)
	assert.True(t, readable, "the end of the stream")
	w.socket.Unwatch(server)
	requireLoopsEnd(t)
	_, err = server.Write(buf)
	require.NoError(t, err, "the connection stays open")
}

func TestWatch_ErrorIsReturnedOnce(t *testing.T) {
	w, server, client := watch(t, newPoller())
	defer w.socket.Unwatch(server)
	require.NoError(t, client.(*net.TCPConn).SetLinger(0))
	_ = client.Close()
	w.await(t)
	_, err := w.socket.Readable()
	require.Error(t, err)
	readable, err := w.socket.Readable()
	require.NoError(t, err)
	assert.True(t, readable)
}

func TestWatch_SocketIsWritableWhileThereIsRoom(t *testing.T) {
	w, server, client := watch(t, newPoller())
	defer w.socket.Unwatch(server)
	require.True(t, w.socket.Writable())
	for w.socket.Writable() { // the kernel moves what has been written to the receiver
		require.NoError(t, server.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
		_, err := server.Write(make([]byte, 32<<20))
		require.Error(t, err)
	}
	buf := make([]byte, 1<<20)
	require.Eventually(t, func() bool {
		_, _ = client.Read(buf)
		return w.socket.Writable()
	}, 10*time.Second, time.Microsecond)
}

// TestWatch_UnwatchAfterCloseSparesTheNextDescriptor closes a connection behind the poller's back, so
// that another one gets its number.
func TestWatch_UnwatchAfterCloseSparesTheNextDescriptor(t *testing.T) {
	p := newPoller()
	first, server, _ := watch(t, p)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	client, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	_ = server.Close()
	next, err := listener.Accept()
	require.NoError(t, err)
	defer func() { _ = next.Close() }()
	second := &waiter{events: make(chan netpoll.Events, 100)}
	require.NoError(t, p.Watch(next.(*net.TCPConn), second, &second.socket))
	if first.socket.Order() != second.socket.Order() {
		t.Skip("another goroutine of the process has got the descriptor")
	}
	first.socket.Unwatch(server)
	write(t, client)
	second.await(t)
	second.socket.Unwatch(next.(*net.TCPConn))
	requireLoopsEnd(t)
}

func TestWatch_FailsForAClosedConnection(t *testing.T) {
	server, _ := connect(t, "tcp")
	_ = server.Close()
	w := &waiter{}
	require.ErrorIs(t, newPoller().Watch(server.(*net.TCPConn), w, &w.socket), net.ErrClosed)
}

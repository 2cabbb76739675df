//go:build linux && !386 && !s390x && !simulatedpoll

package wsconn

import (
	"math/rand/v2"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/netpoll"
)

type noWaiter struct{}

func (noWaiter) Ready(netpoll.Events, netpoll.Turn) bool { return false }
func (noWaiter) TakenOver(netpoll.Turn) bool             { return false }
func (noWaiter) Continue(netpoll.Turn) bool              { return false }

// TestTLS_WritesWithinRoomNeverWait fills sockets whose peers read nothing: what hasRoom has allowed is taken by the
// kernel completely, with what a record adds.
func TestTLS_WritesWithinRoomNeverWait(t *testing.T) {
	const recordBytes = 29 // TLS 1.2: header, nonce and tag
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { assert.NoError(t, listener.Close()) }()
	poller := netpoll.NewPoller()
	for _, longest := range []int{1, 100, 1000, 4096} {
		peer, err := net.Dial("tcp", listener.Addr().String())
		require.NoError(t, err)
		conn, err := listener.Accept()
		require.NoError(t, err)
		c := &tlsConn{tcp: conn.(*net.TCPConn)}
		var raw netpoll.Socket
		require.NoError(t, poller.Watch(c.tcp, noWaiter{}, &raw))
		descriptor, err := c.tcp.SyscallConn()
		require.NoError(t, err)
		writes, refused := 0, false
		require.NoError(t, descriptor.Control(func(fd uintptr) {
			for !refused && !t.Failed() {
				n := 1 + rand.IntN(longest)
				if refused = !c.hasRoom(&raw, n); refused {
					break
				}
				written, err := syscall.Write(int(fd), make([]byte, n+recordBytes))
				assert.NoError(t, err)
				assert.Equal(t, n+recordBytes, written, "write %d of at most %d bytes", writes, longest)
				writes++
			}
		}))
		assert.True(t, refused, "a full socket")
		assert.Greater(t, writes, 20)
		raw.Unwatch(c.tcp)
		assert.NoError(t, conn.Close())
		assert.NoError(t, peer.Close())
	}
}

// TestTLS_AsksForRoomOncePerBatch calls hasRoom without a socket, which it must not need.
func TestTLS_AsksForRoomOncePerBatch(t *testing.T) {
	c := &tlsConn{room: maxTLSWriteNow}
	for _, n := range []int{1, 100, 1024, 1000} {
		assert.True(t, c.hasRoom(nil, n))
	}
	assert.Zero(t, c.room, "a short batch counts for 1 KiB")
	c.room = maxTLSWriteNow
	assert.False(t, c.hasRoom(nil, maxTLSWriteNow+1))
	assert.True(t, c.hasRoom(nil, maxTLSWriteNow))
}

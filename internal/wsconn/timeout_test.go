package wsconn_test

import (
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestConn_MessageTimeoutAppliesOnlyInsideMessages(t *testing.T) {
	t.Parallel()
	opts := options()
	opts.MessageTimeout = 50 * time.Millisecond
	addr, conns := listen(t, opts)
	c := dialRaw(t, addr, "")
	go func() { _ = echo(<-conns) }()
	c.send(clientFrame(fin|text, "in time"))
	_, payload := c.next()
	assert.Equal(t, "in time", payload)
	time.Sleep(2 * opts.MessageTimeout) // silence between messages is allowed
	c.send(clientFrame(fin|text, "in time"))
	c.next()
	c.send(clientFrame(text, "one"))
	c.closed(1008)
}

// TestConn_MessageTimeoutAppliesWhileDataArrives has parts of a message that are there whenever the server reads, the last
// one too late.
func TestConn_MessageTimeoutAppliesWhileDataArrives(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"event loop": func(c net.Conn) net.Conn { return c },
		"goroutine":  func(c net.Conn) net.Conn { return hidden{c} },
	} {
		t.Run(name, func(t *testing.T) {
			opts := options()
			opts.MessageTimeout = 50 * time.Millisecond
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			addr, conns := serve(t, wrappingListener{listener, wrap}, opts)
			client, c := dialRaw(t, addr, ""), <-conns
			client.send(clientFrame(text, strings.Repeat("x", 600)))
			ended := make(chan error)
			go func() {
				defer c.Release()
				_, err := c.Read(func(prefix []byte) int64 {
					if len(prefix) < 1000 { // the message takes longer than its first part: its time begins
						client.send(clientFrame(continuation, strings.Repeat("y", 5000)))
						return 5000
					}
					client.send(clientFrame(fin|continuation, "z"))
					time.Sleep(2 * opts.MessageTimeout)
					return 10_000
				})
				ended <- err
			}()
			client.closed(1008)
			require.ErrorIs(t, <-ended, os.ErrDeadlineExceeded)
		})
	}
}

// TestConn_PartOfMessageIsSignOfLife sends a message more slowly than a silent peer is
// disconnected. The peer cannot answer a ping inside a frame.
func TestConn_PartOfMessageIsSignOfLife(t *testing.T) {
	t.Parallel()
	opts := options()
	opts.PingInterval, opts.PongTimeout = 700*time.Millisecond, 700*time.Millisecond // a busy machine may pause the test for a second
	addr, conns := listen(t, opts)
	c := dialRaw(t, addr, "")
	go func() { _ = echo(<-conns) }()
	message := clientFrame(fin|text, "0123456789")
	for _, b := range message {
		c.send([]byte{b})
		time.Sleep(opts.PingInterval / 4)
	}
	for {
		first, payload := c.next()
		if first == fin|text {
			assert.Equal(t, "0123456789", payload)
			return
		}
		require.Equal(t, byte(fin|ping), first)
	}
}

// A lostConn fails to read as a socket does whose peer is not reachable any more.
type lostConn struct {
	hidden

	lost *atomic.Bool
}

func (c lostConn) Read(p []byte) (int, error) {
	if c.lost.Load() {
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ETIMEDOUT)}
	}
	return c.Conn.Read(p)
}

func TestConn_LostNetworkIsNotMessageTimeout(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var lost atomic.Bool
	addr, conns := serve(t, wrappingListener{listener, func(c net.Conn) net.Conn { return lostConn{hidden{c}, &lost} }}, options())
	c := dialRaw(t, addr, "")
	server := <-conns
	lost.Store(true)
	_, err = server.Read(unlimited)
	require.ErrorIs(t, err, syscall.ETIMEDOUT)
	code, _ := server.Status()
	assert.Equal(t, 1006, code)
	_ = c.Close()
	server.Release()
}

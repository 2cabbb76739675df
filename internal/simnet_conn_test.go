package internal_test

import (
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/simnet"
)

// A pair is a connection with its two ends in a network.
type pair struct {
	*simnet.Network

	listener       *simnet.Listener
	client, server *simnet.Conn
}

const window = 100

// inBubble runs a test with a connection from a to b.
func inBubble(t *testing.T, test func(t *testing.T, p *pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(1, simnet.Links{MaxDelay: 10 * time.Millisecond, Window: window})
		p := &pair{Network: n, listener: n.Listen("b")}
		p.client, p.server = p.dial(t)
		test(t, p)
		_ = p.client.Close()
		_ = p.server.Close()
		require.NoError(t, p.listener.Close())
		time.Sleep(time.Hour)
		assert.Zero(t, n.Conns(""), "connections that are closed at both ends are forgotten")
	})
}

func (p *pair) dial(t *testing.T) (client, server *simnet.Conn) {
	t.Helper()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := p.listener.Accept()
		assert.NoError(t, err)
		accepted <- c
	}()
	c, err := p.Dial(t.Context(), "a", "b")
	require.NoError(t, err)
	return c.(*simnet.Conn), (<-accepted).(*simnet.Conn)
}

func TestConn_WriteWaitsForRoomInTheWindow(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		n, err := p.client.TryWrite(make([]byte, 2*window))
		require.NoError(t, err)
		assert.Equal(t, window, n)
		n, err = p.client.TryWrite([]byte("x"))
		require.NoError(t, err)
		assert.Zero(t, n)
		_, writable, _ := p.client.Readiness()
		assert.False(t, writable)

		require.NoError(t, p.client.SetWriteDeadline(time.Now().Add(time.Second)))
		n, err = p.client.Write([]byte("x"))
		assert.Zero(t, n)
		assertTimeout(t, err)

		_, err = io.ReadFull(p.server, make([]byte, 10))
		require.NoError(t, err)
		n, err = p.client.TryWrite(make([]byte, window))
		require.NoError(t, err)
		assert.Equal(t, 10, n)
	})
}

func assertTimeout(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	assert.True(t, timeout.Timeout())
}

func TestConn_DataForAClosedEndResetsTheConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		require.NoError(t, p.server.Close())
		_, err := p.client.Write([]byte("x"))
		require.NoError(t, err, "the end has not arrived, or does not concern this direction")
		time.Sleep(time.Second)
		_, err = p.client.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = p.client.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.EPIPE)
		readable, writable, hangup := p.client.Readiness()
		assert.True(t, readable && writable && hangup)
	})
}

// Bytes that are never read must not fill the window of the other end for ever: its Write waits for the reset.
func TestConn_WriteToAClosedEndFails(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		_, err := p.client.Write(make([]byte, window))
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.NoError(t, p.server.Close())
		time.Sleep(time.Second)
		require.NoError(t, p.client.SetWriteDeadline(time.Now().Add(time.Hour)))
		_, err = p.client.Write(make([]byte, 20*window))
		require.Error(t, err)
		assert.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	})
}

// Edges are never lost: the one who is notified after each change finds every byte and the end.
func TestConn_NotifiesOfEachChange(t *testing.T) {
	inBubble(t, func(t *testing.T, p *pair) {
		edges := make(chan struct{}, 1)
		p.server.SetNotify(func() {
			select {
			case edges <- struct{}{}:
			default:
			}
		})
		go func() {
			for range 5 * window {
				_, err := p.client.Write([]byte("x"))
				assert.NoError(t, err)
			}
			assert.NoError(t, p.client.CloseWrite())
		}()
		total := 0
		for range edges {
			n, err := 1, error(nil)
			for n > 0 {
				n, err = p.server.TryRead(make([]byte, 7))
				total += n
			}
			if err != nil {
				require.ErrorIs(t, err, io.EOF)
				break
			}
		}
		assert.Equal(t, 5*window, total)
		p.server.SetNotify(nil)
	})
}

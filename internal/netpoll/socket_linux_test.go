//go:build !386 && !s390x

package netpoll_test

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/netpoll"
)

// connect returns the two ends of a connection.
func connect(t *testing.T, network string) (server, client net.Conn) {
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "socket")
	}
	listener, err := net.Listen(network, addr)
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	client, err = net.Dial(network, listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	server, err = listener.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	deadline := time.Now().Add(20 * time.Second)
	require.NoError(t, client.SetDeadline(deadline))
	require.NoError(t, server.SetDeadline(deadline))
	return server, client
}

func forEachNetwork(t *testing.T, test func(t *testing.T, network string)) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) { test(t, network) })
	}
}

func newSocket(t *testing.T, conn net.Conn, class int) *netpoll.Socket {
	s := netpoll.NewSocket(conn, class)
	require.NotNil(t, s)
	return s
}

// TestSocket_TransfersMoreThanTheKernelBuffers lets both directions wait.
func TestSocket_TransfersMoreThanTheKernelBuffers(t *testing.T) {
	forEachNetwork(t, func(t *testing.T, network string) {
		server, client := connect(t, network)
		s := newSocket(t, server, 2)
		sent := make([]byte, 8<<20+1)
		for i := range sent {
			sent[i] = byte(i * 7 >> 3)
		}
		go func() { // echoes
			var all []byte
			for len(all) < len(sent) {
				b, err := s.Read(true)
				if !assert.NoError(t, err) {
					return
				}
				all = append(all, b.Bytes...)
				b.Release()
			}
			n, err := s.Write(all)
			assert.NoError(t, err)
			assert.Equal(t, len(sent), n)
			_ = server.Close()
		}()
		_, err := client.Write(sent)
		require.NoError(t, err)
		got, err := io.ReadAll(client)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(sent, got))
	})
}

func TestSocket_ReadWithoutWaitReturnsAtOnce(t *testing.T) {
	forEachNetwork(t, func(t *testing.T, network string) {
		server, client := connect(t, network)
		s := newSocket(t, server, 0)
		b, err := s.Read(false)
		require.NoError(t, err)
		assert.Nil(t, b)
		_, err = client.Write([]byte("abc"))
		require.NoError(t, err)
		b, err = s.Read(true)
		require.NoError(t, err)
		assert.Equal(t, "abc", string(b.Bytes))
		b.Release()
		b, err = s.Read(false)
		require.NoError(t, err)
		assert.Nil(t, b, "the buffer is returned once")
	})
}

func TestSocket_EmptiedOnlyAfterShortReadOfTCP(t *testing.T) {
	forEachNetwork(t, func(t *testing.T, network string) {
		server, client := connect(t, network)
		s := newSocket(t, server, 0)
		for n, want := range map[int]bool{511: network == "tcp", 512: false} {
			_, err := client.Write(make([]byte, n))
			require.NoError(t, err)
			b, err := s.Read(true)
			require.NoError(t, err)
			require.Len(t, b.Bytes, n)
			assert.Equal(t, want, s.Emptied(b), "%d bytes", n)
			b.Release()
		}
	})
}

func TestSocket_ReadErrors(t *testing.T) {
	forEachNetwork(t, func(t *testing.T, network string) {
		server, client := connect(t, network)
		s := newSocket(t, server, 0)
		require.NoError(t, server.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
		_, err := s.Read(true)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, server.SetReadDeadline(time.Time{}))
		_, _ = client.Write([]byte("last"))
		_ = client.Close()
		b, err := s.Read(true)
		require.NoError(t, err)
		assert.Equal(t, "last", string(b.Bytes))
		for range 2 {
			_, err = s.Read(true)
			assert.Equal(t, io.EOF, err)
		}
		_ = server.Close()
		_, err = s.Read(false)
		assert.ErrorIs(t, err, net.ErrClosed)
	})
}

func TestSocket_CloseInterruptsRead(t *testing.T) {
	server, _ := connect(t, "tcp")
	s := newSocket(t, server, 0)
	read := make(chan error)
	go func() {
		_, err := s.Read(true)
		read <- err
	}()
	time.Sleep(10 * time.Millisecond) // usually it waits by then
	_ = server.Close()
	assert.ErrorIs(t, <-read, net.ErrClosed)
}

func TestSocket_WriteReportsHowManyBytesItWrote(t *testing.T) {
	forEachNetwork(t, func(t *testing.T, network string) {
		server, client := connect(t, network)
		s := newSocket(t, server, 0)
		require.NoError(t, server.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
		n, err := s.Write(make([]byte, 32<<20)) // nothing reads
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		_ = server.Close()
		got, err := io.ReadAll(client)
		require.NoError(t, err)
		assert.Positive(t, n)
		assert.Len(t, got, n)
	})
}

// TestSocket_WriteToClosedPeerFails needs MSG_NOSIGNAL on systems where a program handles
// SIGPIPE.
func TestSocket_WriteToClosedPeerFails(t *testing.T) {
	forEachNetwork(t, func(t *testing.T, network string) {
		server, client := connect(t, network)
		s := newSocket(t, server, 0)
		_ = client.Close()
		var err error
		for i := 0; err == nil && i < 1000; i++ { // the first write provokes the reset
			_, err = s.Write(make([]byte, 100))
		}
		var failed *net.OpError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, "write", failed.Op)
	})
}

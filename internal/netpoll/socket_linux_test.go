//go:build !386 && !s390x && !simulatedpoll

package netpoll_test

import (
	"bytes"
	"io"
	"net"
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
	require.NoError(t, client.SetDeadline(time.Now().Add(20*time.Second)))
	return server, client
}

// A signal passes on all events of a socket.
type signal struct {
	socket netpoll.Socket
	events chan netpoll.Events
}

// Ready implements netpoll.Waiter.
func (s *signal) Ready(e netpoll.Events, _ netpoll.Turn) bool {
	select {
	case s.events <- e:
	default:
	}
	return false
}

// Continue implements netpoll.Waiter.
func (*signal) Continue(netpoll.Turn) bool { return false }

// TakenOver implements netpoll.Waiter.
func (*signal) TakenOver(netpoll.Turn) bool { return false }

// read waits for data.
func (s *signal) read(t *testing.T, p []byte) (int, error) {
	for {
		n, err := s.socket.Read(p)
		if n > 0 || err != nil {
			return n, err
		}
		select {
		case <-s.events:
		case <-time.After(20 * time.Second):
			require.Fail(t, "nothing arrives")
		}
	}
}

func forEachNetwork(t *testing.T, test func(t *testing.T, s *signal, client net.Conn, network string)) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			server, client := connect(t, network)
			s := &signal{events: make(chan netpoll.Events, 1)}
			require.NoError(t, newPoller().Attach(server, s, &s.socket))
			test(t, s, client, network)
		})
	}
}

// TestSocket_TransfersMoreThanTheKernelBuffers lets both directions wait.
func TestSocket_TransfersMoreThanTheKernelBuffers(t *testing.T) {
	forEachNetwork(t, func(t *testing.T, s *signal, client net.Conn, _ string) {
		sent := make([]byte, 8<<20+1)
		for i := range sent {
			sent[i] = byte(i * 7 >> 3)
		}
		go func() { // echoes
			var all []byte
			buf := make([]byte, 16<<10)
			for len(all) < len(sent) {
				n, err := s.read(t, buf)
				if !assert.NoError(t, err) {
					return
				}
				all = append(all, buf[:n]...)
			}
			for len(all) > 0 {
				n, err := s.socket.Write(all)
				if !assert.NoError(t, err) {
					return
				}
				if all = all[n:]; len(all) > 0 {
					<-s.events
				}
			}
			s.socket.Close()
		}()
		_, err := client.Write(sent)
		require.NoError(t, err)
		got, err := io.ReadAll(client)
		require.NoError(t, err)
		assert.True(t, bytes.Equal(sent, got))
	})
}

func TestSocket_ReadReturnsAtOnce(t *testing.T) {
	forEachNetwork(t, func(t *testing.T, s *signal, client net.Conn, network string) {
		buf := make([]byte, 512)
		n, err := s.socket.Read(buf)
		require.NoError(t, err)
		assert.Zero(t, n)
		for size, emptied := range map[int]bool{511: network == "tcp", 512: false} {
			_, err = client.Write(make([]byte, size))
			require.NoError(t, err)
			n, err = s.read(t, buf)
			require.NoError(t, err)
			assert.Equal(t, size, n)
			assert.Equal(t, emptied, s.socket.Emptied(n, len(buf)), "%d bytes", size)
		}
		_, _ = client.Write([]byte("last"))
		_ = client.Close()
		n, err = s.read(t, buf)
		require.NoError(t, err)
		assert.Equal(t, "last", string(buf[:n]))
		for range 2 {
			_, err = s.read(t, buf)
			assert.Equal(t, io.EOF, err)
		}
		s.socket.Close()
		_, err = s.socket.Read(buf)
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = s.socket.Write(buf)
		require.ErrorIs(t, err, net.ErrClosed)
		s.socket.Abort() // has no effect on a closed socket
		s.socket.CloseWrite()
	})
}

func TestSocket_AbortEndsBothDirections(t *testing.T) {
	forEachNetwork(t, func(t *testing.T, s *signal, client net.Conn, _ string) {
		_, err := s.socket.Write([]byte("written"))
		require.NoError(t, err)
		s.socket.Abort()
		_, _ = client.Write([]byte("late"))
		_, err = s.read(t, make([]byte, 10))
		require.ErrorIs(t, err, net.ErrClosed)
		_, err = s.socket.Write([]byte("x"))
		require.ErrorIs(t, err, net.ErrClosed)
		got, err := io.ReadAll(client)
		require.NoError(t, err)
		assert.Equal(t, "written", string(got))
		s.socket.Close()
	})
}

package router_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
)

// A pipeServer serves connections in memory that hold nothing back: what a client has written, the
// server has read. It works with synctest.
type pipeServer struct {
	conns chan net.Conn
	read  atomic.Int64 // bytes
}

func newPipeServer(t *testing.T, h http.Handler) *pipeServer {
	s := &pipeServer{conns: make(chan net.Conn)}
	server := &http.Server{Handler: h}
	go func() { _ = server.Serve(s) }()
	t.Cleanup(func() { _ = server.Close() })
	return s
}

func (s *pipeServer) Accept() (net.Conn, error) {
	if conn, ok := <-s.conns; ok {
		return countedPipe{conn, &s.read}, nil
	}
	return nil, net.ErrClosed
}

func (s *pipeServer) Close() error {
	close(s.conns)
	return nil
}

func (s *pipeServer) Addr() net.Addr { return &net.UnixAddr{} }

type countedPipe struct {
	net.Conn

	read *atomic.Int64
}

func (c countedPipe) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// A pipeClient writes frames, and keeps what it receives.
type pipeClient struct {
	net.Conn

	received chan string // after the end of the connection
}

func (s *pipeServer) dial(t *testing.T) *pipeClient {
	client, server := net.Pipe()
	s.conns <- server
	c := &pipeClient{client, make(chan string, 1)}
	t.Cleanup(func() { _ = client.Close() })
	go func() {
		received, _ := io.ReadAll(client)
		c.received <- string(received)
	}()
	_, err := io.WriteString(client, handshakeWith(""))
	require.NoError(t, err)
	return c
}

// write writes in the background, because the server may not read.
func (c *pipeClient) write(p []byte) { go func() { _, _ = c.Write(p) }() }

// longFrame returns a message of Blob with a text of size bytes, in one frame.
func longFrame(size int) []byte {
	text := fmt.Sprintf(`{"type":"BLOB","payload":{"text":%q}}`, strings.Repeat("x", size))
	frame := binary.BigEndian.AppendUint64([]byte{0x81, 0x80 | 127}, uint64(len(text)))
	return append(append(frame, 0, 0, 0, 0), text...)
}

// TestLimits_InboundBytesBoundsIncompleteMessages has clients that send all of a message but its
// last byte. Others are served meanwhile, and the memory is free again after the timeout.
func TestLimits_InboundBytesBoundsIncompleteMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, size, total, buffer = 100, 1 << 20, 8 << 20, 16 << 10
		r := router.New(discardLogs(router.Options{Limits: router.Limits{MaxMessageBytes: 2 * size, InboundBytes: total}}))
		var handled atomic.Int64
		router.On(r, func(*router.Context, Blob) error { handled.Add(1); return nil })
		s := newPipeServer(t, r)
		message := longFrame(size)
		var incomplete []*pipeClient
		for range clients {
			c := s.dial(t)
			c.write(message[:len(message)-1])
			incomplete = append(incomplete, c)
		}
		synctest.Wait()
		assert.Greater(t, s.read.Load(), int64(total/2))
		assert.Less(t, s.read.Load(), int64(total+2*size+clients*2*buffer), "one more message may exceed the limit")

		other := s.dial(t)
		other.write(clientFrame(fmt.Sprintf(`{"type":"BLOB","payload":{"text":%q}}`, strings.Repeat("x", buffer/2))))
		synctest.Wait()
		assert.EqualValues(t, 1, handled.Load(), "a message that needs one read")
		time.Sleep(time.Second)
		other.write(message)
		synctest.Wait()
		assert.EqualValues(t, 1, handled.Load())
		time.Sleep(9 * time.Second) // Timeouts.Message
		synctest.Wait()
		assert.EqualValues(t, 2, handled.Load())
		codes := map[uint16]int{}
		for _, c := range incomplete {
			_ = c.Close() // it does not answer the close frame
			codes[closeCodeIn(<-c.received)]++
		}
		assert.Positive(t, codes[1008], "those that used the memory")
		assert.Equal(t, clients, codes[1008]+codes[1013])
		_ = other.Close()
		time.Sleep(time.Second)
		assert.Zero(t, r.Stats().Conns)
	})
}

// closeCodeIn returns the code of the close frame at the end of what a client has received.
func closeCodeIn(received string) uint16 {
	_, frames, _ := strings.Cut(received, "\r\n\r\n")
	if at := strings.LastIndexByte(frames, 0x88); at >= 0 && len(frames) >= at+4 {
		return binary.BigEndian.Uint16([]byte(frames[at+2:]))
	}
	return 0
}

// TestLimits_LongMessagesTakeTurns has clients with messages that are together much longer than the
// limit. Each is handled, because none waits with a part of what it needs.
func TestLimits_LongMessagesTakeTurns(t *testing.T) {
	t.Parallel()
	for _, total := range []int64{1, 300_000, 3_000_000} {
		runSynctest(t, fmt.Sprint(total), func(t *testing.T) {
			const clients, size = 50, 250_000
			r := router.New(discardLogs(router.Options{Limits: router.Limits{MaxMessageBytes: 2 * size, InboundBytes: total}}))
			var handled atomic.Int64
			router.On(r, func(*router.Context, Blob) error { handled.Add(1); return nil })
			s := newPipeServer(t, r)
			for range clients {
				s.dial(t).write(longFrame(size))
			}
			synctest.Wait()
			assert.EqualValues(t, clients, handled.Load())
			assert.Equal(t, clients, r.Stats().Conns)
		})
	}
}

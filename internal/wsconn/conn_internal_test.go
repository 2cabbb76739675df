package wsconn

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type nobody struct{}

func (nobody) Ended()              {}
func (nobody) Overflowed(Overflow) {}
func (nobody) QueueHigh(int, int)  {}
func (nobody) Wrote(Write)         {}

// TestCloseMeetsThePingTimer closes while the timer has fired and waits for the lock.
func TestCloseMeetsThePingTimer(t *testing.T) {
	const pingInterval = 50 * time.Millisecond
	opts := &Options{
		MaxMessageBytes: 1 << 20, MessageTimeout: time.Minute, WriteTimeout: time.Minute, CloseTimeout: time.Minute,
		PingInterval: pingInterval, PongTimeout: time.Minute,
		BufferBytes: 16 << 10, QueueBytes: 1 << 20, QueueMessages: 1024, Poller: new(Poller),
	}
	conns := make(chan *Conn, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := Accept(w, r, "", opts, nobody{}); assert.NoError(t, err) {
			conns <- c
		}
	}))
	defer server.Close()
	client, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	_, err = io.WriteString(client, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
	require.NoError(t, err)
	c := <-conns
	c.mu.Lock()
	time.Sleep(2 * pingInterval)
	c.closeLocked(1012, "bye")
	c.mu.Unlock()
	got, err := io.ReadAll(readFor(client, 5*pingInterval))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it is not cut before CloseTimeout")
	assert.True(t, bytes.HasSuffix(got, []byte("bye")))
	c.Abort()
	_, err = c.Read(func([]byte) int64 { return 1 })
	require.Error(t, err)
	c.Release()
}

func readFor(conn net.Conn, d time.Duration) net.Conn {
	_ = conn.SetReadDeadline(time.Now().Add(d))
	return conn
}

// A cutConn takes the first write but for its last bytes.
type cutConn struct {
	net.Conn

	took bytes.Buffer
}

func (c *cutConn) SetWriteDeadline(time.Time) error { return nil }

func (c *cutConn) Write(p []byte) (int, error) {
	if c.took.Len() > 0 {
		return c.took.Write(p)
	}
	n, _ := c.took.Write(p[:len(p)-6])
	return n, os.ErrDeadlineExceeded
}

func TestNothingFollowsAFrameThatWasCut(t *testing.T) {
	conn := &cutConn{}
	s := &socket{Conn: conn, owner: nobody{}, writeTimeout: time.Minute}
	f := NewFrame()
	f.WriteString("a message of which six bytes are missing")
	f.Seal()
	_, _, err := s.writeFrames(f.wire(), false)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	n := conn.took.Len()
	_, _ = s.Write([]byte("\x8a\x04pong"))
	assert.Equal(t, n, conn.took.Len())
}

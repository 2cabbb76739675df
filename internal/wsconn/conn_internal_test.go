package wsconn

import (
	"bufio"
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

// accept returns both ends of a connection. The client's has read nothing yet.
func accept(t *testing.T, opts *Options) (*Conn, net.Conn) {
	conns := make(chan *Conn, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := Accept(w, r, "", opts, NewNoopHandler()); assert.NoError(t, err) {
			conns <- c
		}
	}))
	t.Cleanup(server.Close)
	client, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	_, err = io.WriteString(client, UpgradeRequest)
	require.NoError(t, err)
	c := <-conns
	t.Cleanup(func() {
		c.Abort()
		_, _ = c.Read(everything)
		c.Release()
	})
	return c, client
}

func everything([]byte) int64 { return 1 << 20 }

// TestConn_CloseTimeoutHoldsDespiteThePingTimer closes while the timer has fired and waits for the lock.
func TestConn_CloseTimeoutHoldsDespiteThePingTimer(t *testing.T) {
	t.Parallel()
	opts := NewTestOptions()
	opts.PingInterval = 50 * time.Millisecond
	c, client := accept(t, opts)
	c.mu.Lock()
	time.Sleep(2 * opts.PingInterval)
	c.closeLocked(1012, "bye")
	c.mu.Unlock()
	got, err := io.ReadAll(readFor(client, 5*opts.PingInterval))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it is not aborted before CloseTimeout")
	assert.True(t, bytes.HasSuffix(got, []byte("bye")))
}

const ping = "\x89\x84\x00\x00\x00\x00ping"

// TestConn_SendsNoPongAfterTheCloseFrame sends a ping while the close frame waits to be written.
func TestConn_SendsNoPongAfterTheCloseFrame(t *testing.T) {
	c, client := accept(t, NewTestOptions())
	if !c.polled {
		t.Skip("connections are not parked on this system")
	}
	c.mu.Lock()
	c.writer.Store(writerRunning) // as if the writer were in a system call
	c.closeLocked(1012, "bye")
	c.mu.Unlock()
	_, err := io.WriteString(client, ping)
	require.NoError(t, err)
	parkAfter(t, c, len(ping))
	c.writeLoop()
	_, err = io.WriteString(client, "\x88\x82\x00\x00\x00\x00\x03\xf4") // its answer
	require.NoError(t, err)
	<-c.handler.(NoopHandler).Resumed
	_, err = c.Read(everything)
	require.Error(t, err)
	c.Release()
	got, _ := io.ReadAll(readFor(client, time.Minute))
	_, frames, _ := bytes.Cut(got, []byte("\r\n\r\n"))
	assert.Equal(t, "\x88\x05\x03\xf4bye", string(frames))
}

// parkAfter waits until a connection has read n bytes of control frames and parked. A test that is to
// read it must first receive from the handler.
func parkAfter(t *testing.T, c *Conn, n int) {
	for c.sock.bytesRead < n {
		if c.Park() != Parked {
			t.Fatal("there are only control frames")
		}
		if c.sock.bytesRead < n {
			<-c.handler.(NoopHandler).Resumed
		}
	}
}

func TestConn_PongsDoNotCountAsQueuedMessages(t *testing.T) {
	c, client := accept(t, NewTestOptions())
	if !c.polled {
		t.Skip("connections are not parked on this system")
	}
	_, err := client.Write(bytes.Repeat([]byte(ping), 20))
	require.NoError(t, err)
	parkAfter(t, c, 20*len(ping))
	f := NewFrame()
	f.WriteString("a message")
	f.Seal()
	require.NoError(t, c.Queue(f), "eight fit, and pongs do not count")
	require.NoError(t, client.Close())
	<-c.handler.(NoopHandler).Resumed
}

// TestConn_SendsPongsInOrder sends every second ping in two pieces.
func TestConn_SendsPongsInOrder(t *testing.T) {
	c, client := accept(t, NewTestOptions())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			for c.Park() == Parked {
				<-c.handler.(NoopHandler).Resumed
			}
			m, err := c.Read(everything)
			if err != nil {
				return
			}
			if m.Buffer != nil {
				m.Release()
			}
		}
	}()
	require.NoError(t, client.SetDeadline(time.Now().Add(time.Minute)))
	answers := bufio.NewReader(client)
	_, err := http.ReadResponse(answers, nil)
	require.NoError(t, err)
	for range controlBurst / 4 {
		a, b := "\x89\x81\x00\x00\x00\x00a", "\x89\x81\x00\x00\x00\x00b"
		_, _ = io.WriteString(client, a+b[:4])
		_, _ = io.WriteString(client, b[4:]+"\x81\x80\x00\x00\x00\x00")
		got := make([]byte, 6)
		_, err := io.ReadFull(answers, got)
		require.NoError(t, err)
		require.Equal(t, "\x8a\x01a\x8a\x01b", string(got))
	}
	_ = client.Close()
	<-ended
}

func readFor(conn net.Conn, d time.Duration) net.Conn {
	_ = conn.SetReadDeadline(time.Now().Add(d))
	return conn
}

// A partialConn accepts the first write except its last bytes.
type partialConn struct {
	net.Conn

	took bytes.Buffer
}

func (c *partialConn) SetWriteDeadline(time.Time) error { return nil }

func (c *partialConn) Write(p []byte) (int, error) {
	if c.took.Len() > 0 {
		return c.took.Write(p)
	}
	n, _ := c.took.Write(p[:len(p)-6])
	return n, os.ErrDeadlineExceeded
}

func TestSocket_WritesNothingAfterAPartialFrame(t *testing.T) {
	conn := &partialConn{}
	c := &Conn{opts: NewTestOptions(), handler: NewNoopHandler()}
	c.sock.conn = conn
	f := NewFrame()
	f.WriteString("a message of which six bytes are missing")
	f.Seal()
	b := batch{bytes: f.bytes(), queue: &sendQueue{begun: time.Now()}}
	c.write(&b)
	require.ErrorIs(t, b.err, os.ErrDeadlineExceeded)
	n := conn.took.Len()
	c.write(&batch{bytes: []byte("\x8a\x04pong"), queue: &sendQueue{begun: time.Now()}})
	assert.Equal(t, n, conn.took.Len())
}

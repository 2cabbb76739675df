package wsconn_test

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/wsconn"
)

func options() *wsconn.Options {
	return &wsconn.Options{
		MaxMessageBytes: 1 << 20,
		MessageTimeout:  10 * time.Second,
		WriteTimeout:    10 * time.Second,
		SendTimeout:     time.Minute,
		CloseTimeout:    10 * time.Second,
		PingInterval:    time.Minute,
		PongTimeout:     time.Minute,
		BufferBytes:     16 << 10,
		QueueBytes:      1 << 20,
		QueueMessages:   1024,
		Engine:          wsconn.NewEngine(),
	}
}

// listen serves connections and hands each to the test.
func listen(t *testing.T, opts *wsconn.Options) (addr string, conns <-chan *wsconn.Conn) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return serve(t, listener, opts)
}

func serve(t *testing.T, listener net.Listener, opts *wsconn.Options) (addr string, conns <-chan *wsconn.Conn) {
	accepted := make(chan *wsconn.Conn, 10)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := wsconn.Accept(w, r, "", opts, newHandler())
		if err != nil {
			t.Error(err)
			return
		}
		accepted <- c
	}))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), accepted
}

// noopHandler ignores all events, except that a parked connection must be read.
type noopHandler struct{ resumed chan struct{} }

func newHandler() noopHandler { return noopHandler{make(chan struct{}, 1)} }

// Serve hands the right to read to the goroutine that has called park.
func (h noopHandler) Serve() (paused bool) {
	h.resumed <- struct{}{}
	return false
}

func (noopHandler) OnClosed()                  {}
func (noopHandler) OnOverflow(wsconn.Overflow) {}
func (noopHandler) OnBackpressure(int, int)    {}
func (noopHandler) OnWrite(wsconn.Write)       {}

// awaitMessage parks the connection while there is nothing to read.
func awaitMessage(c *wsconn.Conn) {
	for c.Park() == wsconn.Parked {
		<-resumed(c)
	}
}

// resumed returns a channel that receives when a parked connection must be read.
func resumed(c *wsconn.Conn) <-chan struct{} {
	return wsconn.HandlerOf(c).(interface{ channel() chan struct{} }).channel()
}

func (h noopHandler) channel() chan struct{} { return h.resumed }

// next parks the connection while there is nothing to read, and then reads a message.
func next(c *wsconn.Conn) (wsconn.Message, error) {
	for {
		awaitMessage(c)
		if msg, err := c.Read(unlimited); msg.Buffer != nil || err != nil {
			return msg, err
		}
	}
}

// echo sends back the messages that it reads, until the connection ends.
func echo(c *wsconn.Conn) error {
	defer c.Release()
	for {
		msg, err := next(c)
		if err != nil {
			return err
		}
		_ = send(c, string(msg.Bytes)) // if it fails, so does the next read
		msg.Release()
	}
}

func unlimited([]byte) int64 { return 1 << 30 }

func send(c *wsconn.Conn, text string) error {
	f := wsconn.NewFrame()
	f.WriteString(text)
	f.Seal()
	err := c.Queue(f)
	c.Wake()
	return err
}

func pending(c *wsconn.Conn) (bytes int) {
	_, bytes = c.Pending()
	return bytes
}

// A rawClient sends and receives frames of RFC 6455 as bytes.
type rawClient struct {
	net.Conn
	r *bufio.Reader
	t *testing.T
}

const handshake = "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"

// dialRaw sends first right behind the handshake, in the same segment.
func dialRaw(t *testing.T, addr string, first []byte) *rawClient {
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = conn.Write(append([]byte(handshake), first...))
	require.NoError(t, err)
	c := &rawClient{conn, bufio.NewReader(conn), t}
	resp, err := http.ReadResponse(c.r, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	return c
}

// frame encodes a client's frame. The mask is zero, so the payload is plain.
func frame(first byte, payload string) []byte {
	b := []byte{first}
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	return append(append(b, 0, 0, 0, 0), payload...)
}

const (
	fin          = 0x80
	continuation = 0x0
	text         = 0x1
	binaryData   = 0x2
	closing      = 0x8
	ping         = 0x9
	pong         = 0xa
)

func (c *rawClient) send(frames ...[]byte) {
	for _, f := range frames {
		_, err := c.Write(f)
		require.NoError(c.t, err)
	}
}

// next reads a server's frame.
func (c *rawClient) next() (first byte, payload string) {
	head := make([]byte, 2)
	_, err := io.ReadFull(c.r, head)
	require.NoError(c.t, err)
	n := uint64(head[1])
	switch n {
	case 126:
		b := make([]byte, 2)
		_, err = io.ReadFull(c.r, b)
		n = uint64(binary.BigEndian.Uint16(b))
	case 127:
		b := make([]byte, 8)
		_, err = io.ReadFull(c.r, b)
		n = binary.BigEndian.Uint64(b)
	}
	require.NoError(c.t, err)
	b := make([]byte, n)
	_, err = io.ReadFull(c.r, b)
	require.NoError(c.t, err)
	return head[0], string(b)
}

// closed requires a close frame with the code, followed by the end of the stream.
func (c *rawClient) closed(code int) {
	c.t.Helper()
	first, payload := c.next()
	require.Equal(c.t, byte(fin|closing), first, "%q", payload)
	require.GreaterOrEqual(c.t, len(payload), 2)
	assert.Equal(c.t, code, int(binary.BigEndian.Uint16([]byte(payload))))
	c.send(frame(fin|closing, payload[:2]))
	rest, _ := io.ReadAll(c.r)
	assert.Empty(c.t, rest, "no frame may follow a close frame")
	_ = c.Close()
}

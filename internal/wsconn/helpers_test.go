package wsconn_test

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/wsconn"
)

type noopHandler = wsconn.NoopHandler

const handshake = wsconn.UpgradeRequest

func newHandler() noopHandler { return wsconn.NewNoopHandler() }

func options() *wsconn.Options { return wsconn.NewTestOptions() }

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

// awaitMessage parks the connection while there is nothing to read.
func awaitMessage(c *wsconn.Conn) {
	for c.Park() == wsconn.Parked {
		<-wsconn.ResumedOf(c)
	}
}

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

// dialRaw offers extensions, unless offer is "".
func dialRaw(t *testing.T, addr, offer string) *rawClient {
	conn := dialTCP(t, addr)
	request := handshake
	if offer != "" {
		request = offering(offer)
	}
	_, err := io.WriteString(conn, request)
	require.NoError(t, err)
	c := &rawClient{conn, bufio.NewReader(conn), t}
	resp, err := http.ReadResponse(c.r, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	return c
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
	first, b, err := readServerFrame(c.r)
	require.NoError(c.t, err)
	return first, string(b)
}

func readServerFrame(r io.Reader) (first byte, payload []byte, err error) {
	var head [10]byte
	if _, err := io.ReadFull(r, head[:2]); err != nil {
		return 0, nil, err
	}
	n := uint64(head[1])
	switch n {
	case 126:
		_, err = io.ReadFull(r, head[2:4])
		n = uint64(binary.BigEndian.Uint16(head[2:]))
	case 127:
		_, err = io.ReadFull(r, head[2:10])
		n = binary.BigEndian.Uint64(head[2:])
	}
	if err != nil {
		return 0, nil, err
	}
	payload = make([]byte, min(n, 1<<20))
	_, err = io.ReadFull(r, payload)
	return head[0], payload, err
}

// closed requires a close frame with the code, followed by the end of the stream.
func (c *rawClient) closed(code int) {
	c.t.Helper()
	first, payload := c.next()
	require.Equal(c.t, byte(fin|closing), first, "%q", payload)
	require.GreaterOrEqual(c.t, len(payload), 2)
	assert.Equal(c.t, code, int(binary.BigEndian.Uint16([]byte(payload))))
	c.send(clientFrame(fin|closing, payload[:2]))
	rest, _ := io.ReadAll(c.r)
	assert.Empty(c.t, rest, "no frame may follow a close frame")
	_ = c.Close()
}

package metrics_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/middleware/metrics"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A rawClient writes and reads RFC 6455 frames itself, and counts the bytes that follow the
// handshake.
type rawClient struct {
	t           *testing.T
	conn        net.Conn
	r           *bufio.Reader
	wrote, read int
}

// dialRaw opens a connection and sends the first call together with the handshake.
func dialRaw(t *testing.T, addr string) *rawClient {
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+addr+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"+string(masked(0x81, first)))
	require.NoError(t, err)
	c := &rawClient{t: t, conn: conn, r: bufio.NewReader(conn), wrote: len(masked(0x81, first))}
	resp, err := http.ReadResponse(c.r, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	c.receive()
	return c
}

const first = `{"type":"ECHO","payload":{"n":0}}`

// masked encodes a frame of up to 125 bytes. The masking key is zero, which leaves the payload
// readable.
func masked(opcode byte, payload string) []byte {
	return append([]byte{opcode, 0x80 | byte(len(payload)), 0, 0, 0, 0}, payload...)
}

func (c *rawClient) write(opcode byte, payload string) {
	n, err := c.conn.Write(masked(opcode, payload))
	require.NoError(c.t, err)
	c.wrote += n
}

func (c *rawClient) call(n int) {
	c.write(0x81, fmt.Sprintf(`{"type":"ECHO","payload":{"n":%d}}`, n))
	c.receive()
}

func (c *rawClient) receive() {
	var header [2]byte
	_, err := io.ReadFull(c.r, header[:])
	require.NoError(c.t, err)
	_, err = c.r.Discard(int(header[1]))
	require.NoError(c.t, err)
	c.read += 2 + int(header[1])
}

func (c *rawClient) close() {
	c.write(0x88, "\x03\xe8")
	rest, err := io.ReadAll(c.r)
	require.NoError(c.t, err)
	c.read += len(rest)
}

// routerWithHangingCall returns the metrics of a router with one call in flight that is past its
// deadline. The call panics when hang is closed.
func routerWithHangingCall(t *testing.T) (reg *prometheus.Registry, hang chan struct{}) {
	reg, hang = prometheus.NewPedanticRegistry(), make(chan struct{})
	r := router.New(&router.Options{Timeouts: router.Timeouts{Call: time.Second}, Logger: slog.New(slog.DiscardHandler)})
	metrics.New(reg, nil).Router(r)
	router.RPC(r, func(_ *router.Context, m Echo) (Echo, error) {
		<-hang
		panic(m)
	})
	ann := routertest.Dial(t, r)
	ann.SendText(`{"type":"ECHO","meta":{"correlationId":"1"},"payload":{"n":1}}`)
	time.Sleep(2 * time.Second)
	synctest.Wait()
	return reg, hang
}

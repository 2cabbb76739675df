package interop_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
)

// timeout is how long a test waits for an expected event.
const timeout = 10 * time.Second

type WhoAmI struct{}

func (WhoAmI) MessageType() string { return "WHO_AM_I" }

// Client is the reply: the client's address as the server sees it.
type Client struct {
	IP string `json:"ip"`
}

func (Client) MessageType() string { return "CLIENT" }

func newRouter(opts router.Options) *router.Router {
	opts.Logger = slog.New(slog.DiscardHandler)
	r := router.New(&opts)
	router.RPC(r, func(ctx *router.Context, _ WhoAmI) (Client, error) {
		return Client{ctx.Conn().IP().String()}, nil
	})
	return r
}

// serve serves h on a port of 127.0.0.1 or on a Unix socket, and returns the address.
func serve(t *testing.T, network string, h http.Handler) string {
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(shortTempDir(t), "ws.sock")
	}
	listener, err := net.Listen(network, address)
	require.NoError(t, err)
	serveOn(t, listener, h)
	return listener.Addr().String()
}

func serveOn(t *testing.T, listener net.Listener, h http.Handler) {
	server := &http.Server{Handler: h, ReadHeaderTimeout: timeout, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
}

// shortTempDir returns a directory for a Unix socket, whose path must be short.
func shortTempDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "ws") //nolint:usetesting // the names of t.TempDir are too long
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// A client reads all the time, so that pings are answered.
type client struct {
	t        *testing.T
	ws       *websocket.Conn
	received chan []byte // closed when the connection has ended
	end      error       // valid once received is closed
}

func newClient(t *testing.T, ws *websocket.Conn) *client {
	c := &client{t: t, ws: ws, received: make(chan []byte, 16)}
	go func() {
		defer close(c.received)
		for {
			_, text, err := ws.Read(context.Background())
			if err != nil {
				c.end = err
				return
			}
			c.received <- text
		}
	}()
	t.Cleanup(func() { _ = ws.CloseNow() })
	return c
}

// whoAmI calls the server and returns the address that it has seen.
func (c *client) whoAmI() string {
	c.t.Helper()
	request := `{"type":"WHO_AM_I","meta":{"correlationId":"1"},"payload":{}}`
	require.NoError(c.t, c.ws.Write(c.t.Context(), websocket.MessageText, []byte(request)))
	select {
	case text, ok := <-c.received:
		require.True(c.t, ok, "the connection has ended: %v", c.end)
		var reply struct {
			Type    string
			Payload Client
		}
		require.NoError(c.t, json.Unmarshal(text, &reply))
		require.Equal(c.t, "CLIENT", reply.Type, "%s", text)
		return reply.Payload.IP
	case <-time.After(timeout):
		require.Fail(c.t, "no answer")
		return ""
	}
}

// close closes the connection and waits until the server has answered with the same code.
func (c *client) close() {
	c.t.Helper()
	require.NoError(c.t, c.ws.Close(websocket.StatusNormalClosure, ""))
}

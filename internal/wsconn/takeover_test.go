package wsconn_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/netpoll"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// A servingHandler calls serve for Serve.
type servingHandler struct {
	noopHandler
	serve func() (paused bool)
}

// Serve implements wsconn.Handler.
func (h *servingHandler) Serve() (paused bool) { return h.serve() }

// acceptServing returns a parked connection with the handler, and its client.
func acceptServing(t *testing.T, h *servingHandler) (*wsconn.Conn, *rawClient) {
	accepted := make(chan *wsconn.Conn, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := wsconn.Accept(w, r, "", options(), h)
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}))
	t.Cleanup(server.Close)
	client := dialRaw(t, server.Listener.Addr().String(), nil)
	return <-accepted, client
}

// TestConn_WritesWhileServeBlocksAlthoughTakenOverBefore runs the calls of a loop that another
// goroutine has taken over before Ready has called Serve.
func TestConn_WritesWhileServeBlocksAlthoughTakenOverBefore(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	c, client := acceptServing(t, &servingHandler{serve: func() bool {
		close(entered)
		<-release
		return false
	}})
	require.Equal(t, wsconn.Parked, c.Park())
	require.False(t, c.TakenOver(netpoll.Turn{}))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Ready(netpoll.Readable, netpoll.Turn{})
	}()
	<-entered
	require.NoError(t, send(c, "published"))
	first, payload := client.next()
	require.Equal(t, byte(fin|text), first)
	require.Equal(t, "published", payload)
	close(release)
	<-ended
	c.Abort()
	c.Release()
}

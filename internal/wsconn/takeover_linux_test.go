//go:build !386 && !s390x && !simulatedpoll

package wsconn_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

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
func acceptServing(t *testing.T, opts *wsconn.Options, h *servingHandler) (*wsconn.Conn, *rawClient) {
	accepted := make(chan *wsconn.Conn, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := wsconn.Accept(w, r, "", opts, h)
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
	c, client := acceptServing(t, options(), &servingHandler{serve: func() bool {
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

// TestConn_AbortBeforePauseIsNotLost aborts a connection, of which a goroutine of its own has read a part,
// and lets the loop handle the event of that before the goroutine pauses.
func TestConn_AbortBeforePauseIsNotLost(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one loop
	opts := options()
	opts.BufferBytes = 512
	serves := make(chan struct{}, 1)
	c, client := acceptServing(t, opts, &servingHandler{serve: func() bool {
		serves <- struct{}{}
		return false
	}})
	events := make(chan struct{}, 1)
	other, otherClient := acceptServing(t, opts, &servingHandler{serve: func() bool {
		events <- struct{}{}
		return false
	}})
	require.Equal(t, wsconn.Parked, other.Park())
	const length = 128 // of a frame, so that a read ends where a message does
	client.send(bytes.Repeat(frame(fin|binaryData, strings.Repeat("x", length-6)), 8))
	for range opts.BufferBytes / length {
		require.Equal(t, wsconn.Busy, c.Park())
		msg, err := c.Read(unlimited)
		require.NoError(t, err)
		msg.Release()
	}
	c.Abort()
	_ = client.Close() // acknowledges the end of the stream, which is the last event
	otherClient.send(frame(fin|text, "x"))
	<-events
	if c.Park() == wsconn.Parked {
		select {
		case <-serves:
		case <-time.After(10 * time.Second):
			require.Fail(t, "the connection is not read to its end")
		}
	}
	_, err := c.Read(unlimited)
	require.Error(t, err)
	c.Release()
	other.Abort()
	other.Release()
}

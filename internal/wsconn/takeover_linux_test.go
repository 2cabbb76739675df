//go:build !386 && !s390x && !simulatedpoll

package wsconn_test

import (
	"bytes"
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

// TestConn_WritesWhileServeBlocksAlthoughTakenOverBefore runs the calls of a loop that another
// goroutine has taken over before Ready has called Serve.
func TestConn_WritesWhileServeBlocksAlthoughTakenOverBefore(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	client, c := acceptWith(t, options(), &servingHandler{serve: func() bool {
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
}

// TestConn_AbortBeforePauseIsNotLost aborts a connection, of which a goroutine of its own has read a part,
// and lets the loop handle the event of that before the goroutine pauses.
func TestConn_AbortBeforePauseIsNotLost(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one loop
	opts := options()
	opts.BufferBytes = 512
	serves := make(chan struct{}, 1)
	client, c := acceptWith(t, opts, &servingHandler{serve: func() bool {
		serves <- struct{}{}
		return false
	}})
	events := make(chan struct{}, 1)
	otherClient, other := acceptWith(t, opts, &servingHandler{serve: func() bool {
		events <- struct{}{}
		return false
	}})
	require.Equal(t, wsconn.Parked, other.Park())
	const length = 128 // of a frame, so that a read ends where a message does
	client.send(bytes.Repeat(clientFrame(fin|binaryData, strings.Repeat("x", length-6)), 8))
	for range opts.BufferBytes / length {
		require.Equal(t, wsconn.Busy, c.Park())
		msg, err := c.Read(unlimited)
		require.NoError(t, err)
		msg.Release()
	}
	c.Abort()
	_ = client.Close() // acknowledges the end of the stream, which is the last event
	otherClient.send(clientFrame(fin|text, "x"))
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
	other.Abort()
}

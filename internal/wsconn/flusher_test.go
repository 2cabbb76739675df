package wsconn_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/wsconn"
)

// acceptWith returns both ends of a connection that has a handler.
func acceptWith(t *testing.T, opts *wsconn.Options, handler wsconn.Handler) (*rawClient, *wsconn.Conn) {
	conns := make(chan *wsconn.Conn, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := wsconn.Accept(w, r, "", opts, handler)
		assert.NoError(t, err)
		conns <- c
	}))
	t.Cleanup(server.Close)
	client := dialRaw(t, server.Listener.Addr().String(), "")
	c := <-conns
	t.Cleanup(c.Release)
	return client, c
}

// TestEngine_WritesOtherConnectionsAfterGoexit queues on two connections of one event loop.
func TestEngine_WritesOtherConnectionsAfterGoexit(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	opts := options()
	var exited atomic.Bool
	opts.OnWrite = func(w wsconn.Write) {
		if w.Bytes == len("..first") && !exited.Swap(true) {
			runtime.Goexit()
		}
	}
	first, firstConn := acceptWith(t, opts, newHandler())
	second, secondConn := acceptWith(t, opts, newHandler())
	for range 3 {
		require.NoError(t, send(firstConn, "first"))
		require.NoError(t, send(secondConn, "b"))
		_, got := second.next()
		assert.Equal(t, "b", got)
	}
	_, got := first.next()
	assert.Equal(t, "first", got)
	assert.True(t, exited.Load())
}

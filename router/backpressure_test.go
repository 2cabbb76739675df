package router_test

import (
	"bytes"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A Blob is a message of any size.
type Blob struct {
	N    int    `json:"n"`
	Text string `json:"text"`
}

func (Blob) MessageType() string { return "BLOB" }

type Blobbed struct {
	Text string `json:"text"`
}

func (Blobbed) MessageType() string { return "BLOBBED" }

func dialTCP(t testing.TB, server *httptest.Server) net.Conn {
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, handshakeText)
	require.NoError(t, err)
	return conn
}

// TestLimits_InboundBytesPauseReading has clients that send more than the server may read while a handler waits.
func TestLimits_InboundBytesPauseReading(t *testing.T) {
	const buffer, messages = 16 << 10, 100
	for name, tt := range map[string]struct {
		size   int64
		conns  int64
		limits router.Limits
		limit  int64 // bytes
	}{
		"per connection": {40_000, 1, router.Limits{}, 1 << 20},
		"per router":     {4_000, 3, router.Limits{InboundBytes: 200_000}, 200_000},
	} {
		runSynctest(t, name, func(t *testing.T) {
			var handled atomic.Int64
			proceed := make(chan struct{})
			r := router.New(discardLogs(router.Options{Limits: tt.limits}))
			router.On(r, func(*router.Context, Blob) error {
				<-proceed
				handled.Add(1)
				return nil
			})
			var read atomic.Int64 // bytes
			frame := longFrame(int(tt.size))
			for range tt.conns {
				dialPipe(t, r, &read).write(bytes.Repeat(frame, messages))
			}
			synctest.Wait()
			assert.GreaterOrEqual(t, read.Load(), tt.limit)
			// Each connection has a message that waits for the limit, one that is handled, one that is partly read, and a buffer.
			assert.LessOrEqual(t, read.Load(), tt.limit+tt.conns*(3*(tt.size+100)+buffer))
			close(proceed)
			synctest.Wait()
			assert.Equal(t, tt.conns*messages, handled.Load())
			assert.EqualValues(t, tt.conns, r.Stats().Conns, "no connection was closed")
		})
	}
}

func TestSubscribe_RejectsInvalidNamesAndExcessTopics(t *testing.T) {
	r := router.New(discardLogs(router.Options{Limits: router.Limits{Topics: 2}}))
	var conn *router.Conn
	router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) { conn = ctx.Conn(); return Echoed(m), nil })
	routertest.Call[Echoed](routertest.Dial(t, r), Echo{})
	for topic, want := range map[string]string{
		"":                       "a topic's name must have 1 to 256 bytes, not 0",
		strings.Repeat("x", 257): "a topic's name must have 1 to 256 bytes, not 257",
		"a\nb":                   `a topic's name must be UTF-8 without control characters, unlike "a\nb"`,
		"\xff":                   `a topic's name must be UTF-8 without control characters, unlike "\xff"`,
	} {
		for _, err := range []error{conn.Subscribe(topic), conn.Subscribe(topic, router.Present("")), r.Publish(topic, Blob{})} {
			require.ErrorContains(t, err, want)
			assert.Equal(t, errors.InvalidArgument, errors.CodeOf(err))
		}
		assert.False(t, conn.Subscribed(topic))
	}
	require.NoError(t, conn.Subscribe(strings.Repeat("é", 128)))
	require.NoError(t, conn.Subscribe("b", router.Present("")))
	require.NoError(t, conn.Subscribe("b"))
	for _, err := range []error{conn.Subscribe("c"), conn.Subscribe("c", router.Present(""))} {
		exceeded, ok := errors.AsType[*router.LimitExceeded](err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, router.LimitExceeded{Kind: router.LimitTopics, Option: "router.Limits.Topics", Observed: 3, Limit: 2, RetryAfter: errors.Never}, *exceeded)
	}
	conn.Unsubscribe("b")
	require.NoError(t, conn.Subscribe("c"))
}

// A Quote replaces earlier quotes of the same symbol.
type Quote struct {
	Symbol string `json:"symbol"`
	N      int    `json:"n"`
	Pad    string `json:"pad,omitempty"`
}

func (Quote) MessageType() string { return "QUOTE" }

func (q Quote) ConflationKey() string { return q.Symbol }

// onlyConn returns the router's connection.
func onlyConn(t *testing.T, r *router.Router) *router.Conn {
	t.Helper()
	conns := collect(r)
	require.Len(t, conns, 1)
	return conns[0]
}

package rawclient_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/deflate"
	"github.com/penstock-go/penstock/internal/simtest/rawclient"
	"github.com/penstock-go/penstock/router"
)

// TestClient_CompressesAsItsOfferSays counts the bytes of a connection with and without an offer.
func TestClient_CompressesAsItsOfferSays(t *testing.T) {
	bytes := func(t *testing.T, offer string, windowBytes int64) (read, written int) {
		synctest.Test(t, func(t *testing.T) {
			r := newRouter(t, func(o *router.Options) { o.CompressMinBytes, o.CompressWindowBytes = 64, windowBytes })
			var counted counts
			c := newClient(t, r, "ann", func(cfg *rawclient.Config) {
				cfg.Deflate = offer
				dial := cfg.Dial
				cfg.Dial = func(ctx context.Context) (net.Conn, error) {
					conn, err := dial(ctx)
					return countedConn{conn, &counted}, err
				}
			})
			for n := range 60 {
				synctest.Wait()
				text := fmt.Sprint(n, strings.Repeat(" some words that all messages have", 8))
				id := c.Call("ECHO", echo{text}, rawclient.CallOptions{})
				synctest.Wait()
				assert.JSONEq(t, fmt.Sprintf(`{"Text":%q}`, text), string(c.Outcome(id).Payload))
			}
			read, written = int(counted.read.Load()), int(counted.written.Load())
		})
		return read, written
	}
	plainRead, plainWritten := bytes(t, "", deflate.MemoryBytes)
	for _, test := range []struct {
		offer         string
		windowBytes   int64
		read, written float64 // at most this part of the bytes without compression
	}{
		{"permessage-deflate; client_max_window_bits", deflate.MemoryBytes, 0.1, 0.45}, // every third message is not compressed
		{"permessage-deflate", deflate.MemoryBytes, 0.1, 0.6},
		{"permessage-deflate; server_no_context_takeover; client_max_window_bits=10", deflate.MemoryBytes, 0.3, 0.45},
		{"permessage-deflate; client_max_window_bits", 0, 0.3, 0.6},
	} {
		read, written := bytes(t, test.offer, test.windowBytes)
		assert.Less(t, float64(read)/float64(plainRead), test.read, test.offer)
		assert.Less(t, float64(written)/float64(plainWritten), test.written, test.offer)
	}
}

type counts struct{ read, written atomic.Int64 }

type countedConn struct {
	net.Conn

	*counts
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}

package wsconn_test

import (
	"bufio"
	"bytes"
	"compress/flate"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wsconn"
)

const rsv1 = 0x40

func offering(extensions string) string {
	return strings.Replace(handshake, "\r\n\r\n", "\r\nSec-WebSocket-Extensions: "+extensions+"\r\n\r\n", 1)
}

func deflating() *wsconn.Options {
	opts := options()
	opts.Deflater = wsconn.NewDeflater(100, 0)
	return opts
}

func deflated(s string) string {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestCompression)
	_, _ = io.WriteString(w, s)
	_ = w.Flush()
	return strings.TrimSuffix(b.String(), "\x00\x00\xff\xff")
}

func TestAccept_MalformedExtensionsFailTheHandshake(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := wsconn.Accept(w, r, "", deflating(), newHandler())
		assert.Equal(t, errors.InvalidArgument, errors.CodeOf(err))
	}))
	defer server.Close()
	for _, header := range []string{`x-other; a=", permessage-deflate`, `permessage-deflate;`} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		_, err = io.WriteString(conn, offering(header))
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, resp.StatusCode, "the caller responds: %s", header)
		_ = conn.Close()
	}
}

func TestDeflate_CompressesOnlyWhatGetsShorter(t *testing.T) {
	addr, conns := listen(t, deflating())
	client := dialRaw(t, addr, "permessage-deflate")
	c := <-conns
	defer c.Release()
	for text, want := range map[string]byte{
		strings.Repeat("ha", 49):       fin | text,
		strings.Repeat("ha", 50):       fin | rsv1 | text,
		strings.Repeat("hahaha", 9999): fin | rsv1 | text,
		incompressible():               fin | text,
	} {
		require.NoError(t, send(c, text))
		first, payload := client.next()
		assert.Equal(t, want, first)
		if first&rsv1 != 0 {
			assert.Less(t, len(payload), len(text))
			plain, err := inflated([]byte(payload))
			require.NoError(t, err)
			payload = string(plain)
		}
		assert.Equal(t, text, payload)
	}
}

func incompressible() string {
	b := make([]byte, 150)
	for i := range b {
		b[i] = byte(rand.Int())
	}
	return string(b)
}

// TestDeflate_CompressesABroadcastOnce writes frames to clients without compression and to those whose offers differ, all of
// which the server answers with the same parameters, so that one compressed form serves all of them.
func TestDeflate_CompressesABroadcastOnce(t *testing.T) {
	opts := options()
	opts.Deflater = wsconn.CountingDeflater(100, 64)
	addr, conns := listen(t, opts)
	offers := []string{
		"", "permessage-deflate", "permessage-deflate; client_max_window_bits",
		"permessage-deflate; client_max_window_bits=10; server_no_context_takeover",
	}
	var clients []*rawClient
	var all []*wsconn.Conn
	for i := range 12 {
		client := dialRaw(t, addr, offers[i%len(offers)])
		c := <-conns
		defer c.Release()
		clients, all = append(clients, client), append(all, c)
	}
	compressions := 0
	for round := range 50 {
		message := strings.Repeat(string(rune('a'+round%26)), 90+round)
		f := wsconn.NewFrame()
		f.WriteString(message)
		f.Seal()
		var wg sync.WaitGroup
		for _, c := range all {
			f.Retain()
			wg.Go(func() { _ = c.Queue(f); c.Flush() })
		}
		f.Release()
		wg.Wait()
		for i, client := range clients {
			first, payload := client.next()
			compressed := i%len(offers) > 0 && len(message) >= 100
			require.Equal(t, compressed, first&rsv1 != 0)
			if compressed {
				plain, err := inflated([]byte(payload))
				require.NoError(t, err)
				payload = string(plain)
			}
			require.Equal(t, message, payload)
		}
		if len(message) >= 100 {
			compressions++
		}
		require.Equal(t, compressions, wsconn.Compressions(opts.Deflater))
	}
}

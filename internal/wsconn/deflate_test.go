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
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
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
	opts.Deflater = wsconn.NewDeflater(100)
	return opts
}

func deflated(s string) string {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestCompression)
	_, _ = io.WriteString(w, s)
	_ = w.Flush()
	return strings.TrimSuffix(b.String(), "\x00\x00\xff\xff")
}

// dialDeflating also returns what the server answered to the offer.
func dialDeflating(t *testing.T, addr, offer string) (*rawClient, string) {
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, offering(offer))
	require.NoError(t, err)
	c := &rawClient{conn, bufio.NewReader(conn), t}
	resp, err := http.ReadResponse(c.r, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	return c, resp.Header.Get("Sec-WebSocket-Extensions")
}

func TestDeflate_NegotiatesOffers(t *testing.T) {
	const agreed = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
	addr, conns := listen(t, deflating())
	for offer, want := range map[string]string{
		"permessage-deflate":                         agreed,
		"permessage-deflate; client_max_window_bits": agreed, // Chromium, Firefox
		"Permessage-Deflate ;client_max_window_bits=10; server_no_context_takeover": agreed,
		"x-webkit-deflate-frame, permessage-deflate":                                agreed,
		`permessage-deflate; server_max_window_bits="15"`:                           agreed + "; server_max_window_bits=15",
		"permessage-deflate; server_max_window_bits=10, permessage-deflate":         agreed,
		"permessage-deflate; server_max_window_bits=10":                             "",
		"permessage-deflate; client_max_window_bits=7":                              "",
		"permessage-deflate; server_no_context_takeover=1":                          "",
		"permessage-deflate; client_max_window_bits; client_max_window_bits":        "",
		"permessage-deflate; made_up":                                               "",
		"permessage-bzip2":                                                          "",
		`permessage-deflate; client_max_window_bits = "1\2"`:                        agreed,
		`, ,permessage-deflate,`:                                                    agreed,
		`permessage-deflate; made_up="x", permessage-deflate`:                       agreed,
	} {
		_, got := dialDeflating(t, addr, offer)
		assert.Equal(t, want, got, offer)
		(<-conns).Release()
	}
	addr, conns = listen(t, options())
	_, got := dialDeflating(t, addr, "permessage-deflate")
	assert.Empty(t, got, "compression is disabled")
	(<-conns).Release()
}

func TestAccept_MalformedExtensionsFailTheHandshake(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := wsconn.Accept(w, r, "", deflating(), newHandler())
		assert.Equal(t, errors.InvalidArgument, errors.CodeOf(err))
	}))
	defer server.Close()
	for _, header := range []string{
		`x-other; a="b, permessage-deflate"`, // the value is no token
		`x-other; a=", permessage-deflate`,
		`permessage-deflate; client_max_window_bits=`,
		`permessage-deflate; client_max_window_bits=""`,
		`permessage-deflate x`,
		`permessage-deflate;`,
		`permessage-deflate, =`,
		`permessage-deflate; made_up="\,", permessage-deflate`,
	} {
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

func TestDeflate_ExchangesMessagesWithAnotherLibrary(t *testing.T) {
	addr, conns := listen(t, deflating())
	for _, mode := range []websocket.CompressionMode{websocket.CompressionNoContextTakeover, websocket.CompressionContextTakeover} {
		client, resp, err := websocket.Dial(t.Context(), "ws://"+addr, &websocket.DialOptions{CompressionMode: mode, CompressionThreshold: 1})
		require.NoError(t, err)
		require.NotEmpty(t, resp.Header.Get("Sec-WebSocket-Extensions"))
		client.SetReadLimit(1 << 20)
		ended := make(chan error)
		go func() { ended <- echo(<-conns) }()
		random := make([]byte, 5000)
		for i := range random {
			random[i] = byte(rand.IntN(94)) + ' '
		}
		for _, message := range []string{"", "a", strings.Repeat("again and ", 9), strings.Repeat("again and ", 10), strings.Repeat("again and ", 20_000), string(random)} {
			require.NoError(t, client.Write(t.Context(), websocket.MessageText, []byte(message)))
			_, got, err := client.Read(t.Context())
			require.NoError(t, err)
			require.Equal(t, message, string(got))
		}
		require.NoError(t, client.Close(websocket.StatusNormalClosure, ""))
		require.Error(t, <-ended)
	}
}

func TestDeflate_CompressesOnlyWhatGetsShorter(t *testing.T) {
	addr, conns := listen(t, deflating())
	client, _ := dialDeflating(t, addr, "permessage-deflate")
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

// TestDeflate_SharesCompressedFrames writes one frame to clients with and without compression.
func TestDeflate_SharesCompressedFrames(t *testing.T) {
	addr, conns := listen(t, deflating())
	var clients []*rawClient
	var all []*wsconn.Conn
	for i := range 6 {
		client := dialRaw(t, addr, nil)
		if i%2 == 0 {
			_ = client.Close()
			(<-conns).Release()
			client, _ = dialDeflating(t, addr, "permessage-deflate")
		}
		clients, all = append(clients, client), append(all, <-conns)
	}
	for round := range 50 {
		message := strings.Repeat(string(rune('a'+round%26)), 200+round)
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
			if i%2 == 0 {
				require.EqualValues(t, fin|rsv1|text, first)
				plain, err := inflated([]byte(payload))
				require.NoError(t, err)
				payload = string(plain)
			}
			require.Equal(t, message, payload)
		}
	}
	for _, c := range all {
		c.Release()
	}
}

// TestDeflate_CompressesABroadcastOnce writes frames to clients whose offers differ, all of which the
// server answers with the same parameters, so that one compressed form serves all of them.
func TestDeflate_CompressesABroadcastOnce(t *testing.T) {
	opts := options()
	opts.Deflater = wsconn.CountingDeflater(100, 32)
	addr, conns := listen(t, opts)
	offers := []string{"permessage-deflate", "permessage-deflate; client_max_window_bits", "permessage-deflate; client_max_window_bits=10; server_no_context_takeover"}
	var clients []*rawClient
	var all []*wsconn.Conn
	for i := range 9 {
		client, _ := dialDeflating(t, addr, offers[i%len(offers)])
		clients, all = append(clients, client), append(all, <-conns)
	}
	for round, message := range []string{strings.Repeat("once ", 100), strings.Repeat("again ", 100), "too short", strings.Repeat("a third ", 100)} {
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
		for _, client := range clients {
			first, _ := client.next()
			require.Equal(t, len(message) >= 100, first&rsv1 != 0)
		}
		require.Equal(t, []int{1, 2, 2, 3}[round], wsconn.Compressions(opts.Deflater), "compressions after %d messages", round+1)
	}
	for _, c := range all {
		c.Release()
	}
}

func TestDeflate_InvalidMessagesCloseTheConnection(t *testing.T) {
	bomb := deflated(strings.Repeat("\x00", 5<<20))
	hello := deflated("hello, hello, hello, hello")
	for name, tt := range map[string]struct {
		frames [][]byte
		want   []string // that are read
		code   int
	}{
		"a decompression bomb":           {[][]byte{frame(fin|rsv1|text, bomb)}, nil, 1009},
		"a decompression bomb in pieces": {[][]byte{frame(rsv1|text, bomb[:99]), frame(fin|continuation, bomb[99:])}, nil, 1009},
		"empty blocks":                   {[][]byte{frame(fin|rsv1|text, strings.Repeat("\x00\x00\x00\xff\xff", 1<<18))}, nil, 1009},
		"many streams":                   {[][]byte{frame(fin|rsv1|text, strings.Repeat("\x03\x00", 18))}, nil, 1002},
		"not compressed at all":          {[][]byte{frame(fin|rsv1|text, "\xff\xff\xff\xff")}, nil, 1002},
		"without its end":                {[][]byte{frame(fin|rsv1|text, hello[:len(hello)-3])}, nil, 1002},
		"the mark in the middle":         {[][]byte{frame(rsv1|text, hello[:3]), frame(fin|rsv1|continuation, hello[3:])}, nil, 1002},
		"a marked ping":                  {[][]byte{frame(fin|rsv1|ping, "")}, nil, 1002},
		"a new message in between":       {[][]byte{frame(rsv1|text, hello[:3]), frame(fin|rsv1|text, hello)}, nil, 1002},
		"frames behind the stream":       {[][]byte{frame(fin|rsv1|text, "\x4b\x04\x00"+strings.Repeat("\x00\x00\x00\xff\xff", 1000)+string(frame(fin|text, "smuggled")))}, nil, 1002},
		"two streams are a message":      {[][]byte{frame(fin|rsv1|text, "\x4b\x04\x00\x4b\x04\x00\x00"), frame(fin|closing, "\x03\xe8")}, []string{"aa"}, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			addr, conns := listen(t, deflating())
			client, _ := dialDeflating(t, addr, "permessage-deflate")
			c := <-conns
			go func() { _, _ = client.Write(slices.Concat(tt.frames...)) }()
			go func() { _, _ = io.Copy(io.Discard, client.r); _ = client.Close() }()
			var got []string
			for {
				msg, err := c.Read(unlimited)
				if err != nil {
					break
				}
				got = append(got, string(msg.Bytes))
				msg.Release()
			}
			code, _ := c.Status()
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.code, code)
			c.Release()
		})
	}
}

func TestDeflate_TruncatedMessageIsAnError(t *testing.T) {
	addr, conns := listen(t, deflating())
	client, _ := dialDeflating(t, addr, "permessage-deflate")
	c := <-conns
	defer c.Release()
	whole := frame(fin|rsv1|text, deflated("hello world, this is long but will be cut off somewhere"))
	client.send(whole[:len(whole)-20])
	_ = client.Close()
	_, err := c.Read(unlimited)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestDeflate_ReadKeepsTheBeginningOfLongMessages(t *testing.T) {
	addr, conns := listen(t, deflating())
	client, _ := dialDeflating(t, addr, "permessage-deflate")
	c := <-conns
	defer c.Release()
	client.send(frame(fin|rsv1|text, deflated(strings.Repeat("0123456789", 5000))), frame(fin|rsv1|text, deflated("next")))
	msg, err := c.Read(func([]byte) int64 { return 1000 })
	require.NoError(t, err)
	assert.True(t, msg.Truncated())
	assert.EqualValues(t, 50_000, msg.Size)
	assert.True(t, strings.HasPrefix(strings.Repeat("0123456789", 5000), string(msg.Bytes)))
	msg.Release()
	msg, err = c.Read(unlimited)
	require.NoError(t, err)
	assert.Equal(t, "next", string(msg.Bytes))
	msg.Release()
}

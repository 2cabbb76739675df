package wsconn_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testcert"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// The conformance tests send the bytes of a case to a server that echoes messages, and compare
// all frames that come back, the close code, and the end of the stream. The groups are those of
// the Autobahn test suite; what is expected is derived from RFC 6455 and RFC 7692.

// maxConformanceBytes is the maximum length of a message in the conformance tests.
const maxConformanceBytes = 1 << 20

// A transport is a way in which the server reads.
type transport struct {
	name     string
	blocking bool // Read waits for the client; Park is not used
	inline   bool // messages are handled on the goroutine of an event loop
	secure   bool
	maxBytes int                     // longer cases are left out, because they take too long
	wrap     func(net.Conn) net.Conn // nil: the server reads the socket of the kernel
}

var transports = []transport{
	{name: "TCP parked"},
	{name: "TCP blocking", blocking: true},
	{name: "wrapped", wrap: func(c net.Conn) net.Conn { return hidden{c} }},
	{name: "wrapped byte by byte", maxBytes: testscale.Pick(1<<10, 8<<10), wrap: func(c net.Conn) net.Conn { return byteByByte{hidden{c}, bufio.NewReader(c)} }},
	{name: "TCP inline", inline: true},
	{name: "TLS parked", secure: true},
	{name: "TLS blocking", secure: true, blocking: true},
	{name: "TLS inline", secure: true, inline: true},
	{name: "TLS wrapped", secure: true, wrap: func(c net.Conn) net.Conn { return hidden{c} }},
}

// hidden hides the type of a connection, as other wrappers do.
type hidden struct{ net.Conn }

func (h hidden) CloseWrite() error { return h.Conn.(*net.TCPConn).CloseWrite() }

// byteByByte never returns more than one byte of what has arrived.
type byteByByte struct {
	hidden
	r *bufio.Reader
}

func (c byteByByte) Read(p []byte) (int, error) { return c.r.Read(p[:min(1, len(p))]) }

type wrappingListener struct {
	net.Listener
	wrap func(net.Conn) net.Conn
}

func (l wrappingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.wrap(conn), nil
}

func conformanceOptions() *wsconn.Options {
	opts := options()
	opts.MaxMessageBytes = maxConformanceBytes
	opts.MessageTimeout, opts.WriteTimeout, opts.CloseTimeout = time.Minute, time.Minute, time.Minute
	opts.QueueBytes = 8 << 20
	opts.Deflater = wsconn.NewDeflater(100, 64<<20)
	return opts
}

// serveEcho starts a server that echoes messages. When the test ends, it waits for the
// connections to end.
func (tr transport) serveEcho(t *testing.T) *httptest.Server {
	opts := conformanceOptions()
	var conns sync.WaitGroup
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conns.Add(1) // before the client can end the connection and the test
		if tr.inline {
			if err := serveInline(w, r, opts, echoOf, conns.Done); err != nil {
				t.Error(err)
				conns.Done()
			}
			return
		}
		c, err := wsconn.Accept(w, r, "", opts, newHandler())
		if err != nil {
			t.Error(err)
			conns.Done()
			return
		}
		go func() {
			defer conns.Done()
			tr.echo(c)
		}()
	}))
	if tr.wrap != nil {
		server.Listener = wrappingListener{server.Listener, tr.wrap}
	}
	if tr.secure {
		server.TLS = testcert.ServerConfig()
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(func() {
		server.Close()
		conns.Wait()
	})
	return server
}

// echo answers each message until the connection ends.
func (tr transport) echo(c *wsconn.Conn) {
	defer c.Release()
	for {
		if !tr.blocking {
			awaitMessage(c)
		}
		msg, err := c.Read(unlimited)
		switch {
		case err != nil:
			return
		case msg.Buffer == nil: // there were only control frames
			continue
		}
		_ = send(c, echoOf(msg))
		msg.Release()
	}
}

// echoOf returns the text that answers a message.
func echoOf(msg wsconn.Message) string {
	if msg.Binary {
		return echoOfBinary(string(msg.Bytes))
	}
	return string(msg.Bytes)
}

// echoOfBinary returns the text that answers a binary message, because the server sends only
// text.
func echoOfBinary(payload string) string { return "binary:" + hex.EncodeToString([]byte(payload)) }

// A delivery splits frames into the writes of a client.
type delivery struct {
	name  string
	split func(frames [][]byte) [][]byte // nil if it is not useful for these frames
}

var deliveries = []delivery{
	{"one write", func(frames [][]byte) [][]byte { return [][]byte{slices.Concat(frames...)} }},
	{"frame by frame", func(frames [][]byte) [][]byte {
		if len(frames) < 2 || len(frames) > 100 {
			return nil
		}
		return frames
	}},
	{"997 bytes a write", func(frames [][]byte) [][]byte { return chop(frames, 997) }},
	{"octet-wise", func(frames [][]byte) [][]byte {
		if len(slices.Concat(frames...)) > 300 {
			return nil
		}
		return chop(frames, 1)
	}},
}

// chop returns pieces of n bytes, or nil if one would hold everything.
func chop(frames [][]byte, n int) [][]byte {
	all := slices.Concat(frames...)
	if len(all) <= n {
		return nil
	}
	return slices.Collect(slices.Chunk(all, n))
}

// A wireCase states what a client sends and all that must come back.
type wireCase struct {
	name   string
	offer  string   // of extensions, if any
	frames [][]byte // or parts of frames
	want   []serverFrame

	// code is what the close frame of the server must hold; noCode if it must be empty. If it
	// is 0, the server must not close by itself, but answer a close frame with 1000.
	code   int
	orCode int // another code that conforms to the RFC; 0 if there is none
}

const noCode = -1

func echoes(payloads ...string) (frames []serverFrame) {
	for _, p := range payloads {
		frames = append(frames, serverFrame{fin | text, p})
	}
	return frames
}

// sampleCases is how many cases of a group the quick tier runs on each transport but the first.
const sampleCases = 3

// runWireCases runs each case on the first transport in each of the first ways of delivery, and a
// third of them on the others. The quick tier runs each case once, and few on the others.
func runWireCases(t *testing.T, ways int, cases []wireCase) {
	for i, tr := range transports {
		t.Run(tr.name, func(t *testing.T) {
			t.Parallel()
			addr := tr.serveEcho(t).Listener.Addr().String()
			selected, selectedWays := cases, deliveries[:testscale.Pick(1, ways)]
			if i > 0 {
				third := testscale.SoakSample(cases, max(sampleCases, len(cases)/3))
				selected, selectedWays = testscale.Sample(third, sampleCases), testscale.Sample(deliveries[:ways], 1)
			}
			for _, tt := range selected {
				for _, d := range selectedWays {
					writes := d.split(tt.frames)
					if writes == nil || tr.maxBytes > 0 && len(slices.Concat(writes...)) > tr.maxBytes {
						continue
					}
					t.Run(tt.name+"/"+d.name, func(t *testing.T) {
						p := dialPeer(t, addr, tr.secure, tt.offer)
						tt.run(t, p, writes)
					})
				}
			}
		})
	}
}

func (tt *wireCase) run(t *testing.T, p *peer, writes [][]byte) {
	written := make(chan struct{})
	go func() {
		defer close(written)
		for _, w := range writes {
			_, _ = p.Write(w) // it fails after the server has closed
		}
	}()
	for i, want := range tt.want {
		got, err := p.read()
		require.NoError(t, err, "frame %d of %d, want %v", i, len(tt.want), want)
		require.True(t, got == want, "frame %d of %d: got %v, want %v", i, len(tt.want), got, want)
	}
	if tt.code == 0 {
		<-written
		_, _ = p.Write(clientFrame(fin|closing, "\x03\xe8"))
	}
	last, err := p.read()
	require.NoError(t, err, "no close frame")
	require.Equal(t, byte(fin|closing), last.first, "got %v in place of the close frame", last)
	tt.requireCode(t, last.payload)
	<-written
	_, _ = p.Write(clientFrame(fin|closing, last.payload))
	require.NoError(t, p.readEnd(), "no end of the stream")
}

func (tt *wireCase) requireCode(t *testing.T, payload string) {
	if tt.code == noCode {
		require.Empty(t, payload)
		return
	}
	require.GreaterOrEqual(t, len(payload), 2, "the close frame has no code")
	code := int(binary.BigEndian.Uint16([]byte(payload)))
	want := []int{max(tt.code, 0)}
	if tt.code == 0 {
		want[0] = 1000
	}
	if tt.orCode != 0 {
		want = append(want, tt.orCode)
	}
	require.Contains(t, want, code, "%s", payload[2:])
	require.True(t, bytes.Equal([]byte(payload[2:]), bytes.ToValidUTF8([]byte(payload[2:]), nil)), "the reason is not UTF-8")
}

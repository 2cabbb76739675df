package wsconn_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// The fuzz tests of this file compare the package with github.com/coder/websocket, over sockets that
// are in an event loop. What they compare is defined by RFC 6455 and RFC 7692. Where the
// other implementation is more tolerant, the RFC decides: it does not check that text is UTF-8
// (section 8.1) and that lengths have the minimal encoding (section 5.2).

// A loopReader reads its connection on the goroutine of the event loop.
type loopReader struct {
	noopHandler
	conn  *wsconn.Conn // set before the first Serve
	got   func(c *wsconn.Conn, text string, binary bool)
	ended chan struct{}
}

// Serve implements wsconn.Handler.
func (h *loopReader) Serve() (paused bool) {
	c := h.conn
	for {
		switch c.Park() {
		case wsconn.Parked:
			return false
		case wsconn.Paused:
			return true
		}
		msg, err := c.Read(unlimited)
		if err != nil {
			c.Release()
			close(h.ended)
			return false
		}
		if msg.Buffer != nil {
			h.got(c, string(msg.Bytes), msg.Binary)
			msg.Release()
		}
		if c.Lend() { // as for a handler
			if rand.IntN(4) == 0 {
				runtime.Gosched()
			}
			if !c.Reclaim() {
				return false
			}
		}
	}
}

// listenLoop serves connections that are read in the event loop, and hands out their readers.
func listenLoop(f *testing.F, opts *wsconn.Options, got func(c *wsconn.Conn, text string, binary bool)) (url string, readers <-chan *loopReader) {
	accepted := make(chan *loopReader, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := &loopReader{got: got, ended: make(chan struct{})}
		c, err := wsconn.Accept(w, r, "", opts, h)
		if err != nil {
			return
		}
		h.conn = c
		accepted <- h
		c.ServeElsewhere()
	}))
	f.Cleanup(server.Close)
	return server.URL, accepted
}

// FuzzRead_LikeCoder sends arbitrary bytes of a client to both servers, which must read the same
// messages and send the same close code.
func FuzzRead_LikeCoder(f *testing.F) {
	for _, seed := range readSeeds() {
		f.Add(seed, false, uint64(1))
		f.Add(seed, true, uint64(7))
	}
	opts := options()
	opts.CloseTimeout = 100 * time.Millisecond
	opts.Deflater = wsconn.NewDeflater(1, 0)
	read := make(chan string, 1<<16)
	url, readers := listenLoop(f, opts, func(_ *wsconn.Conn, text string, binary bool) { read <- described(text, binary) })
	other := make(chan []string, 1)
	coder := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { other <- readWithCoder(w, r) }))
	f.Cleanup(coder.Close)
	f.Fuzz(func(t *testing.T, client []byte, inflates bool, seed uint64) {
		model, codes, ok := parse(client, inflates)
		switch {
		case !ok:
			t.Skip("the limit of control frames depends on the clock")
		case slices.Contains(codes, 1007) || slices.Contains(codes, 1008) || len(codes) > 1 || stopsAtLength(client, inflates):
			t.Skip("the other implementation is more tolerant")
		case inflates && codes == nil && hasDeflated(client):
			t.Skip("an incomplete compressed message may be invalid already")
		}
		addr := strings.TrimPrefix(url, "http://")
		code := deliver(t, addr, client, inflates, rand.New(rand.NewPCG(seed, 0)))
		h := <-readers
		<-h.ended
		var got []string
		for len(read) > 0 {
			got = append(got, <-read)
		}
		otherCode := deliver(t, strings.TrimPrefix(coder.URL, "http://"), client, inflates, rand.New(rand.NewPCG(seed, 0)))
		want := <-other
		if otherCode == 0 && len(want) == len(got)+1 {
			want = want[:len(got)] // it takes the end of the stream for the end of a message
		}
		if !slices.Equal(got, want) {
			t.Fatalf("read %q, but coder/websocket reads %q and the model %q", got, want, model)
		}
		if otherCode != 0 && code != otherCode {
			t.Fatalf("close code %d, but coder/websocket sends %d and the model %d", code, otherCode, codes)
		}
	})
}

// readWithCoder returns the messages of a connection.
func readWithCoder(w http.ResponseWriter, r *http.Request) (messages []string) {
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionNoContextTakeover})
	if err != nil {
		return nil
	}
	defer func() { _ = c.CloseNow() }()
	c.SetReadLimit(1 << 20)
	for {
		typ, message, err := c.Read(context.Background())
		if err != nil {
			return messages
		}
		messages = append(messages, described(string(message), typ == websocket.MessageBinary))
	}
}

// stopsAtLength reports whether the first frame that the RFC forbids has a length that is not
// encoded minimally, or is negative.
func stopsAtLength(client []byte, inflates bool) bool {
	s := stream{bytes: client, inflates: inflates}
	for {
		at := s.bytes
		err := s.frame()
		switch {
		case err == nil:
		case errors.Is(err, errForbidden) && len(at) > 1:
			l := stream{bytes: at[2:]}
			_, err := l.length(at[1] & 0x7f)
			return errors.Is(err, errForbidden)
		default:
			return false
		}
	}
}

// hasDeflated reports whether a frame may be compressed.
func hasDeflated(client []byte) bool {
	return slices.ContainsFunc(client, func(b byte) bool { return b&0x40 != 0 && b&0x0f <= 2 })
}

// deliver sends bytes in random pieces, then ends the stream, and returns the code of the server's
// close frame: 1005 if it has none, 0 if there is no close frame.
func deliver(t *testing.T, addr string, client []byte, inflates bool, random *rand.Rand) (code int) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	hello := handshake
	if inflates {
		hello = offering("permessage-deflate; client_no_context_takeover; server_no_context_takeover")
	}
	if random.IntN(2) == 0 { // the first bytes arrive with the handshake
		n := random.IntN(len(client) + 1)
		hello, client = hello+string(client[:n]), client[n:]
	}
	if _, err := io.WriteString(conn, hello); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	if _, err := http.ReadResponse(r, nil); err != nil {
		t.Fatal(err)
	}
	go func() {
		for range random.IntN(6) {
			n := random.IntN(len(client) + 1)
			_, _ = conn.Write(client[:n])
			client = client[n:]
			time.Sleep(time.Microsecond) // lets the pieces be read apart, sometimes
		}
		_, _ = conn.Write(client)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	for {
		first, payload, err := readServerFrame(r)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return code
		case err != nil:
			if network, ok := errors.AsType[net.Error](err); ok && network.Timeout() {
				t.Fatal("the connection does not end")
			}
			return code // a reset, because the other implementation closes with unread input
		case first == fin|closing && len(payload) < 2:
			code = 1005
		case first == fin|closing:
			code = int(binary.BigEndian.Uint16(payload))
		}
	}
}

// FuzzWrite_LikeCoder has a client of coder/websocket that sends messages, in frames of random
// lengths and compressed or not, and reads their echoes, pings and the close frame.
func FuzzWrite_LikeCoder(f *testing.F) {
	f.Add("hello", "world", uint16(1000), "bye", true, uint64(1))
	f.Add(strings.Repeat("x", 125), strings.Repeat("y", 126), uint16(4999), "", false, uint64(2))
	f.Add(strings.Repeat("long ", 14_000), "\x00\xff", uint16(3000), strings.Repeat("é", 100), true, uint64(3))
	f.Add("", "", uint16(1011), "\xff", true, uint64(4))
	opts := options()
	opts.Deflater = wsconn.NewDeflater(20, 1<<30)
	opts.PingInterval, opts.PongTimeout = time.Millisecond, time.Minute
	opts.QueueBytes = 64 << 20
	url, readers := listenLoop(f, opts, func(c *wsconn.Conn, text string, binary bool) {
		_ = c.QueueAnswer(func() (*wsconn.Frame, error) {
			frame := wsconn.NewFrame()
			frame.WriteString(text)
			if binary {
				frame.SealBinary()
			} else {
				frame.Seal()
			}
			return frame, nil
		}, nil)
		c.Wake()
	})
	f.Fuzz(func(t *testing.T, a, b string, code uint16, reason string, deflates bool, seed uint64) {
		if !wsconn.ValidCloseCode(int(code)) || code == 1014 { // which the other implementation does not know
			t.Skip()
		}
		random := rand.New(rand.NewPCG(seed, 0))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		mode := websocket.CompressionDisabled
		if deflates {
			mode = []websocket.CompressionMode{websocket.CompressionNoContextTakeover, websocket.CompressionContextTakeover}[seed%2]
		}
		client, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{CompressionMode: mode, CompressionThreshold: 1 + random.IntN(200)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = client.CloseNow() }()
		client.SetReadLimit(-1)
		h := <-readers
		var sent []string
		for range random.IntN(20) {
			message := []string{a, b, a + b, strings.Repeat(a, random.IntN(5)), strings.Repeat(b, random.IntN(40))}[random.IntN(5)]
			typ := websocket.MessageBinary
			if random.IntN(2) == 0 {
				typ, message = websocket.MessageText, strings.ToValidUTF8(message, "?")
			}
			if len(message) > 1<<20 {
				continue
			}
			sent = append(sent, described(message, typ == websocket.MessageBinary))
			go writeInParts(ctx, client, typ, message, rand.New(rand.NewPCG(seed, uint64(len(sent)))))
			gotType, got, err := client.Read(ctx)
			if err != nil {
				t.Fatalf("message %d: %v", len(sent), err)
			}
			if echoed := described(string(got), gotType == websocket.MessageBinary); echoed != sent[len(sent)-1] {
				t.Fatalf("got %q, want %q", echoed, sent[len(sent)-1])
			}
			if random.IntN(20) == 0 {
				time.Sleep(time.Millisecond) // the server pings
			}
		}
		h.conn.Close(int(code), reason)
		_, _, err = client.Read(ctx)
		closed, ok := errors.AsType[websocket.CloseError](err)
		want := strings.ToValidUTF8(reason, "\ufffd")
		if !ok || closed.Code != websocket.StatusCode(code) || len(want) <= 123 && closed.Reason != want || !strings.HasPrefix(want, closed.Reason) {
			t.Fatalf("got %v, want %d %q", err, code, want)
		}
		<-h.ended
	})
}

// writeInParts writes a message, which the client sends in several frames if it is long.
func writeInParts(ctx context.Context, client *websocket.Conn, typ websocket.MessageType, message string, random *rand.Rand) {
	w, err := client.Writer(ctx, typ)
	if err != nil {
		return
	}
	for len(message) > 0 {
		n := 1 + random.IntN(len(message))
		_, _ = io.WriteString(w, message[:n])
		message = message[n:]
	}
	_ = w.Close()
}

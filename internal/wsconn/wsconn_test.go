package wsconn_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/netpoll"
	"github.com/penstock-go/penstock/internal/wsconn"
)

func options() *wsconn.Options {
	return &wsconn.Options{
		MaxMessageBytes: 1 << 20,
		MessageTimeout:  10 * time.Second,
		WriteTimeout:    10 * time.Second,
		CloseTimeout:    10 * time.Second,
		PingInterval:    time.Minute,
		PongTimeout:     time.Minute,
		BufferBytes:     16 << 10,
		QueueBytes:      1 << 20,
		QueueMessages:   1024,
		Poller:          new(netpoll.Poller),
	}
}

// listen serves connections and hands each to the test.
func listen(t *testing.T, opts *wsconn.Options) (addr string, conns <-chan *wsconn.Conn) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return serve(t, listener, opts)
}

func serve(t *testing.T, listener net.Listener, opts *wsconn.Options) (addr string, conns <-chan *wsconn.Conn) {
	accepted := make(chan *wsconn.Conn, 10)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := wsconn.Accept(w, r, "", opts, ignore{})
		if err != nil {
			t.Error(err)
			return
		}
		accepted <- c
	}))
	_ = server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), accepted
}

// ignore is a handler that does nothing.
type ignore struct{}

func (ignore) OnClosed()                  {}
func (ignore) OnOverflow(wsconn.Overflow) {}
func (ignore) OnBackpressure(int, int)    {}
func (ignore) OnWrite(wsconn.Write)       {}

// next parks the connection while there is nothing to read, and then reads a message.
func next(c *wsconn.Conn) (wsconn.Message, error) {
	resumed := make(chan struct{}, 1)
	for {
		for c.Park(func() { resumed <- struct{}{} }) {
			<-resumed
		}
		if msg, err := c.Read(unlimited); msg.Buffer != nil || err != nil {
			return msg, err
		}
	}
}

// echo sends back the messages that it reads, until the connection ends.
func echo(c *wsconn.Conn) error {
	defer c.Release()
	for {
		msg, err := next(c)
		if err != nil {
			return err
		}
		_ = send(c, string(msg.Bytes)) // if it fails, so does the next read
		msg.Release()
	}
}

func unlimited([]byte) int64 { return 1 << 30 }

func send(c *wsconn.Conn, text string) error {
	f := wsconn.NewFrame()
	f.WriteString(text)
	f.Seal()
	err := c.Queue(f)
	c.Wake()
	return err
}

func pending(c *wsconn.Conn) (bytes int) {
	_, bytes = c.Pending()
	return bytes
}

// A raw client speaks RFC 6455 by hand.
type raw struct {
	net.Conn
	r *bufio.Reader
	t *testing.T
}

const handshake = "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"

// dialRaw sends first right behind the handshake, in the same segment.
func dialRaw(t *testing.T, addr string, first []byte) *raw {
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = conn.Write(append([]byte(handshake), first...))
	require.NoError(t, err)
	c := &raw{conn, bufio.NewReader(conn), t}
	resp, err := http.ReadResponse(c.r, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	return c
}

// frame lays out a client's frame. The mask is zero, so the payload is plain.
func frame(first byte, payload string) []byte {
	b := []byte{first}
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	return append(append(b, 0, 0, 0, 0), payload...)
}

const (
	fin          = 0x80
	continuation = 0x0
	text         = 0x1
	binaryData   = 0x2
	closing      = 0x8
	ping         = 0x9
	pong         = 0xa
)

func (c *raw) send(frames ...[]byte) {
	for _, f := range frames {
		_, err := c.Write(f)
		require.NoError(c.t, err)
	}
}

// next reads a server's frame.
func (c *raw) next() (first byte, payload string) {
	head := make([]byte, 2)
	_, err := io.ReadFull(c.r, head)
	require.NoError(c.t, err)
	n := uint64(head[1])
	switch n {
	case 126:
		b := make([]byte, 2)
		_, err = io.ReadFull(c.r, b)
		n = uint64(binary.BigEndian.Uint16(b))
	case 127:
		b := make([]byte, 8)
		_, err = io.ReadFull(c.r, b)
		n = binary.BigEndian.Uint64(b)
	}
	require.NoError(c.t, err)
	b := make([]byte, n)
	_, err = io.ReadFull(c.r, b)
	require.NoError(c.t, err)
	return head[0], string(b)
}

// closed wants a close frame with the code, and then the end.
func (c *raw) closed(code int) {
	c.t.Helper()
	first, payload := c.next()
	require.Equal(c.t, byte(fin|closing), first, "%q", payload)
	require.GreaterOrEqual(c.t, len(payload), 2)
	assert.Equal(c.t, code, int(binary.BigEndian.Uint16([]byte(payload))))
	c.send(frame(fin|closing, payload[:2]))
	rest, _ := io.ReadAll(c.r)
	assert.Empty(c.t, rest, "no frame may follow a close frame")
	_ = c.Close()
}

func TestFramesOfEverySizeArrive(t *testing.T) {
	for _, buffer := range []int{512, 16 << 10, netpoll.MaxBufferBytes} {
		opts := options()
		opts.BufferBytes = buffer
		addr, conns := listen(t, opts)
		ws, _, err := websocket.Dial(t.Context(), "ws://"+addr, nil)
		require.NoError(t, err)
		ws.SetReadLimit(-1)
		go func() { _ = echo(<-conns) }()
		for _, n := range []int{0, 1, 125, 126, 127, 511, 512, 513, 4095, 4096, 4097, 16384, 65535, 65536, 65537, 200_000} {
			sent := strings.Repeat("x", n)
			require.NoError(t, ws.Write(t.Context(), websocket.MessageText, []byte(sent)))
			_, got, err := ws.Read(t.Context())
			require.NoError(t, err)
			assert.Equal(t, sent, string(got), "%d bytes", n)
		}
		_ = ws.CloseNow()
	}
}

func TestAFirstFrameRightBehindTheHandshakeIsRead(t *testing.T) {
	addr, conns := listen(t, options())
	for range 20 {
		c := dialRaw(t, addr, append(frame(fin|text, "early"), frame(fin|text, "bird")...))
		go func() { _ = echo(<-conns) }()
		_, payload := c.next()
		assert.Equal(t, "early", payload)
		_, payload = c.next()
		assert.Equal(t, "bird", payload)
	}
}

func TestWhatTheRFCForbidsCloses(t *testing.T) {
	for name, tt := range map[string]struct {
		frames [][]byte
		code   int
	}{
		"an unmasked frame":                 {[][]byte{{fin | text, 1, 'x'}}, 1002},
		"a reserved bit":                    {[][]byte{frame(fin|0x40|text, "x")}, 1002},
		"a reserved opcode":                 {[][]byte{frame(fin|0x3, "x")}, 1002},
		"a continuation of nothing":         {[][]byte{frame(fin|continuation, "x")}, 1002},
		"a message inside a message":        {[][]byte{frame(text, "x"), frame(fin|text, "y")}, 1002},
		"a fragmented ping":                 {[][]byte{frame(ping, "x")}, 1002},
		"a ping of 126 bytes":               {[][]byte{frame(fin|ping, strings.Repeat("x", 126))}, 1002},
		"a close frame of one byte":         {[][]byte{frame(fin|closing, "x")}, 1002},
		"a close frame with a bad code":     {[][]byte{frame(fin|closing, "\x03\xed")}, 1002},
		"a message above the hard cap":      {[][]byte{frame(fin|text, strings.Repeat("x", 1<<20+1))}, 1009},
		"fragments above the hard cap":      {[][]byte{frame(text, strings.Repeat("x", 1<<20)), frame(fin|continuation, "x")}, 1009},
		"a length of 2 bytes for 125":       {[][]byte{{fin | text, 0x80 | 126, 0, 125, 0, 0, 0, 0}, []byte(strings.Repeat("x", 125))}, 1002},
		"a length of 8 bytes for 65535":     {[][]byte{{fin | text, 0x80 | 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0}}, 1002},
		"the same behind a fragment":        {[][]byte{frame(text, "x"), {fin | continuation, 0x80 | 126, 0, 1, 0, 0, 0, 0, 'x'}}, 1002},
		"a flood of pings":                  {[][]byte{bytes.Repeat(frame(fin|pong, ""), 101)}, 1008},
		"a flood of empty fragments":        {[][]byte{frame(text, "x"), bytes.Repeat(frame(continuation, ""), 1<<14+1)}, 1008},
		"the header of an enormous message": {[][]byte{{fin | text, 0x80 | 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, []byte(strings.Repeat("x", 1<<20+1))}, 1009},
	} {
		t.Run(name, func(t *testing.T) {
			addr, conns := listen(t, options())
			c := dialRaw(t, addr, nil)
			server := <-conns
			ended := make(chan error)
			go func() { ended <- echo(server) }()
			c.send(tt.frames...)
			c.closed(tt.code)
			require.Error(t, <-ended)
			code, _ := server.Status()
			assert.Equal(t, tt.code, code)
		})
	}
}

// TestNothingIsReadBehindAForbiddenFrame has one come with the end of a message.
func TestNothingIsReadBehindAForbiddenFrame(t *testing.T) {
	message := append(frame(text, "a"), frame(fin|continuation, "b")...)
	hidden := append(make([]byte, 128-len(message)-14), frame(fin|text, "hidden in a payload")...)
	for name, forbidden := range map[string][]byte{
		"a message":    append([]byte{fin | text, 0x80 | 126, 0, 1, 0, 0, 0, 0, 'x'}, frame(fin|text, "behind")...),
		"in a payload": append([]byte{fin | text, 0x80 | 127, 0, 0, 0, 0, 0, 0, 0, byte(len(hidden)), 0, 0, 0, 0}, hidden...),
	} {
		t.Run(name, func(t *testing.T) {
			addr, conns := listen(t, options())
			c := dialRaw(t, addr, nil)
			go func() { _ = echo(<-conns) }()
			c.send(append(message, forbidden...))
			_, payload := c.next()
			require.Equal(t, "ab", payload)
			c.closed(1002)
		})
	}
}

func TestPingsAndPongsDoNotKeepAConnectionFromParking(t *testing.T) {
	addr, conns := listen(t, options())
	c := dialRaw(t, addr, nil)
	server := <-conns
	again := make(chan struct{}, 1)
	park := func() bool { return server.Park(func() { again <- struct{}{} }) }
	if !park() {
		t.Skip("connections are not parked on this system")
	}
	for _, control := range []string{"", "are you there?", strings.Repeat("x", 125)} {
		all := append(frame(fin|pong, control), frame(fin|ping, control)...)
		all = append(all, frame(fin|pong, "")...)
		c.send(all)
		<-again
		require.True(t, park(), "there are only control frames")
		first, payload := c.next()
		assert.Equal(t, byte(fin|pong), first)
		assert.Equal(t, control, payload)
	}
	c.send(frame(fin|ping, "1"), frame(fin|text, "a message"))
	<-again
	for park() {
		<-again
	}
	msg, err := server.Read(unlimited)
	require.NoError(t, err)
	assert.Equal(t, "a message", string(msg.Bytes))
	_, payload := c.next()
	assert.Equal(t, "1", payload)

	for range 200 {
		c.send(frame(fin|pong, ""))
	}
	for park() {
		<-again
	}
	ended := make(chan error)
	go func() { ended <- echo(server) }()
	c.closed(1008)
	require.ErrorContains(t, <-ended, "too many control frames")
}

func TestConn_InvalidCloseReasonIsAnsweredWith1007(t *testing.T) {
	addr, conns := listen(t, options())
	c := dialRaw(t, addr, nil)
	server := <-conns
	ended := make(chan error, 1)
	go func() { ended <- echo(server) }()
	c.send(frame(fin|closing, "\x03\xe8a\xff\xfe"))
	c.closed(1007)
	require.Error(t, <-ended)
	code, _ := server.Status()
	assert.Equal(t, 1007, code)
}

func TestControlFramesBetweenFragments(t *testing.T) {
	addr, conns := listen(t, options())
	c := dialRaw(t, addr, nil)
	go func() { _ = echo(<-conns) }()
	c.send(frame(binaryData, "a"), frame(fin|ping, "are you there?"), frame(continuation, ""), frame(fin|pong, ""), frame(fin|continuation, "b"))
	first, payload := c.next()
	assert.Equal(t, byte(fin|pong), first)
	assert.Equal(t, "are you there?", payload)
	first, payload = c.next()
	assert.Equal(t, byte(fin|text), first)
	assert.Equal(t, "ab", payload)
}

func TestLimitKeepsTheBeginningAndDropsTheRest(t *testing.T) {
	addr, conns := listen(t, options())
	c := dialRaw(t, addr, nil)
	server := <-conns
	c.send(frame(text, strings.Repeat("ab", 3000)), frame(fin|continuation, strings.Repeat("ab", 2000)), frame(fin|text, "next"))
	asked := 0
	msg, err := server.Read(func(prefix []byte) int64 {
		asked++
		assert.GreaterOrEqual(t, len(prefix), 512)
		return 1000
	})
	require.NoError(t, err)
	assert.True(t, msg.Truncated())
	assert.EqualValues(t, 10_000, msg.Size)
	assert.GreaterOrEqual(t, len(msg.Bytes), 1000)
	assert.Less(t, len(msg.Bytes), 10_000)
	assert.Positive(t, asked)
	msg.Release()
	msg, err = server.Read(unlimited)
	require.NoError(t, err)
	assert.False(t, msg.Truncated())
	assert.Equal(t, "next", string(msg.Bytes))
	msg.Release()
	server.Release()
}

func TestFramesLeaveInOrderAndTheCloseFrameLast(t *testing.T) {
	addr, conns := listen(t, options())
	c := dialRaw(t, addr, nil)
	server := <-conns
	go func() { _ = echo(server) }()
	const senders, each = 4, 100
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				assert.NoError(t, send(server, fmt.Sprintf("%d %d %s", s, i, strings.Repeat("x", i*50))))
			}
		})
	}
	wg.Wait()
	server.Close(4001, strings.Repeat("é", 100))
	require.ErrorIs(t, send(server, "too late"), wsconn.ErrClosed)
	next := [senders]int{}
	for range senders * each {
		first, payload := c.next()
		require.Equal(t, byte(fin|text), first)
		var s, i int
		_, err := fmt.Sscan(payload, &s, &i)
		require.NoError(t, err)
		assert.Equal(t, next[s], i)
		next[s]++
	}
	first, payload := c.next()
	assert.Equal(t, byte(fin|closing), first)
	assert.Equal(t, "\x0f\xa1"+strings.Repeat("é", 61), payload, "cut between two runes")
}

func TestCloseEndsThoughThePeerNeverAnswers(t *testing.T) {
	opts := options()
	opts.CloseTimeout = 50 * time.Millisecond
	for name, stuck := range map[string]bool{"a silent peer": false, "a peer that does not read": true} {
		t.Run(name, func(t *testing.T) {
			addr, conns := listen(t, opts)
			dialRaw(t, addr, nil)
			server := <-conns
			for stuck && pending(server) < 500_000 {
				_ = send(server, strings.Repeat("x", 100_000))
			}
			start := time.Now()
			server.Close(1000, "")
			assert.Less(t, time.Since(start), 40*time.Millisecond, "Close does not wait")
			assert.Error(t, echo(server))
			assert.Less(t, time.Since(start), 5*time.Second)
		})
	}
}

func TestAFullQueueClosesWith1013(t *testing.T) {
	opts := options()
	opts.QueueMessages = 3
	addr, conns := listen(t, opts)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "ws://"+addr, nil)
	require.NoError(t, err)
	defer ws.CloseNow()
	ws.SetReadLimit(-1)
	server := <-conns
	go func() { _ = echo(server) }()
	for err == nil {
		err = send(server, strings.Repeat("x", 200_000))
	}
	require.ErrorIs(t, err, wsconn.ErrClosed)
	for err = nil; err == nil; {
		_, _, err = ws.Read(ctx)
	}
	assert.EqualValues(t, 1013, websocket.CloseStatus(err), "%v", err)
}

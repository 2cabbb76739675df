package internal_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wsconn"
	"github.com/penstock-go/penstock/internal/wsframe"
)

// lengths are those at which the encoding of a length changes, and their neighbors.
var lengths = []int{0, 1, 124, 125, 126, 127, 65535, 65536, 1 << 20}

func TestMessages_ReachCoderAndBackInBothRoles(t *testing.T) {
	for name, connect := range map[string]func(testing.TB) (*websocket.Conn, *end){"client": coderServer, "server": coderClient} {
		t.Run(name, func(t *testing.T) {
			ws, e := connect(t)
			for _, n := range lengths {
				sent := strings.Repeat("ä", n/2) + strings.Repeat("a", n%2)
				go e.write(wsframe.Text, sent)
				got, binary := next(t, ws)
				assert.Equal(t, sent, got)
				assert.False(t, binary)
				go func() { assert.NoError(t, ws.Write(t.Context(), websocket.MessageBinary, []byte(got))) }()
				back, op, err := e.Append([]byte("before "))
				require.NoError(t, err)
				assert.Equal(t, wsframe.Binary, op)
				assert.Equal(t, "before "+sent, string(back))
			}
		})
	}
}

func TestAppend_JoinsFragmentsAroundPings(t *testing.T) {
	ws, e := coderClient(t)
	go func() {
		_, _, _ = ws.Read(t.Context()) // the pongs
	}()
	go func() {
		w, err := ws.Writer(t.Context(), websocket.MessageText)
		assert.NoError(t, err)
		for range 10 {
			_, err := w.Write(bytes.Repeat([]byte("x"), 5000)) // more than its buffer has
			assert.NoError(t, err)
			assert.NoError(t, ws.Ping(t.Context()))
		}
		assert.NoError(t, w.Close())
	}()
	message, op, err := e.Append(nil)
	require.NoError(t, err)
	assert.Equal(t, wsframe.Text, op)
	assert.Equal(t, strings.Repeat("x", 50_000), string(message))
}

func TestClose_CarriesCodeAndReasonBothWays(t *testing.T) {
	ws, e := coderServer(t)
	received := make(chan error, 1)
	go func() {
		_, _, err := ws.Read(t.Context())
		received <- err
	}()
	_, err := e.Write(wsframe.AppendClose(nil, wsframe.Client, 4401, "no longer"))
	require.NoError(t, err)
	_, _, err = e.Append(nil) // the answer
	assert.Equal(t, &wsframe.CloseError{Code: 4401, Reason: "no longer"}, err)
	frame, ok := errors.AsType[websocket.CloseError](<-received)
	require.True(t, ok)
	assert.Equal(t, websocket.CloseError{Code: 4401, Reason: "no longer"}, frame)
}

func TestAppendClose_CutsReasonsBetweenCharacters(t *testing.T) {
	for reason, want := range map[string]string{
		strings.Repeat("a", 123):       strings.Repeat("a", 123),
		strings.Repeat("a", 124):       strings.Repeat("a", 123),
		strings.Repeat("ä", 62):        strings.Repeat("ä", 61),
		"ab" + strings.Repeat("€", 50): "ab" + strings.Repeat("€", 40),
	} {
		_, _, err := read(wsframe.AppendClose(nil, wsframe.Server, 1000, reason)).Append(nil)
		assert.Equal(t, &wsframe.CloseError{Code: 1000, Reason: want}, err)
	}
	_, _, err := read(wsframe.AppendClose(nil, wsframe.Client, wsframe.NoStatus, "unused")).Append(nil)
	assert.Equal(t, &wsframe.CloseError{Code: wsframe.NoStatus}, err)
}

func TestAppendFrame_LongControlFramePanics(t *testing.T) {
	assert.Panics(t, func() { wsframe.AppendFrame(nil, wsframe.Client, wsframe.Ping, make([]byte, 126)) })
}

func read(stream []byte) *wsframe.Reader {
	return wsframe.NewReader(iotest.OneByteReader(bytes.NewReader(stream)), 1000, func([]byte) error { return nil })
}

func TestAppend_Errors(t *testing.T) {
	big := wsframe.AppendFrame(nil, wsframe.Client, wsframe.Text, make([]byte, 1001))
	for name, test := range map[string]struct {
		stream string
		want   error // nil: one that is not exported
	}{
		"end":                             {"", io.EOF},
		"end inside a header":             {"\x81", io.ErrUnexpectedEOF},
		"end inside a length":             {"\x81\x7e\x00", io.ErrUnexpectedEOF},
		"end inside a key":                {"\x81\x81\x00", io.ErrUnexpectedEOF},
		"end inside a payload":            {"\x81\x02a", io.ErrUnexpectedEOF},
		"end before a payload":            {"\x81\x02", io.ErrUnexpectedEOF},
		"end between two fragments":       {"\x01\x01a", io.ErrUnexpectedEOF},
		"end inside a close frame":        {"\x88\x02\x00", io.ErrUnexpectedEOF},
		"too big":                         {string(big), wsframe.ErrTooBig},
		"too big together":                {"\x01\x7e\x03\xe8" + strings.Repeat("a", 1000) + "\x80\x01a", wsframe.ErrTooBig},
		"too big for an int":              {"\x81\x7f\xff\xff\xff\xff\xff\xff\xff\xff", wsframe.ErrTooBig},
		"reserved bit":                    {"\xc1\x00", nil},
		"reserved opcode":                 {"\x83\x00", nil},
		"reserved opcode of control":      {"\x8b\x00", nil},
		"fragment of no message":          {"\x80\x00", nil},
		"message inside a message":        {"\x01\x01a\x81\x01b", nil},
		"fragmented ping":                 {"\x09\x00", nil},
		"long ping":                       {"\x89\x7e\x00\x7e" + strings.Repeat("a", 126), nil},
		"close frame of one byte":         {"\x88\x01a", nil},
		"pong, then the end":              {"\x8a\x01a", io.EOF},
		"masked message, then its end":    {"\x81\x81\x01\x02\x03", io.ErrUnexpectedEOF},
		"reserved bit of a later frame":   {"\x01\x01a\xa0\x00", nil},
		"close frame inside of a message": {"\x01\x01a\x88\x00", &wsframe.CloseError{Code: wsframe.NoStatus}},
	} {
		t.Run(name, func(t *testing.T) {
			message, _, err := read([]byte(test.stream)).Append([]byte("before"))
			assert.Equal(t, "before", string(message))
			if test.want != nil {
				assert.Equal(t, test.want, err)
			} else {
				assert.ErrorContains(t, err, "not a WebSocket frame")
			}
		})
	}
}

func TestAppend_ErrorOfPingEndsIt(t *testing.T) {
	broken := errors.New("broken")
	r := wsframe.NewReader(strings.NewReader("\x89\x01a\x81\x00"), 1000, func(payload []byte) error {
		assert.Equal(t, "a", string(payload))
		return broken
	})
	_, _, err := r.Append(nil)
	assert.Equal(t, broken, err)
}

func TestMessages_DoNotAllocate(t *testing.T) {
	payload, frame, message := make([]byte, 70_000), make([]byte, 0, 71_000), make([]byte, 0, 70_000)
	stream := &bytes.Reader{}
	r := wsframe.NewReader(stream, 70_000, nil)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		frame = wsframe.AppendFrame(frame[:0], wsframe.Client, wsframe.Text, payload)
		stream.Reset(frame)
		var err error
		message, _, err = r.Append(message[:0])
		if err != nil || len(message) != len(payload) {
			t.Fatal(err)
		}
	}))
}

// A router's end of a connection.
type handler struct{ resumed chan struct{} }

func (h handler) Serve() (paused bool) {
	h.resumed <- struct{}{}
	return false
}

func (handler) OnClosed()                  {}
func (handler) OnOverflow(wsconn.Overflow) {}
func (handler) OnBackpressure(int, int)    {}

// wsconnServer returns the client's end of a connection to package wsconn, which echoes messages.
func wsconnServer(t testing.TB) *end {
	conn, server := net.Pipe()
	response := make(chan error, 1)
	go func() {
		_, err := http.ReadResponse(bufio.NewReader(conn), nil) // no frame follows it yet
		response <- err
	}()
	h := handler{make(chan struct{}, 1)}
	c, err := wsconn.Accept(hijacker{httptest.NewRecorder(), server}, wsHandshake(), "", &wsconn.Options{
		MaxMessageBytes: 1 << 20, MessageTimeout: time.Minute, WriteTimeout: time.Minute, SendTimeout: time.Minute, CloseTimeout: time.Minute,
		PingInterval: time.Minute, PongTimeout: time.Minute, BufferBytes: 1 << 12, QueueBytes: 1 << 22, QueueMessages: 1000, Engine: wsconn.NewEngine(),
	}, h)
	require.NoError(t, err)
	require.NoError(t, <-response)
	client := newEnd(t, conn, wsframe.Client)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer c.Release()
		for {
			for c.Park() == wsconn.Parked {
				<-h.resumed
			}
			m, err := c.Read(func([]byte) int64 { return 1 << 30 })
			if err != nil {
				return
			}
			if m.Buffer == nil {
				continue
			}
			f := wsconn.NewFrame()
			_, _ = f.Write(m.Bytes)
			if m.Binary {
				f.SealBinary()
			} else {
				f.Seal()
			}
			_ = c.Queue(f)
			c.Wake()
			m.Release()
		}
	}()
	t.Cleanup(func() {
		_ = client.Close()
		<-ended
	})
	return client
}

func TestMessages_ReachWSConnAndBack(t *testing.T) {
	client := wsconnServer(t)
	for _, n := range lengths {
		sent := strings.Repeat("a", n)
		go client.write(wsframe.Text, sent)
		back, op, err := client.Append(nil)
		require.NoError(t, err)
		assert.Equal(t, wsframe.Text, op)
		assert.Equal(t, sent, string(back))
	}
	go func() { _, _ = client.Write(wsframe.AppendClose(nil, wsframe.Client, 1001, "away")) }()
	_, _, err := client.Append(nil)
	assert.Equal(t, &wsframe.CloseError{Code: 1001, Reason: "away"}, err)
}

// TestAcceptKey_OfTheStandard is the example of RFC 6455, section 1.3.
func TestAcceptKey_OfTheStandard(t *testing.T) {
	assert.Equal(t, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", wsframe.AcceptKey("dGhlIHNhbXBsZSBub25jZQ=="))
}

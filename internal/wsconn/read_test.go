package wsconn_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/netpoll"

	"github.com/penstock-go/penstock/internal/wsconn"
)

func TestConn_ReadsAndWritesFramesOfEverySize(t *testing.T) {
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

func TestConn_ReadsFramesSentWithTheHandshake(t *testing.T) {
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

func TestConn_InvalidFramesCloseTheConnection(t *testing.T) {
	t.Parallel()
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
		"a message above MaxMessageBytes":   {[][]byte{frame(fin|text, strings.Repeat("x", 1<<20+1))}, 1009},
		"fragments above MaxMessageBytes":   {[][]byte{frame(text, strings.Repeat("x", 1<<20)), frame(fin|continuation, "x")}, 1009},
		"a length of 2 bytes for 125":       {[][]byte{{fin | text, 0x80 | 126, 0, 125, 0, 0, 0, 0}, []byte(strings.Repeat("x", 125))}, 1002},
		"a length of 8 bytes for 65535":     {[][]byte{{fin | text, 0x80 | 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0}}, 1002},
		"a length of 2 bytes for 1, later":  {[][]byte{frame(text, "x"), {fin | continuation, 0x80 | 126, 0, 1, 0, 0, 0, 0, 'x'}}, 1002},
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

// TestConn_ReadsNothingAfterAnInvalidFrame sends the invalid frame with the end of a message.
func TestConn_ReadsNothingAfterAnInvalidFrame(t *testing.T) {
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

func TestConn_AcceptsControlFramesBetweenFragments(t *testing.T) {
	addr, conns := listen(t, options())
	c := dialRaw(t, addr, nil)
	go func() { _ = echo(<-conns) }()
	c.send(frame(binaryData, "a"), frame(fin|ping, "are you alive?"), frame(continuation, ""), frame(fin|pong, ""), frame(fin|continuation, "b"))
	first, payload := c.next()
	assert.Equal(t, byte(fin|pong), first)
	assert.Equal(t, "are you alive?", payload)
	first, payload = c.next()
	assert.Equal(t, byte(fin|text), first)
	assert.Equal(t, "ab", payload)
}

func TestConn_ParksAfterControlFrames(t *testing.T) {
	addr, conns := listen(t, options())
	c := dialRaw(t, addr, nil)
	server := <-conns
	resumed := resumed(server)
	park := func() bool { return server.Park() == wsconn.Parked }
	if !park() {
		t.Skip("connections are not parked on this system")
	}
	for _, control := range []string{"", "are you alive?", strings.Repeat("x", 125)} {
		all := append(frame(fin|pong, control), frame(fin|ping, control)...)
		all = append(all, frame(fin|pong, "")...)
		c.send(all)
		<-resumed
		require.True(t, park(), "there are only control frames")
		first, payload := c.next()
		assert.Equal(t, byte(fin|pong), first)
		assert.Equal(t, control, payload)
	}
	c.send(frame(fin|ping, "1"), frame(fin|text, "a message"))
	<-resumed
	for park() {
		<-resumed
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
		<-resumed
	}
	ended := make(chan error)
	go func() { ended <- echo(server) }()
	c.closed(1008)
	require.ErrorContains(t, <-ended, "too many control frames")
}

func TestConn_ReadKeepsTheBeginningOfLongMessages(t *testing.T) {
	addr, conns := listen(t, options())
	c := dialRaw(t, addr, nil)
	server := <-conns
	c.send(frame(text, strings.Repeat("ab", 3000)), frame(fin|continuation, strings.Repeat("ab", 2000)), frame(fin|text, "next"))
	calls := 0
	msg, err := server.Read(func(prefix []byte) int64 {
		calls++
		assert.GreaterOrEqual(t, len(prefix), 512)
		return 1000
	})
	require.NoError(t, err)
	assert.True(t, msg.Truncated())
	assert.EqualValues(t, 10_000, msg.Size)
	assert.GreaterOrEqual(t, len(msg.Bytes), 1000)
	assert.Less(t, len(msg.Bytes), 10_000)
	assert.Positive(t, calls)
	msg.Release()
	msg, err = server.Read(unlimited)
	require.NoError(t, err)
	assert.False(t, msg.Truncated())
	assert.Equal(t, "next", string(msg.Bytes))
	msg.Release()
	server.Release()
}

package wsconn_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/wsconn"
)

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

package wsconn_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/wsconn"
)

func TestConn_ParksAfterControlFrames(t *testing.T) {
	addr, conns := listen(t, options())
	c := dialRaw(t, addr, "")
	server := <-conns
	resumed := wsconn.ResumedOf(server)
	park := func() bool { return server.Park() == wsconn.Parked }
	if !park() {
		t.Skip("connections are not parked on this system")
	}
	for _, control := range []string{"", "are you alive?", strings.Repeat("x", 125)} {
		all := append(clientFrame(fin|pong, control), clientFrame(fin|ping, control)...)
		all = append(all, clientFrame(fin|pong, "")...)
		c.send(all)
		<-resumed
		require.True(t, park(), "there are only control frames")
		first, payload := c.next()
		assert.Equal(t, byte(fin|pong), first)
		assert.Equal(t, control, payload)
	}
	c.send(clientFrame(fin|ping, "1"), clientFrame(fin|text, "a message"))
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
		c.send(clientFrame(fin|pong, ""))
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
	long := strings.Repeat("0123456789", 5000)
	for offer, frames := range map[string][]byte{
		"":                   slices.Concat(clientFrame(text, long[:6000]), clientFrame(fin|continuation, long[6000:])),
		"permessage-deflate": clientFrame(fin|rsv1|text, deflated(long)),
	} {
		addr, conns := listen(t, deflating())
		client := dialRaw(t, addr, offer)
		c := <-conns
		client.send(frames, clientFrame(fin|text, "next"))
		calls := 0
		msg, err := c.Read(func(prefix []byte) int64 {
			calls++
			assert.GreaterOrEqual(t, len(prefix), 512)
			return 1000
		})
		require.NoError(t, err)
		assert.True(t, msg.Truncated())
		assert.EqualValues(t, len(long), msg.Size)
		assert.GreaterOrEqual(t, len(msg.Bytes), 1000)
		assert.Less(t, len(msg.Bytes), len(long))
		assert.True(t, strings.HasPrefix(long, string(msg.Bytes)))
		assert.Positive(t, calls)
		msg.Release()
		msg, err = c.Read(unlimited)
		require.NoError(t, err)
		assert.False(t, msg.Truncated())
		assert.Equal(t, "next", string(msg.Bytes))
		msg.Release()
		c.Release()
	}
}

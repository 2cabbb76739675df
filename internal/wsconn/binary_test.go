package wsconn_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/wsconn"
)

// queueBinary queues a binary message that may be dropped.
func queueBinary(c *wsconn.Conn, message string) error {
	f := wsconn.NewFrame()
	f.WriteString(message)
	f.Droppable("")
	f.SealBinary()
	return c.Queue(f)
}

func TestDeflate_KeepsTheOpcode(t *testing.T) {
	addr, conns := listen(t, deflating())
	client := dialRaw(t, addr, "permessage-deflate")
	c := <-conns
	defer c.Release()
	require.NoError(t, queueBinary(c, strings.Repeat("x", 1000)))
	require.NoError(t, send(c, strings.Repeat("x", 1000)))
	first, _ := client.next()
	assert.EqualValues(t, fin|rsv1|binaryData, first)
	first, _ = client.next()
	assert.EqualValues(t, fin|rsv1|text, first)
}

// TestConn_BinaryMessagesCountInTheQueue checks that only control frames are exempt from the limits.
func TestConn_BinaryMessagesCountInTheQueue(t *testing.T) {
	_, c, _ := queue(t, wsconn.DropNewest, 3, 1<<20)
	wsconn.BlockWriter(c)
	for range 3 {
		require.NoError(t, queueBinary(c, "\xff\xff"))
	}
	messages, bytes := c.Pending()
	assert.Equal(t, 3, messages)
	assert.Equal(t, 3*(2+2), bytes)
	assert.ErrorIs(t, queueBinary(c, "\xff"), wsconn.ErrDropped)
}

func TestConn_LimitSeesTheKindOfMessage(t *testing.T) {
	addr, conns := listen(t, options())
	client := dialRaw(t, addr, "")
	c := <-conns
	defer c.Release()
	for _, kind := range []byte{binaryData, text, binaryData} {
		client.send(clientFrame(kind, strings.Repeat("x", 3000)), clientFrame(fin|continuation, strings.Repeat("x", 3000)))
		var seen []bool
		msg, err := c.Read(func([]byte) int64 { seen = append(seen, c.ReadingBinary()); return 1 << 20 })
		require.NoError(t, err)
		msg.Release()
		require.NotEmpty(t, seen)
		for _, isBinary := range seen {
			assert.Equal(t, kind == binaryData, isBinary)
		}
	}
}

package router

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
)

// TestConn_FitsIntoItsSizeClass fails when a new field makes every connection larger by a whole size
// class of the allocator. What few connections need belongs behind a pointer.
func TestConn_FitsIntoItsSizeClass(t *testing.T) {
	const sizeClass = 320 // bytes; the next one is 352
	assert.LessOrEqual(t, unsafe.Sizeof(Conn{}), uintptr(sizeClass))
}

// TestContext_LeavesRoomForMessage fails when a new field makes most messages larger by a whole
// size class: a Context and a message of 24 bytes, such as a string and a number, share an
// allocation.
func TestContext_LeavesRoomForMessage(t *testing.T) {
	const sizeClass, message = 192, 24 // bytes
	assert.LessOrEqual(t, unsafe.Sizeof(Context{}), uintptr(sizeClass-message))
}

// TestAdmitCall_RefusesStreamThatDrainMayNotHaveSeen begins to drain between the two checks of
// draining. A call is admitted, because drain waits for it.
func TestAdmitCall_RefusesStreamThatDrainMayNotHaveSeen(t *testing.T) {
	for _, stream := range []bool{true, false} {
		c := &Conn{router: New(nil)}
		route := &Route{rpc: true, stream: stream}
		c.draining.Store(drainingForRestart)
		c.endStreams()
		refused := c.admitCall(&incoming{route: route, call: &Context{conn: c, route: route}}, false)
		if !stream {
			assert.Nil(t, refused)
			continue
		}
		require.NotNil(t, refused)
		assert.Equal(t, errors.Unavailable, refused.Payload.Code)
		running, _ := c.calls.Start(1)
		assert.Equal(t, int64(1), running, "the refused stream is not counted")
	}
}

// Greet lets the tests treat a client as one that has sent $ws:hello.
func (c *Conn) Greet() { c.member.Greet() }

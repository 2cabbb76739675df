package router

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
)

// TestAdmitCall_RejectsStreamThatDrainMayNotHaveSeen begins to drain between the two checks of
// draining. A call is admitted, because drain waits for it.
func TestAdmitCall_RejectsStreamThatDrainMayNotHaveSeen(t *testing.T) {
	for _, stream := range []bool{true, false} {
		c := &Conn{router: New(nil)}
		route := &Route{rpc: true, stream: stream}
		c.draining.Store(drainingForRestart)
		c.endStreams()
		failed := c.admitCall(&incoming{route: route, call: &Context{conn: c, route: route}}, false)
		if !stream {
			assert.Nil(t, failed)
			continue
		}
		require.NotNil(t, failed)
		assert.Equal(t, errors.Unavailable, failed.Payload.Code)
		running, _ := c.calls.Start(1)
		assert.Equal(t, int64(1), running, "the rejected stream is not counted")
	}
}

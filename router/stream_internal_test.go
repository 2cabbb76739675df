package router

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
)

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

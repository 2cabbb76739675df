//go:build !js

package client_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/router"
)

// An application may close a connection with 1012 while a handler runs. Nothing in the close frame says
// that the call was not handled.
func TestCall_IsNotRepeatedAfterTheApplicationCloses1012(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"", `{"code":"UNAVAILABLE","retryAfterMs":1,"message":"server is restarting"}`} {
		s := startServer(t, nil)
		var executed atomic.Int64
		router.RPC(s.Router, func(ctx *router.Context, m add) (sum, error) {
			if m.A == 0 {
				return sum{m.B}, nil
			}
			executed.Add(1)
			ctx.Conn().Close(router.StatusServiceRestart, reason)
			return sum{m.A + m.B}, nil
		})
		s.start()
		c, ctx := s.connect(nil), testContext(t)
		_, err := client.Call[sum](ctx, c, add{1, 1})
		require.ErrorIs(t, err, client.ErrOutcomeUnknown)
		if reason == "" {
			continue // the client waits for up to 10 s before it connects again
		}
		_, err = client.Call[sum](ctx, c, add{0, 1}) // behind a repeated call
		require.NoError(t, err)
		assert.EqualValues(t, 1, executed.Load())
	}
}

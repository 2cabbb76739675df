//go:build !js

package client_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

func TestPacing_EndedCallLeavesItsRejection(t *testing.T) {
	t.Parallel()
	simulate(t, true, func() *router.Router {
		r := quietRouter(&router.Options{})
		rejects := &atomic.Bool{}
		rejects.Store(true)
		r.UseIngress(rejectFor("ADD", time.Minute, rejects))
		router.RPC(r, func(_ *router.Context, m add) (sum, error) { return sum{m.A + m.B}, nil })
		return r
	}, func(s *simulated) {
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		_, err := client.Call[sum](ctx, s.Client, add{})
		require.Equal(s, errors.DeadlineExceeded, errors.CodeOf(err))
		assert.ErrorContains(s, errors.Unwrap(err), "rate limit exceeded", "the cause says why it has waited")
		assert.ErrorIs(s, err, context.DeadlineExceeded)
		wait := time.Until(s.NextAllowedAt("ADD"))
		assert.Greater(s, wait, 50*time.Second, "the rejection is known when its message has ended")
	})
}

package router_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// identityExpired is how a connection ends with its identity.
var identityExpired = router.CloseError{Code: 4401, Reason: `{"code":"UNAUTHENTICATED","message":"the identity has expired"}`}

// TestExpiry_AfterClockStep sets the wall clock forward and backward while the connection is open.
func TestExpiry_AfterClockStep(t *testing.T) {
	for name, tt := range map[string]struct{ forward, after time.Duration }{
		"forward past the expiry":   {2 * time.Hour, time.Minute},
		"forward before the expiry": {30 * time.Minute, 30 * time.Minute},
		"backward":                  {-time.Hour, 2 * time.Hour},
	} {
		runSynctest(t, name, func(t *testing.T) {
			start := time.Now()
			r := newLoginRouter(router.Options{})
			conn := routertest.Dial(t, r, routertest.Token("ann 1h"))
			synctest.Wait()
			c := collect(r)[0]
			router.SetClockForward(c, tt.forward)
			time.Sleep(tt.after - time.Millisecond)
			require.NoError(t, c.Context().Err())
			assert.Equal(t, identityExpired, conn.Closed())
			assert.Equal(t, tt.after, time.Since(start))
		})
	}
}

// TestExpiry_MessagesAfterItAreDropped expires the identity of a client that does not answer the
// close frame.
func TestExpiry_MessagesAfterItAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ingress recorder[string]
		r := newLoginRouter(router.Options{Timeouts: router.Timeouts{Pong: time.Minute}})
		r.UseIngress(func(_ context.Context, in router.IngressContext) error { ingress.add(in.Type); return nil })
		conn := routertest.Dial(t, r, routertest.Token("ann 1s"))
		synctest.Wait()
		conn.Freeze() // the close frame does not arrive
		c := collect(r)[0]
		time.Sleep(2 * time.Second)
		conn.SendText(`{"type":"WHO_AM_I"}`)
		synctest.Wait()
		assert.Empty(t, ingress.all())
		require.NoError(t, c.Context().Err(), "the client may still answer")
		err := c.SetIdentity(router.Identity{UserID: "ann"})
		assert.Equal(t, errors.Unavailable, errors.CodeOf(err), "it is too late for a refresh")
		time.Sleep(time.Minute)
		require.Error(t, c.Context().Err())
	})
}

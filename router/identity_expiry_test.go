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

func TestExpiry_FollowsSetIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := newLoginRouter(router.Options{})
		conn := routertest.Dial(t, r, routertest.Token("ann 10m"))
		synctest.Wait()
		c := collect(r)[0]
		router.Greet(c)
		expireIn := func(d time.Duration) {
			id := router.Identity{UserID: "ann"}
			if d > 0 {
				id.ExpiresAt = time.Now().Add(d)
			}
			require.NoError(t, c.SetIdentity(id))
		}
		time.Sleep(9*time.Minute - time.Second)
		conn.Next() // the warning at 9 minutes
		old := router.IdentityTimer(c)
		expireIn(5 * time.Minute)
		assert.False(t, old.Stop(), "the timer of the old identity has been stopped")
		time.Sleep(4*time.Minute - time.Second)
		conn.Next() // again at 13 minutes
		assert.Equal(t, 13*time.Minute, time.Since(start))
		expireIn(0)
		time.Sleep(24 * time.Hour)
		assert.Zero(t, conn.Pending())
		expireIn(time.Second)
		assert.JSONEq(t, `{"expiresInMs":500}`, string(conn.Next().Payload), "after half of a short time")
		assert.Equal(t, identityExpired, conn.Closed())
		assert.Equal(t, 24*time.Hour+13*time.Minute+time.Second, time.Since(start))
	})
}

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

// Wait is a call whose handler ends a minute after its context.
type Wait struct{}

func (Wait) MessageType() string { return "WAIT" }

func TestExpiry_CancelsCallsInFlightOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var canceled, returned recorder[error]
		r := newLoginRouter(router.Options{Timeouts: router.Timeouts{Call: time.Hour}})
		router.RPC(r, func(ctx *router.Context, _ Wait) (YouAre, error) {
			context.AfterFunc(ctx, func() { canceled.add(ctx.Err()) })
			<-ctx.Done()
			time.Sleep(time.Minute) // it is not interrupted
			returned.add(ctx.Err())
			return YouAre{}, nil
		})
		conn := routertest.Dial(t, r, routertest.Token("ann 10m"))
		conn.Send(Wait{})
		time.Sleep(10*time.Minute - time.Second)
		assert.Empty(t, canceled.all())
		assert.Equal(t, identityExpired, conn.Closed())
		synctest.Wait()
		assert.Equal(t, []error{context.Canceled}, canceled.all())
		assert.Empty(t, returned.all())
		time.Sleep(time.Hour)
		assert.Equal(t, []error{context.Canceled}, canceled.all())
		assert.Equal(t, []error{context.Canceled}, returned.all())
		assert.Zero(t, conn.Pending())
	})
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

// TestExpiry_RacesWithSetIdentity changes the identity at the moment when it expires. Either the
// change succeeds and the connection stays open, or it fails and the connection is closed.
func TestExpiry_RacesWithSetIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outcomes := map[bool]int{}
		for range 200 {
			r := newLoginRouter(router.Options{})
			conn := routertest.Dial(t, r, routertest.Token("ann 1s"))
			synctest.Wait()
			c := collect(r)[0]
			changed := make(chan error)
			go func() {
				time.Sleep(time.Until(c.Identity().ExpiresAt))
				changed <- c.SetIdentity(router.Identity{TenantID: "acme", UserID: "ann"})
			}()
			err := <-changed
			time.Sleep(time.Second)
			outcomes[err == nil]++
			if err == nil {
				assert.Equal(t, YouAre{"ann", "ann"}, routertest.Call[YouAre](conn, WhoAmI{}))
				conn.Close()
				continue
			}
			assert.Equal(t, errors.Unavailable, errors.CodeOf(err))
			assert.Equal(t, identityExpired, conn.Closed())
			assert.False(t, c.Identity().ExpiresAt.IsZero(), "unchanged")
		}
		t.Logf("changed: %d, expired: %d", outcomes[true], outcomes[false])
	})
}

// TestExpiry_TimerEndsWithConnection checks that no timer outlives its connection.
func TestExpiry_TimerEndsWithConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			name   string
			onOpen func(context.Context, *router.Conn) error
		}{
			{"closed by the client", nil},
			{"rejected by OnOpen", func(context.Context, *router.Conn) error { return &router.CloseError{Code: 4000} }},
		} {
			var c *router.Conn
			r := newLoginRouter(router.Options{OnOpen: func(ctx context.Context, opened *router.Conn) error {
				c = opened
				if tt.onOpen != nil {
					return tt.onOpen(ctx, opened)
				}
				return nil
			}})
			conn := routertest.Dial(t, r, routertest.Token("ann 1h"))
			synctest.Wait()
			conn.Close()
			synctest.Wait()
			require.Error(t, c.Context().Err())
			assert.False(t, router.StopExpiryTimer(c), tt.name)
			router.Greet(c) // a late check
			assert.False(t, router.StopExpiryTimer(c), tt.name)
		}
	})
}

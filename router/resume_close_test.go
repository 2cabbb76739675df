package router_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func TestResume_OldConnectionIsSuperseded(t *testing.T) {
	for name, nodes := range map[string]int{"on its node": 1, "on another node": 2} {
		runSynctest(t, name, func(t *testing.T) {
			b := memory.NewBroker()
			routers := []*router.Router{newSessionRouter(b, nil), newSessionRouter(b, nil)}
			old := dialSession(t, routers[0], "ann").hello()
			dialSession(t, routers[nodes-1], "ann").resume(old.token, "")
			closed := old.Closed()
			assert.Equal(t, router.StatusSuperseded, closed.Code)
			assert.Equal(t, `{"code":"ABORTED","message":"superseded by another connection"}`, closed.Reason)
			time.Sleep(10 * time.Minute)
			assert.Len(t, collect(routers[nodes-1]), 1)
		})
	}
}

// TestResume_OldConnectionAnswersItsCalls resumes the session of a connection that has a call, a
// stream and an event without an outcome, and a subscription.
func TestResume_OldConnectionAnswersItsCalls(t *testing.T) {
	for name, nodes := range map[string]int{"on its node": 1, "on another node": 2} {
		runSynctest(t, name, func(t *testing.T) {
			b := memory.NewBroker()
			routers := []*router.Router{newSessionRouter(b, nil), newSessionRouter(b, nil)}
			release := make(chan struct{})
			router.RPC(routers[0], func(_ *router.Context, m Echo) (Echoed, error) {
				<-release
				return Echoed(m), nil
			})
			old := dialSession(t, routers[0], "ann").hello()
			require.NoError(t, old.conn.Subscribe("plain/room"))
			require.Equal(t, "$ws:subscribed", old.Next().Type)
			old.SendText(`{"type":"ECHO","meta":{"correlationId":"e"},"payload":{}}`)
			synctest.Wait()
			c := dialSession(t, routers[nodes-1], "ann")
			c.resume(old.token, "").topic(t, "plain/room")
			require.NoError(t, routers[nodes-1].Publish("plain/room", Blob{}))
			synctest.Wait()
			assert.Equal(t, "BLOB", c.Next().Type)
			old.SendText(`{"type":"ECHO","meta":{"correlationId":"late"},"payload":{}}`)
			late := old.Next()
			assert.Equal(t, "late", late.Meta.CorrelationID, "the publication has reached the new connection alone")
			assert.Contains(t, late.Text, `"ABORTED"`)
			close(release)
			assert.Equal(t, "e", old.Next().Meta.CorrelationID)
			assert.Equal(t, router.StatusSuperseded, old.Closed().Code)
			assert.Zero(t, c.Pending())
		})
	}
}

// TestResume_OldConnectionSubscribesNoMore subscribes a connection while another one resumes its session,
// which would not have the topic.
func TestResume_OldConnectionSubscribesNoMore(t *testing.T) {
	fromNow := func(ctx *router.Context) error { return ctx.Subscribe("plain/room") }
	since := func(ctx *router.Context) error {
		_, err := subscribeSince(ctx, "private/room", broker.Position{})
		return err
	}
	state := func(ctx *router.Context) error {
		_, err := subscribeState(ctx, "private/room")
		return err
	}
	for name, tt := range map[string]struct {
		subscribe func(*router.Context) error
		earlier   bool // it begins before the session is resumed, and waits for the store
	}{
		"from now on":         {subscribe: fromNow},
		"since a position":    {subscribe: since},
		"with the state":      {subscribe: state},
		"reads already":       {subscribe: since, earlier: true},
		"reads state already": {subscribe: state, earlier: true},
	} {
		runSynctest(t, name, func(t *testing.T) {
			b := unreliable()
			r := newSessionRouter(b, nil)
			authorize, subscribe := make(chan struct{}), make(chan struct{})
			router.Topic(r, "slow/{name}", &router.TopicOptions{Authorize: func(*router.Context, router.TopicMatch) error {
				<-authorize
				return nil
			}})
			router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
				<-subscribe
				return Echoed(m), tt.subscribe(ctx)
			})
			b.slow.Store(tt.earlier)
			old := dialSession(t, r, "ann").hello()
			old.SendText(`{"type":"ECHO","meta":{"correlationId":"e"},"payload":{}}`)
			if tt.earlier {
				close(subscribe)
			}
			synctest.Wait()
			c := dialSession(t, r, "ann")
			c.SendText(fmt.Sprintf(`{"type":"$ws:resume","meta":{"correlationId":"r"},"payload":{"token":%q,"topics":[{"topic":"slow/a"}]}}`, old.token))
			synctest.Wait()
			if !tt.earlier {
				close(subscribe)
			}
			b.slow.Store(false)
			assert.Equal(t, errors.Aborted, routertest.ReceiveError(old.Conn).Code)
			close(authorize)
			assert.Equal(t, "$ws:resumed", c.Next().Type)
			assert.Equal(t, router.StatusSuperseded, old.Closed().Code)
		})
	}
}

// TestResume_OldConnectionIsClosedAfterABound keeps a call, and a stream, without an answer.
func TestResume_OldConnectionIsClosedAfterABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, nil)
		router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
			<-ctx.Done()
			return Echoed(m), ctx.Err()
		})
		old := dialSession(t, r, "ann").hello()
		old.SendText(`{"type":"ECHO","meta":{"correlationId":"e"},"payload":{}}`)
		synctest.Wait()
		dialSession(t, r, "ann").resume(old.token, "")
		begin := time.Now()
		for range 2 { // a handler that subscribes the connection again changes nothing
			require.Error(t, old.conn.Subscribe("plain/room"))
		}
		assert.Equal(t, router.StatusSuperseded, old.Closed().Code)
		assert.Equal(t, 5*time.Second, time.Since(begin))
	})
}

func TestResume_CloseCodes(t *testing.T) {
	client := func(code router.StatusCode) func(*sessionClient) {
		return func(c *sessionClient) { c.CloseWith(code, "") }
	}
	server := func(code router.StatusCode) func(*sessionClient) {
		return func(c *sessionClient) { c.conn.Close(code, "") }
	}
	for name, test := range map[string]struct {
		end  func(*sessionClient)
		want bool // the session survives
	}{
		"1000 of the client":        {client(1000), false},
		"1001 of the client":        {client(1001), true},
		"1006":                      {func(c *sessionClient) { c.Abort() }, true},
		"1011 of the client":        {client(1011), true},
		"4000 of the client":        {client(4000), false},
		"1000 of the application":   {server(1000), false},
		"1001 of the application":   {server(1001), true},
		"1002":                      {server(1002), false},
		"1003":                      {server(1003), false},
		"1007":                      {func(c *sessionClient) { c.SendText("\xff") }, false},
		"1008":                      {server(1008), false},
		"1009":                      {server(1009), true},
		"1011":                      {server(1011), true},
		"1012":                      {server(1012), true},
		"1013":                      {server(1013), true},
		"4000 of the application":   {server(4000), false},
		"4401":                      {server(router.StatusUnauthenticated), false},
		"4403":                      {server(router.StatusPermissionDenied), false},
		"4999":                      {server(4999), false},
		"4403 after the connection": {func(c *sessionClient) { c.Abort(); synctest.Wait(); c.conn.Close(4403, "") }, false},
	} {
		runSynctest(t, name, func(t *testing.T) {
			b := memory.NewBroker()
			one, two := newSessionRouter(b, nil), newSessionRouter(b, nil)
			old := dialSession(t, one, "ann").hello()
			test.end(old)
			synctest.Wait()
			require.Empty(t, collect(one))
			c := dialSession(t, two, "ann")
			if test.want {
				c.resume(old.token, "")
			} else {
				assert.Equal(t, errors.NotFound, c.resumeError(old.token))
			}
		})
	}
}

func TestResume_DisconnectUserEndsSessionsOnAllNodes(t *testing.T) {
	for name, code := range map[string]router.StatusCode{"4403": 4403, "1012": router.StatusServiceRestart} {
		runSynctest(t, name, func(t *testing.T) {
			b := memory.NewBroker()
			one, two := newSessionRouter(b, nil), newSessionRouter(b, nil)
			old := dialSession(t, one, "ann").hello()
			other := dialSession(t, one, "bob").hello()
			_, err := two.DisconnectUser("t", "ann", code, "banned")
			require.NoError(t, err)
			assert.Equal(t, code, old.Closed().Code)
			synctest.Wait()
			assert.Equal(t, errors.NotFound, dialSession(t, two, "ann").resumeError(old.token))
			other.Abort()
			dialSession(t, two, "bob").resume(other.token, "")
		})
	}
}

func TestResume_ShutdownMovesSessionsToOtherNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two, cut := newCutRouters()
		router.On(one, func(ctx *router.Context, _ Nothing) error {
			time.Sleep(time.Second)
			return ctx.Subscribe("plain/last")
		})
		old := dialSession(t, one, "ann").hello()
		old.Send(Nothing{}) // the connection is closed after its handler
		synctest.Wait()
		cut.store.Store(storeSlow) // Shutdown waits for it
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, one.Shutdown(ctx))
		assert.Equal(t, router.StatusServiceRestart, old.Closed().Code)
		dialSession(t, two, "ann").resume(old.token, "").topic(t, "plain/last")
	})
}

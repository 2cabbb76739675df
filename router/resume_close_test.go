package router_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

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

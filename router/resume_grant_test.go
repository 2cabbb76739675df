package router_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/router"
)

// Admit asks a handler for a subscription.
type Admit struct{}

func (Admit) MessageType() string { return "ADMIT" }

// TestResume_GivesNoMoreThanAHandlerHasGranted has a topic to which only handlers subscribe. Three
// messages precede the subscription, one follows it, and one is missed.
func TestResume_GivesNoMoreThanAHandlerHasGranted(t *testing.T) {
	const topic = "secret/a"
	subscribe := func(ctx *router.Context, _ broker.Position) error { return ctx.Conn().Subscribe(topic) }
	all := []int{1, 2, 3, 4, 5}
	for name, tt := range map[string]struct {
		admit      func(*router.Context, broker.Position) error
		beforehand bool // before the client has a session
		request    string
		want       []int
	}{
		"Subscribe":                        {subscribe, false, `"epoch":%q,"offset":0`, all[3:]},
		"Subscribe before the session":     {subscribe, true, `"epoch":%q,"offset":0`, all[3:]},
		"Subscribe, own position":          {subscribe, false, `"epoch":%q,"offset":4`, all[4:]},
		"Subscribe, state":                 {subscribe, false, `"state":true`, nil},
		"Subscribe, position or state":     {subscribe, false, `"epoch":%q,"offset":0,"state":true`, all[3:]},
		"Subscribe, wrong epoch and state": {subscribe, false, `"epoch":"no%s","offset":0,"state":true`, nil},
		"Join":                             {func(ctx *router.Context, _ broker.Position) error { return ctx.Subscribe(topic, router.Present("Ann")) }, false, `"epoch":%q,"offset":0`, all[3:]},
		"Since now": {func(ctx *router.Context, _ broker.Position) error {
			_, err := subscribeSince(ctx, topic, broker.Position{})
			return err
		}, false, `"epoch":%q,"offset":0`, all[3:]},
		"Since 1, then now": {func(ctx *router.Context, at broker.Position) error {
			_, err := subscribeSince(ctx, topic, broker.Position{Epoch: at.Epoch, Offset: 1})
			if err == nil {
				err = subscribe(ctx, at)
			}
			return err
		}, false, `"epoch":%q,"offset":0`, all[1:]},
		"CurrentState": {func(ctx *router.Context, _ broker.Position) error {
			_, err := subscribeState(ctx, topic)
			return err
		}, false, `"epoch":%q,"offset":0`, all[3:]},
		"CurrentState, state": {func(ctx *router.Context, _ broker.Position) error {
			_, err := subscribeState(ctx, topic)
			return err
		}, false, `"state":true`, all[4:]},
	} {
		runSynctest(t, name, func(t *testing.T) {
			b := memory.NewBroker()
			var at broker.Position // of message 3
			newRouter := func() *router.Router {
				r := newSessionRouter(b, nil)
				router.Topic(r, "secret/{name}", &router.TopicOptions{History: router.History{Messages: 100}, Presence: true})
				router.On(r, func(ctx *router.Context, _ Admit) error { return tt.admit(ctx, at) })
				return r
			}
			one, two := newRouter(), newRouter()
			require.NoError(t, dialSession(t, one, "eve").conn.Subscribe(topic, router.Present("Eve")))
			publish := func(n int) (at broker.Position) {
				at, err := publishStored(t.Context(), one, topic, Quote{Symbol: "k", N: n})
				require.NoError(t, err)
				return at
			}
			publish(1)
			publish(2)
			at = publish(3)
			old := dialSession(t, one, "ann")
			if !tt.beforehand {
				old.hello()
			}
			old.Send(Admit{})
			synctest.Wait()
			if tt.beforehand {
				old.hello()
			}
			synctest.Wait()
			publish(4)
			synctest.Wait()
			old.Abort()
			synctest.Wait()
			publish(5)

			request := tt.request
			if request != `"state":true` {
				request = fmt.Sprintf(request, at.Epoch)
			}
			c := dialSession(t, two, "ann")
			frame := c.call("$ws:resume", fmt.Sprintf(`{"token":%q,"topics":[{"topic":%q,"presence":true,%s}]}`, old.token, topic, request))
			assert.NotContains(t, frame.Text, "members")
			assert.Contains(t, frame.Text, `"recovered"`)
			synctest.Wait()
			var got []int
			for c.Pending() > 0 {
				frame := c.Next()
				require.Equal(t, Quote{}.MessageType(), frame.Type, frame.Text)
				var quote Quote
				require.NoError(t, json.Unmarshal(frame.Payload, &quote))
				got = append(got, quote.N)
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

package rawclient_test

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/simtest/rawclient"
	"github.com/penstock-go/penstock/router"
)

type (
	echo  struct{ Text string }
	price struct{ Key, Value string }
	count struct{ Items int }
	enter struct{ Topic string }
	leave struct{ Topic string }
	ask   struct{}
	asked struct{ Text string }
	slow  struct{ Ms int }
	fails struct{}
)

func (echo) MessageType() string      { return "ECHO" }
func (price) MessageType() string     { return "PRICE" }
func (p price) ConflationKey() string { return p.Key }
func (count) MessageType() string     { return "COUNT" }
func (enter) MessageType() string     { return "ENTER" }
func (leave) MessageType() string     { return "LEAVE" }
func (ask) MessageType() string       { return "ASK" }
func (asked) MessageType() string     { return "ASKED" }
func (slow) MessageType() string      { return "SLOW" }
func (fails) MessageType() string     { return "FAILS" }

func handlers(r *router.Router) {
	router.RPC(r, func(ctx *router.Context, m echo) (asked, error) {
		_ = ctx.Progress(m)
		return asked(m), nil
	})
	router.Stream(r, func(_ *router.Context, m count) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for i := range m.Items {
				if !yield(i, nil) {
					return
				}
			}
		}
	})
	router.RPC(r, func(ctx *router.Context, m slow) (asked, error) {
		select {
		case <-time.After(time.Duration(m.Ms) * time.Millisecond):
			return asked{"slow"}, nil
		case <-ctx.Done():
			return asked{}, ctx.Err()
		}
	})
	router.On(r, func(ctx *router.Context, m enter) error { return ctx.Subscribe(m.Topic) })
	router.On(r, func(ctx *router.Context, m leave) error { ctx.Unsubscribe(m.Topic); return nil })
	router.On(r, func(*router.Context, fails) error { return errors.Errorf(errors.NotFound, "no") })
	router.DeclareCall[ask, asked](r)
}

func publish(t *testing.T, r *router.Router, topic string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		require.NoError(t, r.Publish(topic, price{text[:1], text}))
	}
	synctest.Wait()
}

// received returns the values of what arrived on the topic.
func received(c *rawclient.Client, topic string) []string {
	var values []string
	for _, d := range c.Deliveries() {
		var p price
		if d.Topic != nil && *d.Topic == topic && json.Unmarshal(d.Payload, &p) == nil {
			values = append(values, p.Value)
		}
	}
	return values
}

func notices(c *rawclient.Client, kind string) (found []rawclient.Notice) {
	for _, n := range c.Notices() {
		if n.Kind == kind {
			found = append(found, n)
		}
	}
	return found
}

func TestClient_CallsStreamsAndEventsHaveTheirOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newRouter(t, nil), "ann", nil)
		synctest.Wait()
		one := int64(1)
		call := c.Call("ECHO", echo{"hi"}, rawclient.CallOptions{Ack: true})
		stream := c.Call("COUNT", count{3}, rawclient.CallOptions{Stream: true, Credit: &one})
		event := c.Event("FAILS", fails{}, false)
		good := c.Event("ENTER", enter{"private/a"}, true)
		unknown := c.Call("NOPE", nil, rawclient.CallOptions{})
		aborted := c.Call("SLOW", slow{60_000}, rawclient.CallOptions{})
		late := c.Call("SLOW", slow{60_000}, rawclient.CallOptions{Timeout: time.Second})
		c.Refused([]byte(`{"type":`))
		c.Heartbeat()
		c.Ping()
		synctest.Wait()
		o := c.Outcome(call)
		assert.True(t, o.Acked && o.Done && len(o.Progress) == 1, "%+v", o)
		assert.JSONEq(t, `{"Text":"hi"}`, string(o.Payload))
		assert.Len(t, c.Outcome(stream).Progress, 1)
		c.Credit(stream, 5)
		c.Abort(aborted)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Len(t, c.Outcome(stream).Progress, 3)
		assert.Equal(t, "$ws:stream-end", c.Outcome(stream).Reply)
		assert.True(t, c.Outcome(good).Acked)
		for id, code := range map[string]string{event: "NOT_FOUND", unknown: "UNIMPLEMENTED", aborted: "CANCELLED", late: "DEADLINE_EXCEEDED"} {
			if assert.NotNil(t, c.Outcome(id).Err, code) {
				assert.Equal(t, code, c.Outcome(id).Err.Code)
			}
		}
		c.Quiet()
	})
}

func TestClient_AnswersCallsOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, nil)
		newClient(t, r, "ann", func(cfg *rawclient.Config) {
			cfg.Answer = func(string, json.RawMessage) (string, any) { return "ASKED", asked{"yes"} }
		})
		synctest.Wait()
		for conn := range r.Conns() {
			reply, err := router.Call[asked](t.Context(), conn, ask{})
			require.NoError(t, err)
			assert.Equal(t, "yes", reply.Text)
		}
	})
}

func TestClient_RecoversAfterACutAtAnyByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, func(o *router.Options) { o.UserHistory = router.History{Messages: 10} })
		c := newClient(t, r, "ann", nil)
		synctest.Wait()
		c.Subscribe("feed/a", rawclient.SubscribeOptions{Positions: true})
		c.Event("ENTER", enter{"private/a"}, false)
		synctest.Wait()
		var want []string
		for i := range 40 {
			text := string(rune('a'+i%26)) + strings.Repeat("x", i)
			want = append(want, text)
			c.Drop(1+7*i, -1)
			if i%3 == 0 {
				c.Drop(-1, 1+5*i)
			}
			c.Call("ECHO", echo{text}, rawclient.CallOptions{})
			publish(t, r, "feed/a", text)
			publish(t, r, "private/a", text)
			_, err := r.SendToUser("t", "ann", price{"k", text})
			require.NoError(t, err)
			time.Sleep(time.Duration(i) * 100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		c.Quiet()
		assert.Equal(t, want, received(c, "feed/a"))
		assert.Equal(t, want, received(c, "private/a"))
		assert.Equal(t, want, received(c, ""))
		assert.Greater(t, len(notices(c, "open")), 5)
		assert.NotEmpty(t, notices(c, "$ws:resumed"))
	})
}

func TestClient_PresenceFollowsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, nil)
		c := newClient(t, r, "ann", nil)
		synctest.Wait()
		c.Subscribe("room/a", rawclient.SubscribeOptions{Presence: true})
		other := newClient(t, r, "bob", nil)
		synctest.Wait()
		other.Subscribe("room/a", rawclient.SubscribeOptions{})
		time.Sleep(time.Second)
		assert.Len(t, c.Topic("room/a").Members, 2)
		other.Unsubscribe("room/a")
		time.Sleep(time.Second)
		assert.Len(t, c.Topic("room/a").Members, 1)
		publish(t, r, "room/a", "x")
		assert.Empty(t, other.Deliveries())
	})
}

func TestClient_StateThenChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, nil)
		publish(t, r, "feed/a", "a1", "b1", "a2")
		c := newClient(t, r, "ann", nil)
		synctest.Wait()
		c.Subscribe("feed/a", rawclient.SubscribeOptions{State: true})
		synctest.Wait()
		publish(t, r, "feed/a", "c1")
		assert.Equal(t, []string{"b1", "a2", "c1"}, received(c, "feed/a"))
		c.Drop(0, -1)
		publish(t, r, "feed/a", "a1", "b1", "a3", "a4", "a5", "a6", "a7", "a8", "a9", "d1", "d2", "d3") // more than the history has
		time.Sleep(10 * time.Second)
		assert.Equal(t, []string{"c1", "b1", "a9", "d3"}, received(c, "feed/a")[3:])
	})
}

func TestClient_MovesAfterGoAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		share := func(o *router.Options) { o.Broker = b }
		first, second := newRouter(t, share), newRouter(t, share)
		var current atomic.Pointer[router.Router]
		current.Store(first)
		c := newClient(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { current.Load().ServeHTTP(w, req) }), "ann", nil)
		synctest.Wait()
		c.Subscribe("feed/a", rawclient.SubscribeOptions{Positions: true})
		c.Subscribe("room/a", rawclient.SubscribeOptions{Presence: true})
		synctest.Wait()
		publish(t, first, "feed/a", "a")
		call := c.Call("SLOW", slow{3000}, rawclient.CallOptions{})
		synctest.Wait()
		current.Store(second)
		go func() { _ = first.Shutdown(context.Background()) }()
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			publish(t, second, "feed/a", "b")
		}
		assert.Equal(t, "ASKED", c.Outcome(call).Reply)
		assert.Len(t, received(c, "feed/a"), 101)
		assert.Len(t, c.Topic("room/a").Members, 1)
		c.Quiet()
	})
}

func TestClient_RevokeEndsTheSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, nil)
		c := newClient(t, r, "ann", nil)
		synctest.Wait()
		c.Subscribe("feed/a", rawclient.SubscribeOptions{Positions: true})
		synctest.Wait()
		publish(t, r, "feed/a", "a")
		require.NoError(t, r.Revoke(t.Context(), "t", "ann", "feed/a"))
		synctest.Wait()
		publish(t, r, "feed/a", "b")
		assert.Equal(t, []string{"a"}, received(c, "feed/a"))
		assert.Len(t, notices(c, "$ws:unsubscribed"), 1)
	})
}

func TestClient_SlowReaderRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter(t, func(o *router.Options) { o.Limits.QueueMessages = 6 })
		c := newClient(t, r, "ann", nil)
		synctest.Wait()
		c.Subscribe("feed/a", rawclient.SubscribeOptions{Positions: true})
		synctest.Wait()
		c.Pause(time.Minute)
		publish(t, r, "feed/a", "a", "b", "c", "d", "e", "f", "g", "h")
		time.Sleep(2 * time.Minute)
		assert.Len(t, notices(c, "open"), 2)
		assert.Equal(t, uint64(8), c.Topic("feed/a").Position.Offset)
	})
}

package router_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// resumeWithin is the time for a resume in these tests.
const resumeWithin = 2 * time.Minute

func TestSession_ClientLearnsOfSubscriptionsThatHandlersMake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, func(o *router.Options) {
			o.OnOpen = func(_ context.Context, c *router.Conn) error {
				return errors.Join(c.Subscribe("plain/first"), c.Subscribe("private/first"))
			}
		})
		c := dialSession(t, r, "ann")
		synctest.Wait()
		c.hello()
		synctest.Wait()
		first := []string{c.Next().Text, c.Next().Text}
		assert.Contains(t, fmt.Sprint(first), `{"type":"$ws:subscribed","meta":{"timestamp":946684800000},"payload":{"topic":"plain/first"}}`)
		assert.Regexp(t, `\{"type":"\$ws:subscribed","meta":\{"timestamp":946684800000\},"payload":\{"topic":"private/first","epoch":"[A-Z2-7]+","offset":0\}\}`, fmt.Sprint(first))

		require.NoError(t, c.conn.Subscribe("private/ann"))
		require.NoError(t, c.conn.Subscribe("private/ann"))
		synctest.Wait()
		assert.Contains(t, c.Next().Text, `"payload":{"topic":"private/ann","epoch":`)
		require.NoError(t, r.Publish("private/ann", Blob{Text: "1"}))
		require.NoError(t, r.Publish("private/first", Blob{Text: "2"}))
		assert.Contains(t, c.Next().Text, `"topic":"private/ann","offset":1}`)
		assert.Contains(t, c.Next().Text, `"topic":"private/first","offset":1}`)
		require.NoError(t, c.conn.Subscribe("plain/first", router.Present("Ann")), "the client knows of it already")

		c.conn.Unsubscribe("private/ann")
		c.conn.Unsubscribe("private/ann")
		assert.Equal(t, `{"type":"$ws:unsubscribed","meta":{"timestamp":946684800000},"payload":{"topic":"private/ann"}}`, c.Next().Text)
		assert.Contains(t, c.call("$ws:unsubscribe", `{"topic":"plain/first"}`).Text, "$ws:unsubscribed")
		assert.Contains(t, c.call("$ws:subscribe", `{"topic":"feed/a"}`).Text, "$ws:subscribed")
		synctest.Wait()
		assert.Zero(t, c.Pending(), "answers are not repeated")
	})
}

func TestSession_SinceIsAnnouncedBeforeWhatWasMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, nil)
		router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
			_, at, err := r.ReadHistory(ctx, "private/a", broker.Query{})
			if err == nil {
				_, err = subscribeSince(ctx, "private/a", broker.Position{Epoch: at.Epoch})
			}
			return Echoed(m), err
		})
		err := r.Publish("private/a", Blob{Text: "1"}, router.Stored(t.Context(), nil))
		require.NoError(t, err)
		c := dialSession(t, r, "ann").hello()
		routertest.Call[Echoed](c.Conn, Echo{})
		assert.Contains(t, c.Next().Text, `"topic":"private/a"`)
		assert.Equal(t, []string{"1"}, c.texts())
		c.Abort()
		dialSession(t, r, "ann").resume(c.token, "").topic(t, "private/a")
	})
}

func TestSession_ConnectionsWithoutOneAreNotNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, nil)
		c := dialSession(t, r, "ann")
		c.Greet()
		require.NoError(t, c.conn.Subscribe("private/a"))
		c.conn.Unsubscribe("private/a")
		synctest.Wait()
		assert.Zero(t, c.Pending())
	})
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

func TestResume_AcknowledgmentWithAnotherIDHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, nil)
		old := dialSession(t, r, "ann").hello()
		c := dialSession(t, r, "ann")
		c.SendText(`{"type":"$ws:ack","meta":{"correlationId":"r1"}}`) // before the session is resumed
		c.SendText(`{"type":"$ws:ack"}`)
		c.resume(old.token, "")
		c.SendText(`{"type":"$ws:ack","meta":{"correlationId":"other"}}`)
		c.SendText(`{"type":"$ws:ack"}`)
		synctest.Wait()
		assert.Zero(t, c.Pending())
		dialSession(t, r, "ann").resume(old.token, "")
	})
}

// TestResume_ReadsOnlyWhatTheClientReceives resumes with the first position of topics of which one
// client can receive only a part. Another connection keeps the topics on the node, so that what is
// counted is read for the resume alone.
func TestResume_ReadsOnlyWhatTheClientReceives(t *testing.T) {
	t.Parallel()
	topics := testscale.Tiers(30, 40, 300)
	for _, tt := range []struct {
		name             string
		missed           func(topic int) int
		bytes            int // of each message
		batches          int
		recovered, shown int // topics, and publications
	}{
		{"nothing was missed", func(int) int { return 0 }, 1000, 0, topics, 0},
		{"little was missed", func(int) int { return 1 }, 1000, 2, topics, topics},
		{"too long for the queue", func(int) int { return 499 }, 1000, 2, 0, 0},
		{"too many for the queue", func(int) int { return 499 }, 10, 2, 1, 499},
		{"one topic with more than all others", func(topic int) int {
			if topic == 0 {
				return 499
			}
			return 1
		}, 1000, 2, topics - 1, topics - 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &unreliableBroker{Broker: memory.NewBrokerMaxHistoryBytes(1 << 30)}
				r := newSessionRouter(m, nil)
				router.Topic(r, "long/{name}", &router.TopicOptions{
					Authorize: permit, History: router.History{Messages: 500},
				})
				client := dialSession(t, r, "ann").hello()
				client.Abort()
				other := dialSession(t, r, "bob")
				var since []string
				for i := range topics {
					topic := fmt.Sprint("long/", i)
					_, at, err := r.ReadHistory(t.Context(), topic, broker.Query{})
					require.NoError(t, err)
					since = append(since, fmt.Sprintf(`{"topic":%q,"epoch":%q,"offset":0}`, topic, at.Epoch))
				}
				for i := range topics {
					for range tt.missed(i) {
						require.NoError(t, r.Publish(fmt.Sprint("long/", i), plainNote{strings.Repeat("x", tt.bytes)}))
					}
					require.NoError(t, other.conn.Subscribe(fmt.Sprint("long/", i)))
				}
				synctest.Wait()
				m.reads = readCount{}
				returned := dialSession(t, r, "ann")
				answer := returned.resume(client.token, strings.Join(since, ","))
				recovered := 0
				for _, topic := range answer.Topics {
					require.Nil(t, topic.Error, topic.Topic)
					if *topic.Recovered {
						recovered++
					}
				}
				assert.Equal(t, tt.recovered, recovered)
				assert.Equal(t, []int{0, tt.batches, tt.shown}, []int{m.reads.reads, m.reads.batches, m.reads.publications}, "reads, batches, publications")
				for range tt.shown {
					require.Equal(t, "NOTE", returned.Next().Type)
				}
				returned.Abort()
				other.Abort()
				synctest.Wait()
			})
		})
	}
}

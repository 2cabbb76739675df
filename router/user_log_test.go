package router_test

import (
	"context"
	"fmt"
	"net/http"
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

func TestUserHistory_Mistakes(t *testing.T) {
	assert.PanicsWithValue(t, "router: UserHistory: Options.Broker, a *router_test.recordingBroker, keeps no histories; it must be a broker.HistoryBroker", func() {
		router.New(&router.Options{Broker: &recordingBroker{}, UserHistory: userHistory})
	})
	assert.PanicsWithValue(t, "router: UserHistory: INVALID_ARGUMENT: History.Messages is -1; it must be at least 1", func() {
		router.New(&router.Options{UserHistory: router.History{Messages: -1}})
	})
}

func TestUserHistory_LogsAreNoTopicsOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newUserLogRouter(nil, func(o *router.Options) { o.Limits.Topics = 1 })
		router.Topic(r, "{all...}", &router.TopicOptions{Authorize: permit})
		bob, at := dialLog(t, r, "bob")
		ann, _ := dialLog(t, r, "ann")
		for _, topic := range []string{``, `\u0000user 1 t bob`, `\u0000users`, `\u0000access`} {
			for _, typ := range []string{"$ws:subscribe", "$ws:unsubscribe"} {
				answer := ann.call(typ, fmt.Sprintf(`{"topic":"%s","positions":true}`, topic))
				assert.Equal(t, "RPC_ERROR", answer.Type, answer.Text)
				assert.Contains(t, answer.Text, "INVALID_ARGUMENT")
			}
		}
		ann.Abort()
		synctest.Wait()
		next := dialSession(t, r, "ann")
		answer := next.call("$ws:resume", fmt.Sprintf(`{"token":%q,"topics":[{"topic":"\u0000user 1 t bob","epoch":%q,"offset":0}]}`, ann.token, at.Epoch))
		assert.Contains(t, answer.Text, "INVALID_ARGUMENT")
		answer = next.call("$ws:resume", fmt.Sprintf(`{"token":%q,"topics":[{"topic":"\u0000users"},{"topic":""}]}`, ann.token))
		assert.Contains(t, answer.Text, "INVALID_ARGUMENT", "for the topic")
		assert.Equal(t, "$ws:resumed", answer.Type)
		assert.Equal(t, "$ws:subscribed", next.call("$ws:subscribe", `{"topic":"room/go"}`).Type, "the log does not count")
		sendTexts(t, r, "bob", 1, 1)
		assert.Zero(t, next.Pending())
		assert.Equal(t, numbers(1, 1), bob.texts())
	})
}

func TestUserHistory_FullStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newUserLogRouter(memory.NewBrokerMaxHistoryBytes(10_000), nil)
		c := dialSession(t, r, "ann")
		synctest.Wait() // it follows the log
		sent := 0
		for ; sent < 1000; sent++ {
			if _, err := r.SendToUser("t", "ann", Blob{Text: fmt.Sprint(sent + 1)}); err != nil {
				assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(err))
				break
			}
		}
		assert.Less(t, sent, 1000)
		assert.Equal(t, numbers(1, sent), c.texts())
	})
}

// TestUserHistory_GreetingPrecedesMessages sends a message as soon as the greeting is answered, while the node that the user
// connects to first needs time to follow the log.
func TestUserHistory_GreetingPrecedesMessages(t *testing.T) {
	for name, test := range map[string]struct {
		hello string
		store time.Duration // how long it takes
		want  []string
	}{
		"with a session":               {`{"session":true}`, 500 * time.Millisecond, numbers(1, 1)},
		"without a session":            {`{}`, 500 * time.Millisecond, numbers(1, 1)},
		"a store that does not answer": {`{}`, 10 * time.Second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := unreliable()
				r, other := newUserLogRouter(b, nil), newUserLogRouter(b.Broker, nil)
				synctest.Wait()
				b.later.Store(int64(test.store))
				b.away.Store(true)
				time.AfterFunc(test.store, func() { b.away.Store(false) })
				c, began := dialSession(t, r, "ann"), time.Now()
				assert.Equal(t, "$ws:welcome", c.call("$ws:hello", test.hello).Type)
				assert.GreaterOrEqual(t, time.Since(began), min(test.store, 2*time.Second))
				assert.LessOrEqual(t, time.Since(began), 2*time.Second)
				_, err := other.SendToUser("t", "ann", Blob{Text: "1"})
				require.NoError(t, err)
				time.Sleep(time.Minute)
				assert.Equal(t, test.want, c.blobs())
			})
		})
	}
}

// TestUserHistory_LoginPrecedesMessages sends a message to the new user of an open connection as soon as the client knows of the
// change, while the node needs time to follow the log of that user.
func TestUserHistory_LoginPrecedesMessages(t *testing.T) {
	const refresh, token = "$ws:auth", `{"token":"ann"}`
	for name, test := range map[string]struct {
		typ, payload string
		session      bool
		store, call  time.Duration // how long the store takes, and a call at most
		want         []string
	}{
		"a refresh":                          {refresh, token, false, 500 * time.Millisecond, time.Minute, numbers(1, 1)},
		"a refresh with a session":           {refresh, token, true, 500 * time.Millisecond, time.Minute, numbers(1, 1)},
		"a handler":                          {"WHO_AM_I", `{}`, false, 500 * time.Millisecond, time.Minute, numbers(1, 1)},
		"a store that does not answer":       {refresh, token, false, 10 * time.Second, time.Minute, nil},
		"a refresh that must be short":       {refresh, token, false, 10 * time.Second, time.Second, nil},
		"a handler whose call must be short": {"WHO_AM_I", `{}`, false, 10 * time.Second, time.Second, nil},
	} {
		runSynctest(t, name, func(t *testing.T) {
			b := unreliable()
			r, other := newUserLogRouter(b, func(o *router.Options) { o.Timeouts.Call = test.call }), newUserLogRouter(b.Broker, nil)
			router.RPC(r, func(ctx *router.Context, _ WhoAmI) (YouAre, error) {
				return YouAre{}, ctx.Conn().SetIdentity(router.Identity{TenantID: "t", UserID: "ann"})
			})
			c := dialSession(t, r, "")
			if test.session {
				c.hello()
			}
			b.later.Store(int64(test.store))
			b.away.Store(true)
			time.AfterFunc(test.store, func() { b.away.Store(false) })
			began, most := time.Now(), min(2*time.Second, test.call/2)
			assert.NotEqual(t, "RPC_ERROR", c.call(test.typ, test.payload).Type)
			assert.GreaterOrEqual(t, time.Since(began), min(test.store, most))
			assert.LessOrEqual(t, time.Since(began), most)
			began = time.Now()
			assert.NotEqual(t, "RPC_ERROR", c.call(test.typ, test.payload).Type)
			assert.Zero(t, time.Since(began), "the user is the same")
			_, err := other.SendToUser("t", "ann", Blob{Text: "1"})
			require.NoError(t, err)
			time.Sleep(time.Minute)
			assert.Equal(t, test.want, c.blobs())
		})
	}
}

func TestUserHistory_WithoutSessionsMessagesHaveNoPositions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newUserLogRouter(nil, func(o *router.Options) { o.Resume = router.ResumeOptions{} })
		c := routertest.Dial(t, r, routertest.Token("ann"))
		sendTexts(t, r, "ann", 1, 1)
		assert.NotContains(t, c.Next().Text, "offset")
	})
}

// TestUserHistory_IdleLogsAreComparedTogether bounds what users to whom nothing is sent cost the store.
func TestUserHistory_IdleLogsAreComparedTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := unreliable()
		r := newUserLogRouter(m, func(o *router.Options) { o.Limits = withoutRates(o.Limits) })
		for n := range testscale.Tiers(200, 300, 5000) {
			routertest.Dial(t, r, routertest.Token(fmt.Sprint("user", n)))
		}
		time.Sleep(10 * time.Minute)
		m.reads.reset()
		time.Sleep(time.Minute)
		assert.LessOrEqual(t, m.reads.all().batches, 2)
		assert.Zero(t, m.reads.all().reads)
	})
}

// userHistory is that of the routers in these tests, unless they say otherwise.
var userHistory = router.History{Messages: 100}

// newUserLogRouter returns a router with sessions and a history for each user.
func newUserLogRouter(b broker.Broker, change func(*router.Options)) *router.Router {
	return newSessionRouter(b, func(o *router.Options) {
		o.UserHistory = userHistory
		if change != nil {
			change(o)
		}
	})
}

// sendTexts sends messages to a user of the tenant "t", and waits until they have arrived.
func sendTexts(t *testing.T, r *router.Router, user string, from, to int) {
	t.Helper()
	for n := from; n <= to; n++ {
		_, err := r.SendToUser("t", user, Blob{Text: fmt.Sprint(n)})
		require.NoError(t, err)
	}
	synctest.Wait()
}

// numbers returns the texts of messages.
func numbers(from, to int) (texts []string) {
	for n := from; n <= to; n++ {
		texts = append(texts, fmt.Sprint(n))
	}
	return texts
}

// dialLog connects a client that greets, and returns the position of the messages to its user.
func dialLog(t *testing.T, r *router.Router, user string) (*sessionClient, subscribed) {
	t.Helper()
	c := dialSession(t, r, user).hello()
	synctest.Wait()
	return c, decodeFrame[subscribed](t, c.Next())
}

func TestSendToUser_ConflatesOnOtherNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		one := router.New(&router.Options{Broker: b})
		two := router.New(&router.Options{Broker: b, SlowConsumer: router.Conflate, Authenticate: byUser})
		ann := routertest.Dial(t, two, routertest.Token("ann"))
		synctest.Wait()
		ann.Pause()
		for n := range 1000 {
			_, err := one.SendToUser("", "ann", Position{"p", n})
			require.NoError(t, err)
		}
		synctest.Wait()
		ann.Resume()
		synctest.Wait()
		assert.Less(t, ann.Pending(), 500)
		last := Position{}
		for ann.Pending() > 0 {
			last = routertest.Receive[Position](ann)
		}
		assert.Equal(t, 999, last.X)
	})
}

// isClosed returns the code with which the server has closed a connection, or 0.
func (c *sessionClient) isClosed() router.StatusCode {
	synctest.Wait()
	if c.conn.Context().Err() == nil {
		return 0
	}
	var closed *router.CloseError
	errors.As(context.Cause(c.conn.Context()), &closed)
	return closed.Code
}

// TestDisconnectUser_WhileConnecting disconnects a user who is being authenticated.
func TestDisconnectUser_WhileConnecting(t *testing.T) {
	for name, change := range map[string]func(*router.Options){
		"published": func(o *router.Options) { o.UserHistory = router.History{} }, "in a log": func(*router.Options) {},
	} {
		runSynctest(t, name, func(t *testing.T) {
			b := memory.NewBroker()
			other := newUserLogRouter(b, change)
			disconnect := false
			r := newUserLogRouter(b, func(o *router.Options) {
				change(o)
				o.Authenticate = func(req *http.Request) (router.Identity, error) {
					if disconnect {
						_, err := other.DisconnectUser("t", "ann", 4403, "banned")
						assert.NoError(t, err)
						time.Sleep(time.Second) // it reaches this node meanwhile
					}
					return byUserToken(req)
				}
			})
			assert.Zero(t, dialSession(t, r, "ann").isClosed())
			disconnect = true
			assert.EqualValues(t, 4403, routertest.Dial(t, r, routertest.Token("ann")).Closed().Code, "perhaps before it is listed")
			assert.Zero(t, dialSession(t, r, "bob").isClosed())
			disconnect = false
			anonymous := dialSession(t, r, "")
			disconnect = true
			anonymous.SendText(`{"type":"$ws:auth","meta":{"correlationId":"a"},"payload":{"token":"ann"}}`)
			time.Sleep(2 * time.Second)
			assert.EqualValues(t, 4403, anonymous.isClosed(), "the token was checked before")
			disconnect = false
			assert.Zero(t, dialSession(t, r, "ann").isClosed(), "who connects afterwards")
		})
	}
}

// TestDisconnectUser_LogThatIsTooShort cuts a node off for longer than the log reaches: it cannot
// know whose access has ended, so all users connect again.
func TestDisconnectUser_LogThatIsTooShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		island := &unreliableBroker{Broker: b}
		var lost recorder[string]
		one := newUserLogRouter(b, nil)
		two := newUserLogRouter(island, func(o *router.Options) {
			o.OnMessagesLost = func(topic string, n int) { lost.add(fmt.Sprintf("%q %d", topic, n)) }
		})
		ann, bob, anonymous := dialSession(t, two, "ann"), dialSession(t, two, "bob").hello(), dialSession(t, two, "")
		island.setCut(true)
		for n := range 10_003 {
			_, err := one.DisconnectUser("t", fmt.Sprint(n), 4403, "")
			require.NoError(t, err)
		}
		island.setCut(false)
		time.Sleep(10 * time.Second)
		assert.Equal(t, []string{`"" 3`}, lost.all())
		assert.Equal(t, router.StatusTryAgainLater, ann.isClosed())
		assert.Equal(t, router.StatusTryAgainLater, bob.isClosed())
		assert.Contains(t, bob.Closed().Reason, "retryAfterMs")
		assert.Zero(t, anonymous.isClosed())
		dialSession(t, two, "bob").resume(bob.token, "")
	})
}

// blobs returns the texts that have arrived, among other messages.
func (c *sessionClient) blobs() (texts []string) {
	for c.Pending() > 0 {
		if frame := c.Next(); frame.Type == "BLOB" {
			texts = append(texts, decodeFrame[Blob](c.t, frame).Text)
		}
	}
	return texts
}

type subscribed struct {
	Epoch     string `json:"epoch"`
	Offset    uint64 `json:"offset"`
	Recovered bool   `json:"recovered"`
}

func (subscribed) MessageType() string { return "$ws:subscribed" }

// TestPackets_MalformedOnesAreIgnored receives what no version of this package sends: on a topic, to users, and in the log of
// those whose access has ended.
func TestPackets_MalformedOnesAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &recordingBroker{}
		n := newNode(b)
		ann := n.dial(t, "ann")
		ann.Send(Join{"go"})
		synctest.Wait()
		for _, packet := range []string{"", "\x00", "\xff?", "\x01\xff", "\x01\x05abc", "\x02\x04acme\x03ann\x01", "\x09\x04acme\x03ann"} {
			b.Receive("go", "two", []byte(packet))
			b.Receive("\x00users", "two", []byte(packet))
		}
		b.MessagesLost("go", 7)
		b.MessagesLost("\x00users", 3)
		synctest.Wait()
		assert.Equal(t, []int{7, 3}, n.lost.all())
		assert.Zero(t, ann.Pending())

		store := memory.NewBroker()
		bob := dialSession(t, newUserLogRouter(store, nil), "bob")
		other := store.ConnectHistory(broker.Callbacks{}, broker.HistoryCallbacks{})
		for _, packet := range []string{"", "\x01n\x09\x01t\x03bob", "\x01n\x06\x01t\x03bob\x00\x01", "\x01n\x03\x01t\x00\xa3\x22"} {
			_, err := other.Append(t.Context(), broker.Append{Topic: "\x00access", Packet: []byte(packet)})
			require.NoError(t, err)
		}
		assert.Zero(t, bob.isClosed())
	})
}

package router_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/codec/cbor"
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

// TestUserHistory_ClientReceivesExactlyWhatItHasMissed resumes on another node after different
// numbers of messages.
func TestUserHistory_ClientReceivesExactlyWhatItHasMissed(t *testing.T) {
	for _, missed := range []int{0, 1, 7, 100, 101} {
		runSynctest(t, fmt.Sprint(missed), func(t *testing.T) {
			b := memory.NewBroker()
			one, two := newUserLogRouter(b, nil), newUserLogRouter(b, nil)
			sendTexts(t, two, "ann", -4, 0)
			old := dialLog(t, one, "ann")
			sendTexts(t, two, "ann", 1, 3)
			require.Equal(t, numbers(1, 3), old.received())
			old.Abort()
			sendTexts(t, one, "ann", 4, 3+missed)
			sendTexts(t, one, "bob", 1, 3)

			c := old.resumeOn(two, "ann")
			sendTexts(t, one, "ann", 1000, 1001)
			if missed > 100 {
				assert.Equal(t, []string{"resume"}, c.lost)
				assert.Equal(t, numbers(1000, 1001), c.received())
				return
			}
			assert.Empty(t, c.lost)
			assert.Equal(t, append(numbers(4, 3+missed), numbers(1000, 1001)...), c.received())
			again := c.resumeOn(one, "ann") // without a loss of the connection
			sendTexts(t, two, "ann", 1002, 1002)
			assert.Equal(t, numbers(1002, 1002), again.received())
		})
	}
}

// TestUserHistory_MessagesBeforeTheResumeComeAgain sends one between the handshake and the resume,
// which arrives with an offset, so that the client knows it when it comes again in order.
func TestUserHistory_MessagesBeforeTheResumeComeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newUserLogRouter(nil, nil)
		old := dialLog(t, r, "ann")
		old.Abort()
		sendTexts(t, r, "ann", 1, 2)
		next := &logClient{sessionClient: dialSession(t, r, "ann"), epoch: old.epoch, offset: old.offset}
		sendTexts(t, r, "ann", 3, 3)
		early := next.Next()
		assert.Equal(t, old.offset+3, metaOf(t, early.Text).Offset)
		next.continued(next.resume(old.token, fmt.Sprintf(`{"topic":"","epoch":%q,"offset":%d}`, old.epoch, old.offset)))
		assert.Equal(t, numbers(1, 3), next.received())
	})
}

// TestUserHistory_PositionsThatAClientInvents gives nothing to a client beyond what its session
// permits.
func TestUserHistory_PositionsThatAClientInvents(t *testing.T) {
	for name, topics := range map[string]string{
		"before the session":  `{"topic":"","epoch":"ANN","offset":0}`,
		"beyond the end":      `{"topic":"","epoch":"ANN","offset":9007199254740991}`,
		"unknown epoch":       `{"topic":"","epoch":"INVENTED","offset":1}`,
		"no position":         `{"topic":""}`,
		"state and presence":  `{"topic":"","state":true,"presence":true}`,
		"not presented":       ``,
		"only another topic":  `{"topic":"room/go"}`,
		"epoch of other user": `{"topic":"","epoch":"BOB","offset":0}`,
	} {
		runSynctest(t, name, func(t *testing.T) {
			r := newUserLogRouter(nil, nil)
			sendTexts(t, r, "ann", 1, 3) // before the session
			sendTexts(t, r, "bob", 11, 13)
			ann, bob := dialLog(t, r, "ann"), dialLog(t, r, "bob")
			sendTexts(t, r, "ann", 4, 4)
			ann.Abort()
			synctest.Wait()
			next := &logClient{sessionClient: dialSession(t, r, "ann")}
			answer := next.resume(ann.token, strings.NewReplacer("ANN", ann.epoch, "BOB", bob.epoch).Replace(topics))
			at := answer.topic(t, "")
			next.epoch, next.offset = at.Epoch, at.Offset
			assert.Contains(t, []string{"[4]", "[]"}, fmt.Sprint(next.received()))
			sendTexts(t, r, "ann", 5, 5)
			assert.Equal(t, numbers(5, 5), next.received())
		})
	}
}

func TestUserHistory_LogsAreNoTopicsOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newUserLogRouter(nil, func(o *router.Options) { o.Limits.Topics = 1 })
		router.Topic(r, "{all...}", &router.TopicOptions{Authorize: func(*router.Context, router.TopicMatch) error { return nil }})
		bob, ann := dialLog(t, r, "bob"), dialLog(t, r, "ann")
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
		answer := next.call("$ws:resume", fmt.Sprintf(`{"token":%q,"topics":[{"topic":"\u0000user 1 t bob","epoch":%q,"offset":0}]}`, ann.token, bob.epoch))
		assert.Contains(t, answer.Text, "INVALID_ARGUMENT")
		answer = next.call("$ws:resume", fmt.Sprintf(`{"token":%q,"topics":[{"topic":"\u0000users"},{"topic":""}]}`, ann.token))
		assert.Contains(t, answer.Text, "INVALID_ARGUMENT", "for the topic")
		assert.Equal(t, "$ws:resumed", answer.Type)
		assert.Equal(t, "$ws:subscribed", next.call("$ws:subscribe", `{"topic":"room/go"}`).Type, "the log does not count")
		sendTexts(t, r, "bob", 1, 1)
		assert.Zero(t, next.Pending())
		assert.Equal(t, numbers(1, 1), bob.received())
	})
}

// TestUserHistory_SessionOfAnotherUser presents the token and the position of one user as another.
func TestUserHistory_SessionOfAnotherUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newUserLogRouter(nil, nil)
		ann := dialLog(t, r, "ann")
		ann.Abort()
		sendTexts(t, r, "ann", 1, 2)
		for _, user := range []string{"bob", ""} {
			c := dialSession(t, r, user)
			assert.Equal(t, errors.PermissionDenied, c.resumeError(ann.token))
			c.hello()
			for _, text := range c.all() {
				assert.NotContains(t, text, "BLOB")
			}
		}
		c := ann.resumeOn(r, "ann")
		assert.Equal(t, numbers(1, 2), c.received())
	})
}

// all returns the messages that have arrived.
func (c *sessionClient) all() (texts []string) {
	synctest.Wait()
	for c.Pending() > 0 {
		texts = append(texts, c.Next().Text)
	}
	return texts
}

func TestUserHistory_LogFollowsTheIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newUserLogRouter(nil, nil)
		sendTexts(t, r, "bob", 1, 2)
		c := dialSession(t, r, "").hello()
		assert.Empty(t, c.all(), "anonymous connections have no log")
		require.NoError(t, c.conn.SetIdentity(router.Identity{TenantID: "t", UserID: "ann"}))
		log := &logClient{sessionClient: c}
		assert.Empty(t, log.received())
		sendTexts(t, r, "ann", 1, 3)
		assert.Equal(t, numbers(1, 3), log.received())

		require.NoError(t, c.conn.SetIdentity(router.Identity{TenantID: "t", UserID: "bob"}))
		synctest.Wait()
		assert.Contains(t, c.Next().Text, `"type":"$ws:unsubscribed"`)
		assert.Empty(t, log.received())
		assert.EqualValues(t, 2, log.offset, "that of the other log, now")
		sendTexts(t, r, "ann", 4, 4)
		sendTexts(t, r, "bob", 3, 3)
		assert.Equal(t, numbers(3, 3), log.received())
		c.Abort()
		sendTexts(t, r, "bob", 4, 5)
		next := log.resumeOn(r, "bob")
		assert.Equal(t, numbers(4, 5), next.received())

		require.NoError(t, next.conn.SetIdentity(router.Identity{}))
		sendTexts(t, r, "bob", 6, 6)
		assert.Len(t, next.all(), 1, "$ws:unsubscribed")
	})
}

// TestUserHistory_NodeThatWasCutOff receives what was sent meanwhile, once and in order, with and
// without sessions.
func TestUserHistory_NodeThatWasCutOff(t *testing.T) {
	for _, missed := range []int{1, 60, 100, 130} {
		runSynctest(t, fmt.Sprint(missed), func(t *testing.T) {
			b := memory.NewBroker()
			island := &unreliableBroker{Broker: b}
			var lost recorder[string]
			one := newUserLogRouter(b, nil)
			two := newUserLogRouter(island, func(o *router.Options) {
				o.OnMessagesLost = func(topic string, n int) { lost.add(fmt.Sprint(topic, n)) }
			})
			session := dialLog(t, two, "ann")
			plain := dialSession(t, two, "ann")
			synctest.Wait() // it follows the log
			island.setCut(true)
			sendTexts(t, one, "ann", 1, missed)
			assert.Empty(t, session.received())
			island.setCut(false)
			time.Sleep(10 * time.Second)
			first := max(1, missed-99)
			assert.Equal(t, numbers(first, missed), session.received())
			assert.Equal(t, numbers(first, missed), plain.texts())
			if first > 1 {
				assert.Equal(t, []string{fmt.Sprint("1-", first-1)}, session.lost)
				assert.Equal(t, []string{fmt.Sprint(first - 1)}, lost.all())
			} else {
				assert.Empty(t, session.lost)
				assert.Empty(t, lost.all())
			}
		})
	}
}

func TestUserHistory_StoreThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		island := unreliable()
		r := newUserLogRouter(island, nil)
		c := dialLog(t, r, "ann")
		island.setCut(true)
		n, err := r.SendToUser("t", "ann", Blob{Text: "1"})
		require.Error(t, err)
		assert.Zero(t, n)
		island.setCut(false)
		assert.Empty(t, c.received(), "it was not stored, so no client receives it")
		n, err = r.SendToUser("t", "ann", Blob{Text: "2"})
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		assert.Equal(t, []string{"2"}, c.received())
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

// TestUserHistory_OfOlderSessions resumes a session that began before the option was set, and one
// that began before it was removed.
func TestUserHistory_OfOlderSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		without, with := newSessionRouter(b, nil), newUserLogRouter(b, nil)
		old := dialSession(t, without, "ann").hello()
		old.Abort()
		c := &logClient{sessionClient: dialSession(t, with, "ann")}
		answer := c.resume(old.token, `{"topic":"","epoch":"INVENTED","offset":0}`).topic(t, "")
		assert.False(t, *answer.Recovered)
		c.epoch, c.offset = answer.Epoch, answer.Offset
		c.Abort()
		sendTexts(t, with, "ann", 1, 2)
		c = c.resumeOn(with, "ann")
		assert.Equal(t, numbers(1, 2), c.received())
		c.Abort()
		back := dialSession(t, without, "ann")
		assert.Equal(t, errors.InvalidArgument, back.resume(c.token, `{"topic":""}`).topicCodes()[""])
		sendTexts(t, without, "ann", 3, 3)
		assert.Equal(t, numbers(3, 3), back.texts())
	})
}

func TestUserHistory_SurvivesRevokeAndOnResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder[string]
		r := newUserLogRouter(nil, func(o *router.Options) {
			o.Resume.OnResume = func(_ *router.Context, s router.ResumedSession) error {
				seen.add(fmt.Sprint(s.Topics))
				return nil
			}
		})
		c := dialLog(t, r, "ann")
		require.NoError(t, c.conn.Subscribe("plain/a"))
		require.NoError(t, r.Revoke(t.Context(), "t", "ann", "{all...}"))
		for range 2 {
			assert.Contains(t, c.Next().Text, "plain/a")
		}
		c.Abort()
		require.NoError(t, r.Revoke(t.Context(), "t", "ann", "{all...}"))
		sendTexts(t, r, "ann", 1, 2)
		c = c.resumeOn(r, "ann")
		assert.Equal(t, numbers(1, 2), c.received())
		assert.Equal(t, []string{"[]"}, seen.all())
	})
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
		m.reads = readCount{}
		time.Sleep(time.Minute)
		assert.LessOrEqual(t, m.reads.batches, 2)
		assert.Zero(t, m.reads.reads)
	})
}

// TestUserHistory_BinaryFormats resumes a session over a connection with another format.
func TestUserHistory_BinaryFormats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		codec := cbor.New(nil)
		r := newUserLogRouter(memory.NewBroker(), func(o *router.Options) { o.Codecs = []router.Codec{codec} })
		old := dialLog(t, r, "ann")
		old.Abort()
		sendTexts(t, r, "ann", 1, 3)
		c := routertest.Dial(t, r, routertest.Token("ann"), routertest.Codec(codec))
		c.SendText(fmt.Sprintf(`{"type":"$ws:resume","payload":{"token":%q,"topics":[{"topic":"","epoch":%q,"offset":%d}]}}`, old.token, old.epoch, old.offset))
		assert.Equal(t, "$ws:resumed", c.Next().Type)
		for _, text := range numbers(1, 3) {
			assert.Equal(t, Blob{Text: text}, routertest.Receive[Blob](c))
		}
	})
}

package router_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

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

func TestUserHistory_LogsAreNoTopicsOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newUserLogRouter(nil, func(o *router.Options) { o.Limits.Topics = 1 })
		router.Topic(r, "{all...}", &router.TopicOptions{Authorize: func(*router.Context, router.TopicMatch) error { return nil }})
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

// all returns the messages that have arrived.
func (c *sessionClient) all() (texts []string) {
	synctest.Wait()
	for c.Pending() > 0 {
		texts = append(texts, c.Next().Text)
	}
	return texts
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
		old, at := dialLog(t, r, "ann")
		old.Abort()
		sendTexts(t, r, "ann", 1, 3)
		c := routertest.Dial(t, r, routertest.Token("ann"), routertest.Codec(codec))
		c.SendText(fmt.Sprintf(`{"type":"$ws:resume","payload":{"token":%q,"topics":[{"topic":"","epoch":%q,"offset":%d}]}}`, old.token, at.Epoch, at.Offset))
		assert.Equal(t, "$ws:resumed", c.Next().Type)
		for _, text := range numbers(1, 3) {
			assert.Equal(t, Blob{Text: text}, routertest.Receive[Blob](c))
		}
	})
}

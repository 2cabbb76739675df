package router_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func publishTexts(t *testing.T, r *router.Router, from, to int) {
	t.Helper()
	for n := from; n <= to; n++ {
		err := r.Publish("feed/a", Blob{Text: fmt.Sprint(n)}, router.Stored(t.Context(), nil))
		require.NoError(t, err)
	}
	synctest.Wait()
}

// TestFollower_NodeFillsGapsFromHistory loses publications on their way to the second node, whose
// clients receive them from the history, or learn that it does not hold them.
func TestFollower_NodeFillsGapsFromHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := unreliable()
		var lost recorder[int]
		one := newFeedRouter(shared.Broker, router.History{Messages: 3})
		two := router.New(&router.Options{Broker: shared, OnMessagesLost: func(_ string, n int) { lost.add(n) }})
		router.Topic(two, "feed/{name}", &router.TopicOptions{
			History: router.History{Messages: 3}, Authorize: func(*router.Context, router.TopicMatch) error { return nil },
		})
		f := &feed{t: t}
		f.subscribe(two)
		shared.drop.Store(true)
		publishTexts(t, one, 1, 2)
		shared.drop.Store(false)
		publishTexts(t, one, 3, 3)
		time.Sleep(time.Second)
		f.receive()
		assert.Equal(t, []string{"1", "2", "3"}, f.texts)
		assert.Empty(t, lost.all())

		shared.drop.Store(true)
		publishTexts(t, one, 4, 9)
		shared.drop.Store(false)
		time.Sleep(time.Minute) // the check of an idle topic finds the loss
		frame := f.client.Next()
		assert.Contains(t, frame.Text, `"offset":6,"lost":{"from":4,"to":6}`)
		f.offset = 6
		f.receive()
		assert.Equal(t, []string{"1", "2", "3", "", "", "", "7", "8", "9"}, f.texts)
		assert.Equal(t, []int{3}, lost.all())
	})
}

// TestFollower_AnswerThatWaitsHoldsFewPublications fills the send queue of a client that does not
// read, so that the answer to its subscription has to wait.
func TestFollower_AnswerThatWaitsHoldsFewPublications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{Limits: router.Limits{QueueMessages: 20}, SlowConsumer: router.DropNewest, BufferBytes: 512})
		router.Topic(r, "feed/{name}", &router.TopicOptions{
			History: router.History{Messages: 1000}, Authorize: func(*router.Context, router.TopicMatch) error { return nil },
		})
		client := routertest.Dial(t, r)
		conn := onlyConn(t, r)
		client.Pause()
		client.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"feed/a","positions":true}}`)
		for range 100 {
			_ = conn.Send(Blob{Text: strings.Repeat("x", 100)})
		}
		synctest.Wait()
		publishTexts(t, r, 1, 100)
		client.Resume()
		assert.Equal(t, router.StatusTryAgainLater, client.Closed().Code)
	})
}

func TestFollower_RecoveryFitsIntoTheSendQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{Limits: router.Limits{QueueBytes: 10_000}})
		router.Topic(r, "feed/{name}", &router.TopicOptions{
			History: router.History{Messages: 100}, Authorize: func(*router.Context, router.TopicMatch) error { return nil },
		})
		f := &feed{t: t}
		f.subscribe(r)
		for n := range 2 {
			f.client.Close()
			for range 3 + 3*n {
				require.NoError(t, r.Publish("feed/a", Blob{Text: strings.Repeat("x", 1000)}))
			}
			f.subscribe(r)
			synctest.Wait()
			f.receive()
			assert.Equal(t, 1, f.recovers, "six messages of 1,000 bytes are more than half of the queue")
		}
		assert.EqualValues(t, 9, f.offset)
	})
}

func TestFollower_BinaryFormat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{Codecs: []router.Codec{cbor.New(nil)}})
		router.Topic(r, "feed/{name}", &router.TopicOptions{
			History: router.History{Messages: 10}, Authorize: func(*router.Context, router.TopicMatch) error { return nil },
		})
		publishTexts(t, r, 1, 1)
		_, at, err := r.ReadHistory(t.Context(), "feed/a", broker.Query{})
		require.NoError(t, err)
		client := routertest.Dial(t, r, routertest.Codec(cbor.New(nil)))
		client.SendText(fmt.Sprintf(`{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"feed/a","epoch":%q,"offset":0}}`, at.Epoch))
		assert.Equal(t, "$ws:subscribed", client.Next().Type)
		publishTexts(t, r, 2, 2)
		for n := range 2 {
			assert.Equal(t, fmt.Sprint(n+1), routertest.Receive[Blob](client).Text)
		}
	})
}

func TestSince_IsForHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		router.Topic(r, "feed/{name}", &router.TopicOptions{History: router.History{Messages: 10}})
		var recovery router.Recovery
		router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
			var err error
			recovery, err = subscribeSince(ctx, "feed/a", broker.Position{Epoch: recovery.Position.Epoch, Offset: uint64(m.N)})
			return Echoed(m), err
		})
		router.RPC(r, func(ctx *router.Context, _ Block) (Blocked, error) {
			_, err := subscribeSince(ctx, "other", broker.Position{})
			return Blocked{}, err
		})
		client := routertest.Dial(t, r)
		routertest.Call[Echoed](client, Echo{})
		assert.Equal(t, errors.FailedPrecondition, routertest.CallError(client, Block{}).Code)
		publishTexts(t, r, 1, 3)
		synctest.Wait()
		assert.Equal(t, 3, client.Pending())
		other := routertest.Dial(t, r)
		routertest.Call[Echoed](other, Echo{1})
		assert.True(t, recovery.Recovered)
		assert.EqualValues(t, 1, recovery.Position.Offset)
		assert.Equal(t, "2", routertest.Receive[Blob](other).Text)
		assert.Equal(t, "3", routertest.Receive[Blob](other).Text)
	})
}

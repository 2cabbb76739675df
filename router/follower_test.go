package router_test

import (
	"encoding/json"
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

// newFeedRouter returns a router with topics feed/… to which every client may subscribe.
func newFeedRouter(b broker.Broker, h router.History) *router.Router {
	r := router.New(&router.Options{Broker: b})
	router.Topic(r, "feed/{name}", &router.TopicOptions{Authorize: permit, History: h})
	router.On(r, func(ctx *router.Context, m Blob) error { return ctx.Publish("feed/a", m, router.Except(ctx.Conn())) })
	return r
}

// A feed is a client of feed/a that keeps its position, as a client library does.
type feed struct {
	t        *testing.T
	client   *routertest.Conn
	epoch    string
	offset   uint64
	texts    []string // by offset - 1, "" where none was received
	resumes  int
	recovers int
}

type subscribed struct {
	Epoch     string `json:"epoch"`
	Offset    uint64 `json:"offset"`
	Recovered bool   `json:"recovered"`
}

func (subscribed) MessageType() string { return "$ws:subscribed" }

// subscribe subscribes with the position that the feed has, if any.
func (f *feed) subscribe(r *router.Router) {
	f.t.Helper()
	f.client = routertest.Dial(f.t, r)
	payload := `"positions":true`
	if f.epoch != "" {
		payload = fmt.Sprintf(`"epoch":%q,"offset":%d`, f.epoch, f.offset)
		f.resumes++
	}
	f.client.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"feed/a",` + payload + `}}`)
	frame := f.client.Next()
	require.Equal(f.t, "$ws:subscribed", frame.Type, frame.Text)
	var answer subscribed
	require.NoError(f.t, json.Unmarshal(frame.Payload, &answer))
	if f.epoch != "" && answer.Recovered {
		f.recovers++
		require.Equal(f.t, f.offset, answer.Offset)
		require.Equal(f.t, f.epoch, answer.Epoch)
	}
	f.epoch, f.offset = answer.Epoch, answer.Offset
}

// receive receives everything that has arrived, and checks that nothing is missing or repeated.
func (f *feed) receive() {
	f.t.Helper()
	for f.client.Pending() > 0 {
		f.handle(f.client.Next())
	}
}

func (f *feed) handle(frame routertest.Frame) {
	f.t.Helper()
	if frame.Type == "$ws:position" {
		var moved subscribed
		require.NoError(f.t, json.Unmarshal(frame.Payload, &moved))
		require.Equal(f.t, f.offset+1, moved.Offset, frame.Text)
		f.offset = moved.Offset
		return
	}
	var envelope struct {
		Meta struct {
			Topic  string `json:"topic"`
			Offset uint64 `json:"offset"`
		} `json:"meta"`
		Payload Blob `json:"payload"`
	}
	require.NoError(f.t, json.Unmarshal([]byte(frame.Text), &envelope))
	require.Equal(f.t, "feed/a", envelope.Meta.Topic)
	require.Equal(f.t, f.offset+1, envelope.Meta.Offset, frame.Text)
	f.offset = envelope.Meta.Offset
	for uint64(len(f.texts)) < f.offset {
		f.texts = append(f.texts, "")
	}
	f.texts[f.offset-1] = envelope.Payload.Text
}

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
			History: router.History{Messages: 3}, Authorize: permit,
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
		r := router.New(&router.Options{Limits: router.Limits{QueueMessages: 20}, SlowConsumer: router.DropNewest})
		router.Topic(r, "feed/{name}", &router.TopicOptions{
			History: router.History{Messages: 1000}, Authorize: permit,
		})
		client := routertest.Dial(t, r)
		conn := onlyConn(t, r)
		client.Pause()
		client.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"feed/a","positions":true}}`)
		for range 100 {
			_ = conn.Send(Blob{Text: strings.Repeat("x", 4000)})
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
			History: router.History{Messages: 100}, Authorize: permit,
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
			History: router.History{Messages: 10}, Authorize: permit,
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

// TestFollower_ClientOfManyTopicsRecoversWhatFitsIntoTheQueue sends 50 subscriptions at once, which
// have missed more than the send queue holds. A connection that is closed because of that would be
// closed again when the client returns.
func TestFollower_ClientOfManyTopicsRecoversWhatFitsIntoTheQueue(t *testing.T) {
	const topics, each = 50, 30
	for name, limits := range map[string]router.Limits{
		"messages": {QueueMessages: 400},
		"bytes":    {QueueBytes: 400 * 250},
	} {
		runSynctest(t, name, func(t *testing.T) {
			r := newFeedRouterWith(limits)
			epochs := make([]string, topics)
			for n := range epochs {
				for range each {
					at, err := publishStored(t.Context(), r, fmt.Sprintf("feed/%d", n), Blob{Text: strings.Repeat("x", 140)})
					require.NoError(t, err)
					epochs[n] = at.Epoch
				}
			}
			client := routertest.Dial(t, r)
			client.Pause()
			time.AfterFunc(time.Second, client.Resume) // the server does not read while the client does not
			for n, epoch := range epochs {
				client.SendText(fmt.Sprintf(`{"type":"$ws:subscribe","meta":{"correlationId":"s%d"},"payload":{"topic":"feed/%d","epoch":%q,"offset":0}}`, n, n, epoch))
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			answers, recovered, publications := 0, 0, 0
			for client.Pending() > 0 {
				frame := client.Next()
				if frame.Type == "BLOB" {
					publications++
					continue
				}
				require.Equal(t, "$ws:subscribed", frame.Type, frame.Text)
				var answer subscribed
				require.NoError(t, json.Unmarshal(frame.Payload, &answer))
				if answers++; answer.Recovered {
					recovered++
					assert.Zero(t, answer.Offset)
				} else {
					assert.EqualValues(t, each, answer.Offset)
				}
			}
			assert.Equal(t, topics, answers)
			assert.Equal(t, each*recovered, publications)
			assert.GreaterOrEqual(t, recovered, 5)
			assert.Less(t, recovered, topics)
			assert.Len(t, collect(r), 1, "the connection is open")
		})
	}
}

func newFeedRouterWith(limits router.Limits) *router.Router {
	r := router.New(&router.Options{Limits: limits})
	router.Topic(r, "feed/{name}", &router.TopicOptions{
		History: router.History{Messages: 100}, Authorize: permit,
	})
	return r
}

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
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func TestState_LateJoinersReceiveEveryKey(t *testing.T) {
	for name, opts := range map[string][]routertest.Option{"JSON": nil, "CBOR": {routertest.Codec(cbor.New(nil))}} {
		runSynctest(t, name, func(t *testing.T) {
			shared := memory.NewBroker()
			nodes := []*router.Router{newStateRouter(shared, 1, nil), newStateRouter(shared, 1, nil)}
			log := newQuoteLog()
			first := &board{t: t, log: log}
			first.dial(nodes[0], opts...)
			assert.Equal(t, 0, *first.answer.State, "no key has a state")
			log.publish(t, nodes[0], "go", 1)
			log.publish(t, nodes[0], "js", 2)
			log.publish(t, nodes[1], "c", 3)
			log.publish(t, nodes[1], "go", 4)
			log.publish(t, nodes[0], "js", 0)
			late := &board{t: t, log: log}
			late.dial(nodes[1], opts...)
			assert.Equal(t, map[string]int{"go": 4, "c": 3}, late.quotes)
			assert.EqualValues(t, 5, late.offset)
			log.publish(t, nodes[0], "c", 0)
			log.publish(t, nodes[0], "js", 6)
			synctest.Wait()
			for _, b := range []*board{first, late} {
				b.receive()
				assert.Equal(t, map[string]int{"go": 4, "js": 6}, b.quotes)
				assert.EqualValues(t, 7, b.offset)
				assert.Equal(t, 1, b.states)
			}
		})
	}
}

func TestState_ReturningClientNeedsItOnlyIfItsPositionIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStateRouter(nil, 3, nil)
		log := newQuoteLog()
		log.publish(t, r, "go", 1)
		b := &board{t: t, log: log}
		b.dial(r)
		assert.Equal(t, 1, b.states)
		b.client.Close()
		log.publish(t, r, "js", 2)
		log.publish(t, r, "go", 0)
		b.dial(r)
		assert.Equal(t, 1, b.states, "the history contains what it has missed")
		assert.Equal(t, map[string]int{"js": 2}, b.quotes)
		b.client.Close()
		for n := range 4 {
			log.publish(t, r, "c", 4+n)
		}
		b.dial(r)
		assert.Equal(t, 2, b.states)
		assert.False(t, b.answer.Recovered)
		assert.Equal(t, map[string]int{"js": 2, "c": 7}, b.quotes)
	})
}

// TestState_ReplacesMissedPublicationsThatAreTooLong lets a client miss many publications of one key.
func TestState_ReplacesMissedPublicationsThatAreTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStateRouter(nil, 100, &router.Options{Limits: router.Limits{QueueBytes: 2000}})
		log := newQuoteLog()
		log.publish(t, r, "go", 1)
		b := &board{t: t, log: log}
		for n := range 2 {
			b.dial(r)
			assert.Equal(t, 1+n, b.states)
			assert.Equal(t, n == 0, b.answer.Recovered)
			b.client.Close()
			for n := range 20 {
				log.publish(t, r, "js", 2+n)
			}
		}
		assert.Equal(t, map[string]int{"go": 1, "js": 21}, b.quotes)
	})
}

// TestState_ThatLacksTheFormatIsAnError stores a message on a node without codecs.
func TestState_ThatLacksTheFormatIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memory.NewBroker()
		plain := router.New(&router.Options{Broker: shared})
		router.Topic(plain, "feed/{name}", &router.TopicOptions{History: router.History{Messages: 1}})
		log := newQuoteLog()
		log.publish(t, plain, "go", 1)
		r := newStateRouter(shared, 1, discardLogs(router.Options{}))
		client := routertest.Dial(t, r, routertest.Codec(cbor.New(nil)))
		client.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"feed/a","state":true}}`)
		assert.Equal(t, errors.FailedPrecondition, routertest.ReceiveError(client).Code)
		b := &board{t: t, log: log}
		b.dial(r)
		assert.Equal(t, map[string]int{"go": 1}, b.quotes)
		log.publish(t, r, "go", 2)
		client.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"t"},"payload":{"topic":"feed/a","state":true}}`)
		assert.Equal(t, "$ws:subscribed", client.Next().Type)
		assert.Equal(t, 2, routertest.Receive[Quote](client).N)
	})
}

// TestState_RepairsALoss loses a burst between two nodes, more than the history holds.
func TestState_RepairsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := unreliable()
		one, two := newStateRouter(shared.Broker, 1, nil), newStateRouter(shared, 1, nil)
		log := newQuoteLog()
		b := &board{t: t, log: log}
		b.dial(two)
		shared.drop.Store(true)
		for n := range 5 {
			log.publish(t, one, fmt.Sprint(n), n+1)
		}
		log.publish(t, one, "0", 0)
		synctest.Wait()
		shared.drop.Store(false)
		time.Sleep(time.Minute) // the check of an idle topic finds the loss
		b.receive()
		assert.Equal(t, 1, b.losses)
		assert.Empty(t, b.epoch)
		b.subscribe()
		synctest.Wait()
		b.receive()
		assert.Equal(t, 2, b.states)
		assert.Equal(t, map[string]int{"1": 2, "2": 3, "3": 4, "4": 5}, b.quotes)
		log.publish(t, one, "4", 0)
		synctest.Wait()
		b.receive()
		assert.EqualValues(t, 7, b.offset)
	})
}

// TestState_OfAnySizeIsJoined asks for a state that is larger than the send queue, by the number and by
// the length of its messages, in a new connection and in one that is subscribed.
func TestState_OfAnySizeIsJoined(t *testing.T) {
	for name, limits := range map[string]router.Limits{
		"messages": {QueueMessages: 10}, "one message": {QueueMessages: 1}, "bytes": {QueueBytes: 1500}, "few bytes": {QueueBytes: 500},
	} {
		runSynctest(t, name, func(t *testing.T) {
			r := newStateRouter(nil, 1, &router.Options{Limits: limits})
			log := newQuoteLog()
			for n := range 100 {
				log.publish(t, r, fmt.Sprint(n), n+1)
			}
			b := &board{t: t, log: log}
			b.dial(r)
			for states := 1; states <= 2; states++ {
				assert.Equal(t, log.at(100), b.quotes)
				assert.NotEmpty(t, b.epoch, "the state is complete")
				assert.Equal(t, states, b.states)
				assert.Equal(t, 100, *b.answer.State+b.later, "each key arrives once")
				b.epoch = ""
				b.subscribe()
				synctest.Wait()
				b.receive()
			}
		})
	}
}

// TestState_SlowReaderIsDisconnectedAndReturns publishes to a client that does not read.
func TestState_SlowReaderIsDisconnectedAndReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStateRouter(nil, 1, &router.Options{Limits: router.Limits{QueueMessages: 50}, SlowConsumer: router.Conflate})
		log := newQuoteLog()
		for n := range 20 {
			log.publish(t, r, fmt.Sprint(n), 1)
		}
		b := &board{t: t, log: log, client: routertest.Dial(t, r)}
		b.client.Pause()
		b.subscribe()
		synctest.Wait()
		for n := range 200 {
			log.publish(t, r, fmt.Sprint(n%20), n+2)
		}
		b.client.Resume()
		assert.Equal(t, router.StatusTryAgainLater, b.client.Closed().Code)
		b.receive()
		assert.Less(t, b.offset, uint64(220))
		b.dial(r)
		assert.EqualValues(t, 220, b.offset)
		assert.Equal(t, log.at(220), b.quotes)
	})
}

// TestState_StoreThatIsAwayDelaysSubscription also lets the first attempts fail.
func TestState_StoreThatIsAwayDelaysSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := unreliable()
		r := newStateRouter(shared, 1, nil)
		log := newQuoteLog()
		log.publish(t, r, "go", 1)
		shared.away.Store(true)
		b := &board{t: t, log: log}
		b.dial(r)
		time.Sleep(3 * time.Second)
		assert.Zero(t, b.client.Pending())
		shared.away.Store(false)
		b.handle(b.client.Next())
		b.handle(b.client.Next())
		assert.Equal(t, map[string]int{"go": 1}, b.quotes)
	})
}

// TestState_IsReadAgain lets two attempts fail, and then all of them.
func TestState_IsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := unreliable()
		r := newStateRouter(shared, 1, nil)
		log := newQuoteLog()
		log.publish(t, r, "go", 1)
		shared.ahead.Store(2)
		b := &board{t: t, log: log}
		b.dial(r)
		assert.Equal(t, 1, *b.answer.State)
		assert.Equal(t, map[string]int{"go": 1}, b.quotes)
		shared.ahead.Store(3)
		b.epoch = "" // it wants the state
		b.subscribe()
		synctest.Wait()
		err := routertest.ReceiveError(b.client)
		assert.Equal(t, errors.Unavailable, err.Code)
		assert.True(t, err.Retryable())
		log.publish(t, r, "go", 2)
		synctest.Wait()
		b.receive()
		assert.Equal(t, 2, b.quotes["go"], "it remains subscribed")
	})
}

func TestState_UnsubscribeWhileItIsReadEndsTheSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := unreliable()
		r := newStateRouter(shared, 1, nil)
		log := newQuoteLog()
		other := &board{t: t, log: log} // so that the topic remains
		other.dial(r)
		conn := onlyConn(t, r)
		shared.slow.Store(true)
		client := routertest.Dial(t, r)
		var waiting *router.Conn
		for _, c := range collect(r) {
			if c != conn {
				waiting = c
			}
		}
		client.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"feed/a","state":true}}`)
		time.Sleep(time.Second)
		waiting.Unsubscribe("feed/a")
		shared.slow.Store(false)
		time.Sleep(time.Second)
		assert.Equal(t, errors.Canceled, routertest.ReceiveError(client).Code)
		log.publish(t, r, "go", 1)
		synctest.Wait()
		assert.Zero(t, client.Pending())
	})
}

package router_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// smallQueue makes the parts of a state short.
func smallQueue() *router.Options {
	return discardLogs(router.Options{Limits: router.Limits{QueueBytes: 3000}})
}

// fill publishes quotes of symbols with the names 0 to n-1.
func (l *quoteLog) fill(t *testing.T, r *router.Router, n int) {
	t.Helper()
	for i := range n {
		l.publish(t, r, fmt.Sprint(i), i+1)
	}
}

// startJoin returns a board that does not read, whose server has sent the first part of a state.
func startJoin(t *testing.T, r *router.Router, log *quoteLog) *board {
	b := &board{t: t, log: log, client: routertest.Dial(t, r)}
	b.client.Pause()
	b.subscribe()
	synctest.Wait()
	return b
}

// read reads until nothing arrives.
func (b *board) read() {
	b.t.Helper()
	b.client.Resume()
	synctest.Wait()
	b.receive()
}

// TestStateParts_ChangesReachJoiners sets and removes keys while clients that read in bursts receive the
// state in parts, on two nodes.
func TestStateParts_ChangesReachJoiners(t *testing.T) {
	t.Parallel()
	for seed := range testscale.Tiers[uint64](2, 3, 20) {
		runSynctest(t, fmt.Sprint(seed), func(t *testing.T) { joinInParts(t, seed) })
	}
}

func joinInParts(t *testing.T, seed uint64) {
	const keys, clients, publications = 200, 4, 400
	shared := memory.NewBroker()
	nodes := []*router.Router{newStateRouter(shared, 1000, smallQueue()), newStateRouter(shared, 1000, smallQueue())}
	log := newQuoteLog()
	log.fill(t, nodes[0], keys)
	var wg sync.WaitGroup
	wg.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 1))
		for n := range publications {
			log.publish(t, nodes[rng.IntN(2)], fmt.Sprint(rng.IntN(keys+20)), (n+1)*min(rng.IntN(3), 1))
			time.Sleep(time.Duration(rng.IntN(4)) * time.Millisecond)
		}
	})
	boards := make([]*board, clients)
	later := 0
	for i := range boards {
		boards[i] = &board{t: t, log: log}
		rng := rand.New(rand.NewPCG(seed, uint64(2+i)))
		wg.Go(func() {
			for range 6 {
				b := &board{t: t, log: log}
				b.client = routertest.Dial(t, nodes[rng.IntN(2)])
				b.subscribe()
				for range 30 {
					b.client.Pause()
					time.Sleep(time.Duration(rng.IntN(4)) * time.Millisecond)
					b.client.Resume()
					time.Sleep(time.Millisecond)
					b.receive()
				}
				boards[i].client = b.client
				*boards[i] = *b
			}
		})
	}
	wg.Wait()
	synctest.Wait()
	for _, b := range boards {
		b.read()
		assert.NotEmpty(t, b.epoch, "the state is complete")
		assert.EqualValues(t, keys+publications, b.offset)
		assert.Equal(t, log.at(keys+publications), b.quotes)
		later += b.later
	}
	assert.Greater(t, later, 100)
}

// TestStateParts_EndWithTheSubscription ends the subscription of a client that has received a part.
func TestStateParts_EndWithTheSubscription(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, r *router.Router, c *router.Conn, client *routertest.Conn){
		"by a handler": func(_ *testing.T, _ *router.Router, c *router.Conn, _ *routertest.Conn) { c.Unsubscribe("feed/a") },
		"by Revoke": func(t *testing.T, r *router.Router, _ *router.Conn, _ *routertest.Conn) {
			require.NoError(t, r.Revoke(t.Context(), "t", "ann", "feed/a"))
		},
		"by the client": func(_ *testing.T, _ *router.Router, _ *router.Conn, client *routertest.Conn) {
			// The server reads it later if its queue is too long.
			go client.SendText(`{"type":"$ws:unsubscribe","meta":{"correlationId":"u"},"payload":{"topic":"feed/a"}}`)
		},
	} {
		runSynctest(t, name, func(t *testing.T) {
			opts := smallQueue()
			opts.Authenticate = byUserToken
			r := newStateRouter(nil, 1, opts)
			log := newQuoteLog()
			log.fill(t, r, 400)
			b := &board{t: t, log: log, client: routertest.Dial(t, r, routertest.Token("ann"))}
			b.client.Pause()
			b.subscribe()
			synctest.Wait()
			end(t, r, onlyConn(t, r), b.client)
			synctest.Wait()
			b.client.Resume()
			synctest.Wait()
			parts := 0
			for b.client.Pending() > 0 {
				switch frame := b.client.Next(); frame.Type {
				case "QUOTE":
					parts++
				default:
					assert.NotEqual(t, "$ws:state", frame.Type)
				}
			}
			assert.Less(t, parts, 200)
			log.publish(t, r, "go", 1)
			synctest.Wait()
			assert.Zero(t, b.client.Pending())
		})
	}
}

// TestStateParts_AskingAgainBeginsAgain subscribes a second time before the state is complete.
func TestStateParts_AskingAgainBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStateRouter(nil, 1, smallQueue())
		log := newQuoteLog()
		log.fill(t, r, 100)
		b := &board{t: t, log: log, client: routertest.Dial(t, r)}
		b.client.Pause()
		b.subscribe()
		// The server may not read this before the client reads.
		go b.client.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"again"},"payload":{"topic":"feed/a","state":true}}`)
		synctest.Wait()
		b.read()
		assert.Equal(t, 2, b.states)
		assert.Equal(t, log.at(100), b.quotes)
		assert.NotEmpty(t, b.epoch)
		assert.Equal(t, 100, *b.answer.State+b.later)
	})
}

// TestStateParts_BrokerThatFailsEndsTheSubscription reads some parts, and then the store is away.
func TestStateParts_BrokerThatFailsEndsTheSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports recorder[string]
		opts := smallQueue()
		opts.OnError = func(e router.ErrorReport) { reports.add(e.Type + " " + e.Err.Error()) }
		shared := unreliable()
		r := newStateRouter(shared, 1, opts)
		log := newQuoteLog()
		log.fill(t, r, 100)
		b := startJoin(t, r, log)
		shared.away.Store(true)
		b.read()
		assert.True(t, b.more, "the store may come back")
		time.Sleep(time.Minute)
		b.receive()
		assert.Less(t, len(b.quotes), 100)
		require.NotNil(t, b.answer.Error)
		assert.Equal(t, errors.Unavailable, b.answer.Error.Code)
		assert.True(t, b.answer.Error.Retryable)
		require.Len(t, reports.all(), 1)
		assert.Contains(t, reports.all()[0], "the broker has not returned a part")
		assert.False(t, onlyConn(t, r).Subscribed("feed/a"))
		shared.away.Store(false)
		b.subscribe()
		b.read()
		assert.Equal(t, log.at(100), b.quotes)
	})
}

// TestStateParts_PublicationsOfTheNodeItselfReplaceKeys publishes while a part waits for a client
// that does not read. The broker passes nothing on.
func TestStateParts_PublicationsOfTheNodeItselfReplaceKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := unreliable()
		opts := smallQueue()
		opts.Limits.QueueBytes = 8000
		r := newStateRouter(shared, 1, opts)
		log := newQuoteLog()
		log.fill(t, r, 200)
		shared.drop.Store(true)
		b := startJoin(t, r, log)
		for n := range 20 {
			log.publish(t, r, fmt.Sprint(199-10*n), (n%2)*1000)
		}
		b.read()
		assert.NotEmpty(t, b.epoch, "the state is complete")
		assert.Equal(t, log.at(220), b.quotes)
	})
}

// TestStateParts_LongPublicationWaitsForRoom joins a state whose only publication nearly fills the
// send queue, while some others are in it.
func TestStateParts_LongPublicationWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newStateRouter(nil, 1, smallQueue())
		log := newQuoteLog()
		log.publish(t, r, strings.Repeat("x", 2700), 1)
		b := &board{t: t, log: log, client: routertest.Dial(t, r)}
		require.NoError(t, onlyConn(t, r).Subscribe("other"))
		b.client.Pause()
		for range 5 {
			require.NoError(t, r.Publish("other", Blob{}))
		}
		b.subscribe()
		synctest.Wait()
		b.client.Resume()
		for range 5 {
			assert.Equal(t, "BLOB", b.client.Next().Type)
		}
		synctest.Wait()
		b.receive()
		assert.Equal(t, log.at(1), b.quotes)
		assert.NotEmpty(t, b.epoch)
	})
}

// TestStateParts_StoreThatIsBackContinues lets the store be away for less than Timeouts.Call.
func TestStateParts_StoreThatIsBackContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := unreliable()
		r := newStateRouter(shared, 1, smallQueue())
		log := newQuoteLog()
		log.fill(t, r, 100)
		b := startJoin(t, r, log)
		shared.away.Store(true)
		b.read()
		time.Sleep(10 * time.Second)
		shared.away.Store(false)
		time.Sleep(10 * time.Second)
		b.receive()
		assert.Equal(t, log.at(100), b.quotes)
		assert.Equal(t, 1, b.states)
	})
}

// TestStateParts_ClientThatDoesNotReadEndsItsSubscription waits for longer than ten minutes, but
// not for as long as a connection that is not read stays open.
func TestStateParts_ClientThatDoesNotReadEndsItsSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := smallQueue()
		opts.Timeouts = router.Timeouts{Message: time.Hour, Ping: time.Hour, Call: time.Hour}
		r := newStateRouter(nil, 1, opts)
		log := newQuoteLog()
		log.fill(t, r, 100)
		b := startJoin(t, r, log)
		time.Sleep(11 * time.Minute)
		assert.False(t, onlyConn(t, r).Subscribed("feed/a"))
		b.read()
		require.NotNil(t, b.answer.Error)
		assert.Equal(t, errors.DeadlineExceeded, b.answer.Error.Code)
	})
}

// TestStateParts_HandlerSubscribesAClientThatHasNotGreeted also lets the client greet between the parts.
func TestStateParts_HandlerSubscribesAClientThatHasNotGreeted(t *testing.T) {
	for _, greets := range []bool{false, true} {
		runSynctest(t, fmt.Sprint("greets ", greets), func(t *testing.T) {
			opts := smallQueue()
			opts.Resume = router.ResumeOptions{Within: time.Minute}
			opts.Authenticate = byUserToken
			r := newStateRouter(nil, 1, opts)
			var recovery router.Recovery
			router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
				var err error
				recovery, err = subscribeState(ctx, "feed/a")
				return Echoed(m), err
			})
			log := newQuoteLog()
			log.fill(t, r, 100)
			client := routertest.Dial(t, r, routertest.Token("ann"))
			client.Pause()
			client.SendText(`{"type":"ECHO","meta":{"correlationId":"e"},"payload":{}}`)
			synctest.Wait()
			if greets {
				go client.SendText(`{"type":"$ws:hello","meta":{"correlationId":"h"},"payload":{"session":true}}`) // may wait for the parts
				synctest.Wait()
			}
			client.Resume()
			synctest.Wait()
			types := map[string]int{}
			for client.Pending() > 0 {
				types[client.Next().Type]++
			}
			assert.True(t, recovery.More)
			assert.Less(t, recovery.State, 100)
			assert.Equal(t, 100, types["QUOTE"])
			if !greets {
				assert.Zero(t, types["$ws:state"], "a client that has not greeted knows no such message")
			}
		})
	}
}

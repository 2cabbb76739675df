package router_test

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
)

// A conversation counts what a client has sent and received.
type conversation struct {
	client   *routertest.Conn
	requests int
	answers  int
	sent     map[string]int // requests by ID
	answered map[string]int // answers by ID
}

// send sends a random message.
func (c *conversation) send(rng *rand.Rand) {
	id := fmt.Sprint(rng.IntN(20))
	request := func(text string) {
		c.requests++
		c.sent[id]++
		c.client.SendText(text)
	}
	switch rng.IntN(9) {
	case 0:
		request(callText(id, ""))
	case 1:
		request(fmt.Sprintf(`{"type":"ECHO","meta":{"correlationId":%q,"timeoutMs":%d},"payload":{"n":-1,"text":""}}`, id, 1+rng.IntN(50)))
	case 2:
		request(fmt.Sprintf(`{"type":"BLOCK","meta":{"correlationId":%q,"credit":%d}}`, id, rng.IntN(5)))
	case 3:
		request(fmt.Sprintf(`{"type":"BLOCK","meta":{"correlationId":%q,"timeoutMs":%d}}`, id, 1+rng.IntN(50)))
	case 4:
		request(lateMeta("BLOCK", fmt.Sprintf(`"correlationId":%q,"timeoutMs":%d`, id, 1+rng.IntN(50))))
	case 5:
		c.client.SendText(fmt.Sprintf(`{"type":"$ws:credit","meta":{"correlationId":%q,"credit":%d}}`, id, rng.IntN(5)))
	case 6, 7:
		c.client.SendText(abortText(id))
	case 8:
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
	}
}

// receive receives everything that has arrived. A progress message must belong to a request without an
// answer.
func (c *conversation) receive(t *testing.T) {
	t.Helper()
	for c.client.Pending() > 0 {
		frame := c.client.Next()
		id := frame.Meta.CorrelationID
		switch {
		case frame.Type != "$ws:rpc-progress":
			c.answers++
			c.answered[id]++
		case c.answered[id] >= c.sent[id]:
			t.Errorf("progress of %q follows its answer", id)
		}
	}
}

// TestConversation_EveryRequestHasOneAnswer sends random calls, streams, credits and aborts, with IDs
// that repeat, in two formats, and then shuts the router down.
func TestConversation_EveryRequestHasOneAnswer(t *testing.T) {
	for seed := range testscale.Tiers[uint64](4, 10, 20) {
		runSynctest(t, fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			var open atomic.Int64
			r := router.New(discardLogs(router.Options{Codecs: []router.Codec{cbor.New(nil)}, Limits: router.Limits{Concurrency: 10}}))
			r.Observe(func(e observe.Event) {
				switch e.Kind {
				case observe.Started:
					open.Add(1)
				case observe.Finished:
					open.Add(-1)
				}
			})
			router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
				if m.N < 0 {
					<-ctx.Done()
				}
				return Echoed(m), ctx.Err()
			})
			router.Stream(r, func(ctx *router.Context, _ Block) iter.Seq2[int, error] {
				return func(yield func(int, error) bool) {
					for n := range 20 {
						time.Sleep(time.Millisecond)
						if !yield(n, nil) {
							return
						}
					}
				}
			})
			var opts []routertest.Option
			if seed%2 == 1 {
				opts = append(opts, routertest.Codec(cbor.New(nil)))
			}
			c := &conversation{client: routertest.Dial(t, r, opts...), sent: map[string]int{}, answered: map[string]int{}}
			for range 300 {
				c.send(rng)
				if rng.IntN(10) == 0 {
					synctest.Wait()
					c.receive(t)
				}
			}
			done := make(chan error, 1)
			synctest.Wait()
			go func() { done <- r.Shutdown(t.Context()) }()
			require.NoError(t, <-done)
			synctest.Wait()
			c.receive(t)
			assert.Equal(t, c.requests, c.answers)
			assert.Zero(t, open.Load())
			assert.Equal(t, router.StatusServiceRestart, c.client.Closed().Code)
		})
	}
}

// formats are options for clients of every payload format.
func formats() map[string][]routertest.Option {
	return map[string][]routertest.Option{"JSON": nil, "CBOR": {routertest.Codec(cbor.New(nil))}}
}

// blockUntilAborted is a stream without items that ends with its context.
func blockUntilAborted(ctx *router.Context, _ Block) iter.Seq2[int, error] {
	return func(func(int, error) bool) { <-ctx.Done() }
}

// TestAck_EveryProtocolType asks for the acknowledgment of each message of the protocol.
func TestAck_EveryProtocolType(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		then       []string // types that follow the acknowledgment
	}{
		{"heartbeat", `{"type":"__heartbeat","meta":{"correlationId":"a","ack":true}}`, []string{"__heartbeat_ack"}},
		{"greeting", `{"type":"$ws:hello","meta":{"correlationId":"a","ack":true}}`, []string{"$ws:welcome"}},
		{"refresh", `{"type":"$ws:auth","meta":{"correlationId":"a","ack":true},"payload":{"token":"ann"}}`, []string{"$ws:authenticated"}},
		{"subscribe", `{"type":"$ws:subscribe","meta":{"correlationId":"a","ack":true},"payload":{"topic":"room/go","presence":true}}`, []string{"$ws:subscribed"}},
		{"subscribe, rejected later", `{"type":"$ws:subscribe","meta":{"correlationId":"a","ack":true},"payload":{"topic":"other"}}`, []string{"RPC_ERROR"}},
		{"unsubscribe", `{"type":"$ws:unsubscribe","meta":{"correlationId":"a","ack":true},"payload":{"topic":"room/go"}}`, []string{"$ws:unsubscribed"}},
		{"abort of an unknown call", `{"type":"$ws:abort","meta":{"correlationId":"a","ack":true}}`, nil},
		{"abort", `{"type":"$ws:abort","meta":{"correlationId":"open","ack":true}}`, []string{"RPC_ERROR"}},
		{"credit", `{"type":"$ws:credit","meta":{"correlationId":"open","ack":true,"credit":5}}`, nil},
		{"late answer", `{"type":"ECHOED","meta":{"correlationId":"$ws:9","ack":true}}`, nil},
	} {
		for name, opts := range formats() {
			runSynctest(t, tt.name+"/"+name, func(t *testing.T) {
				r := router.New(discardLogs(router.Options{
					Codecs:       []router.Codec{cbor.New(nil)},
					Authenticate: byUser,
				}))
				router.Topic(r, "room/{id}", &router.TopicOptions{Presence: true, Authorize: permit})
				router.Stream(r, blockUntilAborted)
				client := routertest.Dial(t, r, append(opts, routertest.Token("ann"))...)
				client.SendText(`{"type":"BLOCK","meta":{"correlationId":"open","credit":0}}`)
				synctest.Wait()
				client.SendText(tt.text)
				synctest.Wait()
				frame := client.Next()
				assert.Equal(t, "$ws:ack", frame.Type)
				assert.Contains(t, tt.text, `"correlationId":"`+frame.Meta.CorrelationID+`"`)
				for _, typ := range tt.then {
					assert.Equal(t, typ, client.Next().Type)
				}
				assert.Zero(t, client.Pending())
			})
		}
	}
}

func TestStream_ExpiryOfTheIdentityEndsIt(t *testing.T) {
	for name, opts := range formats() {
		runSynctest(t, name, func(t *testing.T) {
			ended := make(chan time.Duration, 1)
			var reports recorder[router.ErrorReport]
			start := time.Now()
			r := router.New(discardLogs(router.Options{
				Codecs:  []router.Codec{cbor.New(nil)},
				OnError: reports.add,
				Authenticate: func(*http.Request) (router.Identity, error) {
					return router.Identity{UserID: "ann", ExpiresAt: start.Add(1500 * time.Millisecond)}, nil
				},
			}))
			router.Stream(r, func(ctx *router.Context, _ Block) iter.Seq2[int, error] {
				return func(yield func(int, error) bool) {
					defer func() { ended <- time.Since(start) }()
					for n := range 100 {
						if !yield(n, nil) {
							return
						}
						time.Sleep(time.Second)
					}
				}
			})
			client := routertest.Dial(t, r, opts...)
			stream := routertest.Start(client, Block{})
			assert.Equal(t, 0, routertest.NextItem[int](stream))
			assert.Equal(t, 1, routertest.NextItem[int](stream))
			assert.Equal(t, router.StatusUnauthenticated, client.Closed().Code)
			assert.Equal(t, 2*time.Second, <-ended, "the next item is not sent")
			synctest.Wait()
			assert.Empty(t, reports.all(), "a client that leaves is no error of the server")
			assert.Empty(t, collect(r))
		})
	}
}

func TestSubscribe_IsRejectedWhileTheConnectionIsDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(discardLogs(router.Options{}))
		router.Topic(r, "room/{id}", &router.TopicOptions{Authorize: permit})
		proceed := make(chan struct{})
		router.RPC(r, func(*router.Context, Block) (Blocked, error) { <-proceed; return Blocked{}, nil })
		client := routertest.Dial(t, r)
		call := routertest.Start(client, Block{})
		synctest.Wait()
		conn := onlyConn(t, r)
		ended := make(chan error, 1)
		go func() { ended <- r.Shutdown(t.Context()) }()
		synctest.Wait()
		assert.Equal(t, errors.Unavailable, routertest.SubscribeError(client, "room/go").Code)
		assert.False(t, conn.Subscribed("room/go"))
		client.SendText(`{"type":"__heartbeat"}`)
		assert.Equal(t, "__heartbeat_ack", client.Next().Type, "the client can see that the connection is alive")
		close(proceed)
		routertest.ReceiveAnswer[Blocked](call)
		require.NoError(t, <-ended)
		assert.Equal(t, router.StatusServiceRestart, client.Closed().Code)
	})
}

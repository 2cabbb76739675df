package router_test

import (
	"iter"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

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
					Codecs: []router.Codec{cbor.New(nil)},
					Authenticate: func(req *http.Request) (router.Identity, error) {
						return router.Identity{UserID: router.Token(req)}, nil
					},
				}))
				router.Topic(r, "room/{id}", &router.TopicOptions{Presence: true, Authorize: func(*router.Context, router.TopicMatch) error { return nil }})
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
		router.Topic(r, "room/{id}", &router.TopicOptions{Authorize: func(*router.Context, router.TopicMatch) error { return nil }})
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

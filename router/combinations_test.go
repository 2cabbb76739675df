package router_test

import (
	"iter"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/codec/cbor"
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

package router_test

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/codec/protobuf"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/chatpb"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestCodec_ProtocolMessagesAreJSON uses the protocol's own calls and messages on a connection with
// CBOR, beside a client with JSON.
func TestCodec_ProtocolMessagesAreJSON(t *testing.T) {
	r := router.New(discardLogs(router.Options{Codecs: []router.Codec{cbor.New(nil)}}))
	router.Topic(r, "room/{id}", &router.TopicOptions{
		Presence:  true,
		Authorize: func(*router.Context, router.TopicMatch) error { return nil },
	})
	server := httptest.NewServer(r)
	defer server.Close()
	c := dialBinary(t, server.URL, cbor.Subprotocol)
	next := func(typ, correlationID string) (payload map[string]any) {
		t.Helper()
		head, raw := c.next()
		require.Equal(t, typ, head.Type)
		assert.Equal(t, correlationID, head.Meta.CorrelationID)
		require.NoError(t, json.Unmarshal(raw, &payload), "%q", raw)
		return payload
	}

	c.send(`{"type":"$ws:hello","meta":{"correlationId":"h"}}`, nil)
	assert.EqualValues(t, 65536, next("$ws:welcome", "h")["maxMessageBytes"])
	c.send(`{"type":"$ws:subscribe","meta":{"correlationId":"s"}}`, []byte(`{"topic":"room/go","presence":true}`))
	answer := next("$ws:subscribed", "s")
	assert.Equal(t, "room/go", answer["topic"])
	assert.Len(t, answer["members"], 1)
	c.send(`{"type":"$ws:subscribe","meta":{"correlationId":"t"}}`, []byte("\xa1"))
	c.nextError("RPC_ERROR", errors.InvalidArgument)

	plain, _, err := websocket.Dial(t.Context(), server.URL, nil)
	require.NoError(t, err)
	defer plain.CloseNow()
	text := func() string {
		typ, message, err := plain.Read(t.Context())
		require.NoError(t, err)
		assert.Equal(t, websocket.MessageText, typ)
		return string(message)
	}
	require.NoError(t, plain.Write(t.Context(), websocket.MessageText, []byte(`{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"room/go","presence":true}}`)))
	assert.Contains(t, text(), `"$ws:subscribed"`)
	assert.Len(t, next("$ws:presence", "")["joined"], 1)
	third := dialBinary(t, server.URL, cbor.Subprotocol)
	third.send(`{"type":"$ws:subscribe","meta":{"correlationId":"s"}}`, []byte(`{"topic":"room/go"}`))
	assert.Len(t, next("$ws:presence", "")["joined"], 1)
	assert.Contains(t, text(), `"$ws:presence"`)
}

// TestCodec_CallsToClients calls clients with every format, with messages that are pointers.
func TestCodec_CallsToClients(t *testing.T) {
	for name, opts := range map[string][]routertest.Option{
		"JSON": nil, "CBOR": {routertest.Codec(cbor.New(nil))}, "protobuf": {routertest.Codec(protobuf.Codec{})},
	} {
		runSynctest(t, name, func(t *testing.T) {
			r := router.New(&router.Options{Codecs: []router.Codec{cbor.New(nil), protobuf.Codec{}}})
			client := routertest.Dial(t, r, opts...)
			synctest.Wait()
			conns := collect(r)
			require.Len(t, conns, 1)
			routertest.Handle(client, func(m *chatpb.Say) (*chatpb.Said, error) {
				if m.GetText() == "" {
					return nil, errors.Errorf(errors.NotFound, "no text")
				}
				return &chatpb.Said{Text: m.GetText()}, nil
			})
			reply, err := router.Call[*chatpb.Said](t.Context(), conns[0], &chatpb.Say{Text: "hi"})
			require.NoError(t, err)
			assert.Equal(t, "hi", reply.GetText())
			_, err = router.Call[*chatpb.Said](t.Context(), conns[0], &chatpb.Say{})
			assert.Equal(t, errors.NotFound, errors.CodeOf(err))
		})
	}
}

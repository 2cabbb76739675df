package router_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	fxcbor "github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/codec/protobuf"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/chatpb"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A countingCodec is JSON behind a mark, as a format of its own. It counts its calls.
type countingCodec struct {
	name         string
	marshals     atomic.Int64
	unmarshals   atomic.Int64
	marshalError atomic.Pointer[string]
}

const codecMark = "\xffmark"

func (c *countingCodec) Subprotocol() string { return c.name }

func (c *countingCodec) Marshal(v any) ([]byte, error) {
	c.marshals.Add(1)
	if text := c.marshalError.Load(); text != nil {
		return nil, errors.New(*text)
	}
	b, err := json.Marshal(v)
	return append([]byte(codecMark), b...), err
}

func (c *countingCodec) Unmarshal(payload []byte, v any) error {
	c.unmarshals.Add(1)
	text, ok := strings.CutPrefix(string(payload), codecMark)
	if !ok {
		return errors.New("no mark")
	}
	return json.Unmarshal([]byte(text), v)
}

func newCountingCodec(name string) *countingCodec { return &countingCodec{name: name} }

// A binaryClient is a client that knows the layout only from the protocol.
type binaryClient struct {
	*testing.T
	ws *websocket.Conn
}

func dialBinary(t *testing.T, url, subprotocol string) binaryClient {
	ws, _, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{Subprotocols: []string{"chat.v1", subprotocol}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = ws.CloseNow() })
	require.Equal(t, subprotocol, ws.Subprotocol())
	return binaryClient{t, ws}
}

func (c binaryClient) send(head string, payload []byte) {
	c.Helper()
	message := append(binary.BigEndian.AppendUint16(nil, uint16(len(head))), head...)
	require.NoError(c, c.ws.Write(c.Context(), websocket.MessageBinary, append(message, payload...)))
}

type binaryHead struct {
	Type string `json:"type"`
	Meta struct {
		Timestamp     int64  `json:"timestamp"`
		TS            int64  `json:"ts"`
		CorrelationID string `json:"correlationId"`
	} `json:"meta"`
}

func (c binaryClient) next() (head binaryHead, payload []byte) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), 10*time.Second)
	defer cancel()
	typ, message, err := c.ws.Read(ctx)
	require.NoError(c, err)
	require.Equal(c, websocket.MessageBinary, typ)
	n := int(binary.BigEndian.Uint16(message))
	decoder := json.NewDecoder(strings.NewReader(string(message[2 : 2+n])))
	decoder.DisallowUnknownFields()
	require.NoError(c, decoder.Decode(&head))
	return head, message[2+n:]
}

// nextError requires the next message to be an error, whose payload is JSON in every format.
func (c binaryClient) nextError(typ string, code errors.Code) map[string]any {
	c.Helper()
	head, payload := c.next()
	assert.Equal(c, typ, head.Type)
	var e map[string]any
	require.NoError(c, json.Unmarshal(payload, &e), "%q", payload)
	assert.Equal(c, string(code), e["code"])
	return e
}

// TestCodec_CBORStory uses every kind of message over a socket.
func TestCodec_CBORStory(t *testing.T) {
	for name, compress := range map[string]int{"plain": 0, "compressed": 1} {
		t.Run(name, func(t *testing.T) {
			r := router.New(discardLogs(router.Options{Codecs: []router.Codec{cbor.New(nil)}, Subprotocols: []string{"chat.v1"}, CompressMinBytes: compress}))
			router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
				if m.N < 0 {
					return Echoed{}, errors.Errorf(errors.NotFound, "no such number")
				}
				return Echoed(m), ctx.Progress(map[string]int{"percent": 50})
			})
			router.On(r, func(ctx *router.Context, m Subscribe) error { return ctx.Subscribe(m.Room, router.Present("")) })
			router.On(r, func(ctx *router.Context, m Say) error { return ctx.Publish(m.Room, m) })
			router.On(r, func(ctx *router.Context, _ Nothing) error { return ctx.SendWait(Nothing{}) })
			server := httptest.NewServer(r)
			defer server.Close()
			c := dialBinary(t, server.URL, cbor.Subprotocol)
			encode := func(v any) []byte { b, err := fxcbor.Marshal(v); require.NoError(t, err); return b }
			decode := func(payload []byte) (v map[string]any) {
				require.NoError(t, fxcbor.Unmarshal(payload, &v), "%x", payload)
				return v
			}

			c.send(`{"type":"ECHO","meta":{"correlationId":"a"}}`, encode(map[string]int{"n": 7}))
			head, payload := c.next()
			assert.Equal(t, "$ws:rpc-progress", head.Type)
			assert.Equal(t, map[string]any{"percent": uint64(50)}, decode(payload))
			head, payload = c.next()
			assert.Equal(t, "ECHOED", head.Type)
			assert.Equal(t, "a", head.Meta.CorrelationID)
			assert.NotZero(t, head.Meta.Timestamp)
			assert.Equal(t, map[string]any{"n": uint64(7)}, decode(payload))

			c.send(`{"type":"ECHO","meta":{"correlationId":"b"}}`, encode(map[string]int{"n": -7}))
			c.nextError("RPC_ERROR", errors.NotFound)
			c.send(`{"type":"ECHO","meta":{"correlationId":"c"}}`, encode(map[string]string{"n": "x"}))
			e := c.nextError("RPC_ERROR", errors.InvalidArgument)
			assert.Equal(t, map[string]any{"field": "n", "reason": "must be an integer in range, not a text string"}, e["details"])
			c.send(`{"type":"ECHO"}`, nil)
			assert.Equal(t, "payload is missing", c.nextError("ERROR", errors.InvalidArgument)["message"])

			c.send(`{"type":"ECHO","meta":{"correlationId":"d","ack":true}}`, encode(map[string]int{"n": 7}))
			for _, want := range []string{"$ws:ack", "$ws:rpc-progress", "ECHOED"} {
				head, _ = c.next()
				assert.Equal(t, want, head.Type)
				assert.Equal(t, "d", head.Meta.CorrelationID)
			}
			c.send(`{"type":"$ws:abort","meta":{"correlationId":"unknown"}}`, nil)

			c.send(`{"type":"__heartbeat"}`, nil)
			head, payload = c.next()
			assert.Equal(t, "__heartbeat_ack", head.Type)
			assert.NotZero(t, head.Meta.TS)
			assert.Empty(t, payload)
			c.send(`{"type":"NOTHING"}`, nil)
			head, payload = c.next()
			assert.Equal(t, "NOTHING", head.Type)
			assert.Empty(t, payload)

			c.send(`{"type":"SUBSCRIBE"}`, encode(map[string]string{"room": "go"}))
			require.NoError(t, c.ws.Write(t.Context(), websocket.MessageText, []byte(`{"type":"SAY","payload":{"room":"go","text":"from text"}}`)))
			head, payload = c.next()
			assert.Equal(t, "SAY", head.Type)
			assert.Equal(t, map[string]any{"room": "go", "text": "from text"}, decode(payload))
		})
	}
}

// newProtoRouter returns a router whose messages are generated.
func newProtoRouter(codecs ...router.Codec) *router.Router {
	r := router.New(discardLogs(router.Options{Codecs: codecs, Subprotocols: []string{"chat.v1"}}))
	router.RPC(r, func(ctx *router.Context, m *chatpb.Say) (*chatpb.Said, error) {
		if m.Room == "nil" {
			return nil, nil
		}
		said := &chatpb.Said{Text: m.Text, Signature: []byte{0xff}, AnswerTo: &chatpb.Said{Text: ctx.Message().(*chatpb.Say).Room}}
		if err := ctx.Subscribe("room"); err != nil {
			return nil, err
		}
		return said, ctx.Publish("room", said)
	})
	return r
}

func TestCodec_ProtobufStory(t *testing.T) {
	server := httptest.NewServer(newProtoRouter(protobuf.Codec{}, cbor.New(nil)))
	defer server.Close()
	c := dialBinary(t, server.URL, protobuf.Subprotocol)
	encode := func(m proto.Message) []byte { b, err := proto.Marshal(m); require.NoError(t, err); return b }
	want := &chatpb.Said{Text: "hi", Signature: []byte{0xff}, AnswerTo: &chatpb.Said{Text: "go"}}
	c.send(`{"type":"SAY","meta":{"correlationId":"a"}}`, encode(&chatpb.Say{Room: "go", Text: "hi", Mentions: []int64{1, 2}}))
	for _, id := range []string{"", "a"} { // the publication, then the reply
		head, payload := c.next()
		assert.Equal(t, "SAID", head.Type)
		assert.Equal(t, id, head.Meta.CorrelationID)
		var got chatpb.Said
		require.NoError(t, proto.Unmarshal(payload, &got))
		assert.True(t, proto.Equal(want, &got), "%v", &got)
	}
	c.send(`{"type":"SAY","meta":{"correlationId":"b"}}`, []byte{0xff})
	assert.Equal(t, "payload is not valid for this message in Protocol Buffers", c.nextError("RPC_ERROR", errors.InvalidArgument)["message"])
	c.send(`{"type":"SAY","meta":{"correlationId":"c"}}`, encode(&chatpb.Say{Room: "nil"}))
	c.nextError("RPC_ERROR", errors.Internal)
	c.send(`{"type":"SAY","meta":{"correlationId":"d"}}`, nil) // all fields have their default values
	_, _ = c.next()
	head, _ := c.next()
	assert.Equal(t, "d", head.Meta.CorrelationID)
}

// TestCodec_PointerMessagesInEveryFormat sends generated messages, which are pointers, to clients with
// all formats.
func TestCodec_PointerMessagesInEveryFormat(t *testing.T) {
	r := newProtoRouter(protobuf.Codec{}, cbor.New(nil))
	want := &chatpb.Said{Text: "hi", Signature: []byte{0xff}, AnswerTo: &chatpb.Said{Text: "go"}}
	for name, opts := range map[string][]routertest.Option{"JSON": nil, "protobuf": {routertest.Codec(protobuf.Codec{})}} {
		t.Run(name, func(t *testing.T) {
			c := routertest.Dial(t, r, opts...)
			got := routertest.Call[*chatpb.Said](c, &chatpb.Say{Room: "go", Text: "hi"})
			assert.True(t, proto.Equal(want, got), "%v", got)
			assert.Equal(t, errors.Internal, routertest.CallError(c, &chatpb.Say{Room: "nil"}).Code, "a nil reply")
		})
	}
	c := routertest.Dial(t, r)
	c.SendText(`{"type":"SAY","meta":{"correlationId":"a"},"payload":null}`)
	for range 2 { // the publication and the reply
		assert.Equal(t, "SAID", c.Next().Type, "null is the zero message")
	}
	c.SendText(`{"type":"SAY","meta":{"correlationId":"b"}}`)
	assert.Equal(t, "payload is missing", routertest.ReceiveError(c).Message)
}

// validated is a pointer message with a Validate method.
type validated struct {
	N int `json:"n"`
}

func (*validated) MessageType() string { return "VALIDATED" }

func (m *validated) Validate() error {
	if m.N == 0 {
		return errors.InvalidField("n", "must not be 0")
	}
	return nil
}

func TestCodec_PointerMessagesAreValidated(t *testing.T) {
	var library recorder[any]
	r := router.New(&router.Options{Validate: func(m any) error { library.add(m); return nil }})
	router.RPC(r, func(_ *router.Context, m *validated) (Echoed, error) { return Echoed{m.N}, nil })
	c := routertest.Dial(t, r)
	assert.Equal(t, Echoed{3}, routertest.Call[Echoed](c, &validated{3}))
	assert.Equal(t, "n must not be 0", routertest.CallError(c, &validated{}).Message)
	assert.Equal(t, []any{&validated{3}}, library.all())
}

func TestCodec_NegotiatesSubprotocol(t *testing.T) {
	for offer, want := range map[string]struct {
		subprotocol string
		binary      bool
	}{
		"":                     {"", false},
		"chat.v1":              {"chat.v1", false},
		"chat.v1, a.v1":        {"a.v1", true},
		"a.v1, b.v1":           {"b.v1", true},
		"bearer.x, a.v1":       {"a.v1", true},
		"bearer.x":             {"bearer.x", false},
		"x.v1":                 {"", false},
		"chat.v1, x.v1, a.v1x": {"chat.v1", false},
	} {
		runSynctest(t, offer, func(t *testing.T) {
			a, b := newCountingCodec("a.v1"), newCountingCodec("b.v1")
			r := router.New(&router.Options{Codecs: []router.Codec{b, a}, Subprotocols: []string{"chat.v1"}})
			var opts []routertest.Option
			if offer != "" {
				opts = append(opts, routertest.Header("Sec-WebSocket-Protocol", offer))
			}
			c := routertest.Dial(t, r, opts...)
			synctest.Wait()
			require.Len(t, collect(r), 1)
			assert.Equal(t, want.subprotocol, collect(r)[0].Subprotocol())
			c.SendText(`{"type":"NOPE"}`)
			assert.Equal(t, want.binary, c.Next().Binary)
		})
	}
}

// TestCodec_CallsToClients calls clients with every format, with messages that are pointers.
func TestCodec_CallsToClients(t *testing.T) {
	for name, opts := range map[string][]routertest.Option{
		"JSON": nil, "protobuf": {routertest.Codec(protobuf.Codec{})},
	} {
		runSynctest(t, name, func(t *testing.T) {
			r := router.New(&router.Options{Codecs: []router.Codec{protobuf.Codec{}}})
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

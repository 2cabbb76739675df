package router_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/codec/protobuf"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestCodec_FailureConcernsOneFormat has a codec that cannot encode a message, on two nodes.
func TestCodec_FailureConcernsOneFormat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared, codec, text := memory.NewBroker(), newCountingCodec("a.v1"), "no format for it"
		nodes := []*router.Router{newCodecNode(shared, codec), newCodecNode(shared, newCountingCodec("a.v1"))}
		var plain, coded []*routertest.Conn
		for _, r := range nodes {
			plain = append(plain, routertest.Dial(t, r, routertest.Token("ann")))
			coded = append(coded, routertest.Dial(t, r, routertest.Token("ann"), routertest.Codec(newCountingCodec("a.v1"))))
		}
		for _, c := range slices.Concat(plain, coded) {
			c.Send(Subscribe{"room"})
		}
		synctest.Wait()
		codec.marshalError.Store(&text)
		require.ErrorContains(t, nodes[0].Publish("room", Say{"room", "hi"}), "SAY", "the error names the message")
		_, err := nodes[0].SendToUser("", "ann", Say{"room", "hi"})
		require.ErrorContains(t, err, "SAY")
		synctest.Wait()
		for i := range nodes {
			assert.Equal(t, 2, plain[i].Pending())
			assert.Zero(t, coded[i].Pending())
		}
	})
}

func newCodecNode(shared *memory.Broker, codecs ...router.Codec) *router.Router {
	r := router.New(discardLogs(router.Options{Codecs: codecs, Broker: shared, Authenticate: byUser}))
	router.On(r, func(ctx *router.Context, m Subscribe) error { return ctx.Subscribe(m.Room) })
	router.On(r, func(ctx *router.Context, m Say) error { return ctx.Publish(m.Room, m) })
	return r
}

// TestCodec_NodesExchangeEncodedMessages publishes from one node to subscribers with JSON and CBOR on
// both. The codecs are in another order on the other node, which does not know the message.
func TestCodec_NodesExchangeEncodedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memory.NewBroker()
		first, second := newCountingCodec("a.v1"), newCountingCodec("a.v1")
		nodes := []*router.Router{newCodecNode(shared, first, cbor.New(nil)), newCodecNode(shared, cbor.New(nil), second)}
		var conns []*routertest.Conn
		for _, r := range nodes {
			for _, opts := range [][]routertest.Option{nil, {routertest.Codec(cbor.New(nil))}, {routertest.Codec(newCountingCodec("a.v1"))}} {
				c := routertest.Dial(t, r, append(opts, routertest.Token("ann"))...)
				c.Send(Subscribe{"room"})
				conns = append(conns, c)
			}
		}
		synctest.Wait()
		want := Say{"room", "hi"}
		require.NoError(t, nodes[0].Publish("room", want))
		n, err := nodes[0].SendToUser("", "ann", want)
		require.NoError(t, err)
		assert.Equal(t, 3, n)
		for i, c := range conns {
			for range 2 {
				assert.Equal(t, want, routertest.Receive[Say](c), "connection %d", i)
			}
		}
		assert.EqualValues(t, 2, first.marshals.Load(), "once per publication")
		assert.EqualValues(t, 0, second.marshals.Load(), "the other node receives it encoded")
	})
}

// TestCodec_MissingFormatIsReportedAsLost connects a node without the codec.
func TestCodec_MissingFormatIsReportedAsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := memory.NewBroker()
		var lost recorder[string]
		without := newCodecNode(shared)
		with := router.New(&router.Options{
			Codecs: []router.Codec{newCountingCodec("a.v1")}, Broker: shared,
			OnMessagesLost: func(topic string, n int) { lost.add(fmt.Sprint(topic, n)) },
			Authenticate:   func(req *http.Request) (router.Identity, error) { return router.Identity{UserID: "ann"}, nil },
		})
		router.On(with, func(ctx *router.Context, m Subscribe) error { return ctx.Subscribe(m.Room) })
		plain, coded := routertest.Dial(t, with), routertest.Dial(t, with, routertest.Codec(newCountingCodec("a.v1")))
		plain.Send(Subscribe{"room"})
		synctest.Wait()
		require.NoError(t, without.Publish("room", Nothing{}))
		routertest.Receive[Nothing](plain)
		assert.Empty(t, lost.all(), "no subscriber of the topic uses the codec")
		coded.Send(Subscribe{"room"})
		synctest.Wait()
		require.NoError(t, without.Publish("room", Nothing{}))
		_, err := without.SendToUser("", "ann", Nothing{})
		require.NoError(t, err)
		for range 2 {
			routertest.Receive[Nothing](plain)
		}
		synctest.Wait()
		assert.Zero(t, coded.Pending())
		assert.Equal(t, []string{"room1", "1"}, lost.all())
	})
}

// TestCodec_MalformedMessages sends invalid binary messages, of which internal/wire has more. Every one is charged once and answered
// once, and the connection stays open.
func TestCodec_MalformedMessages(t *testing.T) {
	codec := newCountingCodec("a.v1")
	for name, tt := range map[string]struct {
		message, answer, text string
		charged               string
	}{
		"nothing":                     {"", "ERROR", "message is empty", ""},
		"half a length":               {"\x00", "ERROR", "the length of the head is more than follows in the message", ""},
		"a length beyond the message": {"\x00\x10" + `{"type":"ECHO"}`, "ERROR", "the length of the head is more than follows in the message", ""},
		"a head without type":         {"\x00\x22" + `{"meta":{"correlationId":"b7c1"}}` + " ", "RPC_ERROR", "type is missing", ""},
		"a payload in the head":       {"\x00\x3c" + `{"type":"ECHO","meta":{"correlationId":"b7c1"},"payload":1}  `, "RPC_ERROR", "the head of a binary message must not contain a payload", "ECHO"},
		"an unknown type":             {"\x00\x0f" + `{"type":"NOPE"}`, "ERROR", "no handler for this type", ""},
		"a payload in another format": {"\x00\x0f" + `{"type":"ECHO"}` + `{"n":1}`, "ERROR", "payload cannot be decoded", "ECHO"},
		"too long": {
			"\x00\x2e" + `{"type":"ECHO","meta":{"correlationId":"b7c1"}}`[:46] + strings.Repeat("x", 2000), "RPC_ERROR", "message is too big", "ECHO",
		},
		"a head that is too long": {"\x75\x30" + `{"type":"ECHO","x":"` + strings.Repeat("x", 40_000), "ERROR", "message is too big", "ECHO"},
		"a malformed head that is too long": {
			"\xff\xff" + `[` + strings.Repeat("x", 3000), "ERROR", "message is too big", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var charged recorder[string]
				r := router.New(discardLogs(router.Options{Codecs: []router.Codec{codec}, Limits: router.Limits{MaxMessageBytes: 1000}}))
				r.UseIngress(func(_ context.Context, in router.IngressContext) error {
					assert.EqualValues(t, len(tt.message), in.Size)
					charged.add(in.Type)
					return nil
				})
				router.RPC(r, echo)
				c := routertest.Dial(t, r, routertest.Codec(codec))
				c.SendBinary([]byte(tt.message))
				synctest.Wait()
				require.Equal(t, 1, c.Pending())
				frame := c.Next()
				assert.Equal(t, tt.answer, frame.Type)
				assert.True(t, frame.Binary)
				var payload struct{ Message string }
				require.NoError(t, json.Unmarshal(frame.Payload, &payload))
				assert.Equal(t, tt.text, payload.Message)
				assert.Equal(t, []string{tt.charged}, charged.all())
			})
		})
	}
}

// TestCodec_IngressSeesOnlyTheHead rejects a message whose payload the codec would not accept.
func TestCodec_IngressSeesOnlyTheHead(t *testing.T) {
	codec := newCountingCodec("a.v1")
	r := router.New(&router.Options{Codecs: []router.Codec{codec}})
	router.RPC(r, echo).UseIngress(func(context.Context, router.IngressContext) error { return limitError() })
	c := routertest.Dial(t, r, routertest.Codec(newCountingCodec("a.v1")))
	assert.Equal(t, errors.ResourceExhausted, routertest.CallError(c, Echo{1}).Code)
	assert.Zero(t, codec.unmarshals.Load())
}

// TestCodec_RouteLimitAppliesToBinaryMessages checks that a type with a larger limit may be longer.
func TestCodec_RouteLimitAppliesToBinaryMessages(t *testing.T) {
	r := router.New(&router.Options{Codecs: []router.Codec{cbor.New(nil)}, Limits: router.Limits{MaxMessageBytes: 1000}})
	router.RPC(r, func(_ *router.Context, m Say) (Echoed, error) { return Echoed{len(m.Text)}, nil }).MaxMessageBytes(100_000)
	c := routertest.Dial(t, r, routertest.Codec(cbor.New(nil)))
	assert.Equal(t, Echoed{90_000}, routertest.Call[Echoed](c, Say{Text: strings.Repeat("x", 90_000)}))
}

// checkingCodec has the optional method Check.
type checkingCodec struct{ *countingCodec }

func (checkingCodec) Check(typ reflect.Type) error {
	if typ == reflect.TypeFor[Echoed]() {
		return errors.New("no echo")
	}
	return nil
}

func TestCodec_MistakesPanicAtStartUp(t *testing.T) {
	codec := func(name string) router.Codec { return newCountingCodec(name) }
	create := func(subprotocols []string, codecs ...router.Codec) func() {
		return func() { router.New(&router.Options{Subprotocols: subprotocols, Codecs: codecs}) }
	}
	var many []router.Codec
	for i := range 17 {
		many = append(many, codec(fmt.Sprint("c", i)))
	}
	for name, tt := range map[string]struct {
		do   func()
		want string
	}{
		"nil":                       {create(nil, codec("a.v1"), nil), "router: Codecs[1] is nil"},
		"a name that is no token":   {create(nil, codec("a v1")), `router: the subprotocol of Codecs[0] is "a v1"; it must be an HTTP token that does not begin with "bearer."`},
		"no name":                   {create(nil, codec("")), `router: the subprotocol of Codecs[0] is ""; it must be an HTTP token that does not begin with "bearer."`},
		"a token":                   {create(nil, codec("bearer.x")), `router: the subprotocol of Codecs[0] is "bearer.x"; it must be an HTTP token that does not begin with "bearer."`},
		"two of one name":           {create(nil, codec("a.v1"), codec("A.v1")), `router: the subprotocol of Codecs[1] is "A.v1", which Codecs or Subprotocols contains already`},
		"one that is a subprotocol": {create([]string{"a.v1"}, codec("a.v1")), `router: the subprotocol of Codecs[0] is "a.v1", which Codecs or Subprotocols contains already`},
		"too many":                  {create(nil, many...), "router: Codecs has 17 elements; it must have at most 16"},
	} {
		assert.PanicsWithValue(t, tt.want, tt.do, name)
	}
	create(nil, many[:16]...)()
	r := router.New(&router.Options{Codecs: []router.Codec{codec("a.v1"), checkingCodec{newCountingCodec("b.v1")}}})
	func() {
		defer func() {
			assert.Regexp(t, `^router: .*codec_publication_test.go:\d+: router_test.Echoed cannot be encoded for the subprotocol b.v1: no echo$`, recover())
		}()
		router.RPC(r, echo)
	}()
	router.On(r, func(*router.Context, Echo) error { return nil })
	proto := router.New(&router.Options{Codecs: []router.Codec{protobuf.Codec{}}})
	router.On(proto, func(*router.Context, Nothing) error { return nil }) // it has no payload
	assert.Panics(t, func() { router.On(proto, func(*router.Context, Say) error { return nil }) })
	func() {
		defer func() {
			assert.Regexp(t, `codec_publication_test.go:\d+: int cannot be encoded for the subprotocol`, recover())
		}()
		router.Stream(proto, func(*router.Context, Nothing) iter.Seq2[int, error] { return nil })
	}()
	assert.NotPanics(t, func() {
		router.Stream(proto, func(*router.Context, Block) iter.Seq2[any, error] { return nil })
	})
}

func TestCodec_MessageTypeThatIsTooLongIsNotSent(t *testing.T) {
	r := router.New(discardLogs(router.Options{Codecs: []router.Codec{cbor.New(nil)}}))
	router.RPC(r, func(*router.Context, Echo) (Echoed, error) { return Echoed{}, nil }).Use(func(next router.Handler) router.Handler {
		return func(ctx *router.Context) error { err := next(ctx); ctx.SetReply(longName{}); return err }
	})
	c := routertest.Dial(t, r, routertest.Codec(cbor.New(nil)))
	assert.Equal(t, errors.Internal, routertest.CallError(c, Echo{1}).Code)
}

type longName struct{}

func (longName) MessageType() string { return strings.Repeat("x", 70_000) }

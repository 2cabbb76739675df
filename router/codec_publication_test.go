package router_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/codec/protobuf"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestCodec_PublicationIsEncodedOncePerFormat publishes to 100 subscribers in three formats.
func TestCodec_PublicationIsEncodedOncePerFormat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, unused := newCountingCodec("a.v1"), newCountingCodec("b.v1"), newCountingCodec("unused.v1")
		var jsonCalls atomic.Int64
		r := router.New(&router.Options{Codecs: []router.Codec{a, unused, b}})
		router.On(r, func(ctx *router.Context, m Subscribe) error { return ctx.Subscribe(m.Room) })
		var conns []*routertest.Conn
		for i := range 100 {
			opts := [][]routertest.Option{nil, {routertest.Codec(newCountingCodec("a.v1"))}, {routertest.Codec(newCountingCodec("b.v1"))}}[i%3]
			c := routertest.Dial(t, r, opts...)
			c.Send(Subscribe{"room"})
			conns = append(conns, c)
		}
		routertest.Dial(t, r, routertest.Codec(newCountingCodec("unused.v1"))).Send(Subscribe{"other room"})
		synctest.Wait()
		require.NoError(t, r.Publish("room", counted{&jsonCalls}))
		for i, c := range conns {
			frame := c.Next()
			assert.Equal(t, i%3 > 0, frame.Binary)
			assert.Equal(t, []string{``, codecMark, codecMark}[i%3]+`{"n":7}`, string(frame.Payload))
		}
		assert.EqualValues(t, 1, a.marshals.Load())
		assert.EqualValues(t, 1, b.marshals.Load())
		assert.EqualValues(t, 0, unused.marshals.Load(), "no subscriber uses it")
		assert.EqualValues(t, 3, jsonCalls.Load(), "once for JSON, and once in each counting codec")
		require.NoError(t, r.Publish("other room", counted{&jsonCalls}))
		assert.EqualValues(t, 4, jsonCalls.Load(), "JSON is not used")
		require.NoError(t, r.Publish("without subscribers", counted{&jsonCalls}))
		assert.EqualValues(t, 5, jsonCalls.Load(), "JSON, to find an error")
	})
}

// counted counts how often it is encoded as JSON.
type counted struct{ calls *atomic.Int64 }

func (counted) MessageType() string { return "COUNTED" }

func (m counted) MarshalJSON() ([]byte, error) { m.calls.Add(1); return []byte(`{"n":7}`), nil }

// TestCodec_FailureConcernsOneFormat makes each format fail in turn.
func TestCodec_FailureConcernsOneFormat(t *testing.T) {
	for _, failing := range []string{"JSON", "a.v1"} {
		for _, operation := range []string{"Publish", "SendToUser"} {
			runSynctest(t, failing+"/"+operation, func(t *testing.T) {
				nodes, codecs := newCodecNodes(t, 2)
				dialAll := func(r *router.Router) map[string]*routertest.Conn {
					conns := map[string]*routertest.Conn{
						"JSON": routertest.Dial(t, r, routertest.Token("ann")),
						"a.v1": routertest.Dial(t, r, routertest.Token("ann"), routertest.Codec(newCountingCodec("a.v1"))),
					}
					for _, c := range conns {
						c.Send(Subscribe{"room"})
					}
					return conns
				}
				local, remote := dialAll(nodes[0]), dialAll(nodes[1])
				synctest.Wait()
				var m router.Message = Say{"room", "hi"}
				if failing == "JSON" {
					m = jsonFails{"hi"}
				} else {
					text := "no format for it"
					codecs[0].marshalError.Store(&text)
				}
				var err error
				if operation == "Publish" {
					err = nodes[0].Publish("room", m)
				} else {
					_, err = nodes[0].SendToUser("", "ann", m)
				}
				require.Error(t, err)
				assert.Equal(t, errors.Internal, errors.CodeOf(err))
				assert.Contains(t, err.Error(), m.MessageType(), "the error names the message")
				synctest.Wait()
				for node, conns := range map[string]map[string]*routertest.Conn{"local": local, "remote": remote} {
					for format, c := range conns {
						want := 1
						if format == failing {
							want = 0
						}
						assert.Equal(t, want, c.Pending(), "%s %s", node, format)
					}
				}
			})
		}
	}
}

// jsonFails can be encoded by a countingCodec, which uses another JSON library, but not by the router.
type jsonFails struct{ Text string }

func (jsonFails) MessageType() string { return "JSON_FAILS" }

func (m jsonFails) MarshalJSONTo(*jsonv2.Encoder) error { return errors.New("no JSON for it") }

// newCodecNodes returns routers that share a broker, each with its own codec a.v1.
func newCodecNodes(t *testing.T, n int) (nodes []*router.Router, codecs []*countingCodec) {
	t.Helper()
	shared := memory.NewBroker()
	for range n {
		codec := newCountingCodec("a.v1")
		nodes, codecs = append(nodes, newCodecNode(shared, codec)), append(codecs, codec)
	}
	return nodes, codecs
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
		for _, c := range conns[3:] { // and in the other direction
			c.Send(want)
			for _, c := range conns {
				assert.Equal(t, want, routertest.Receive[Say](c))
			}
			c.Send(Subscribe{"no subscribers on the first node"})
		}
		synctest.Wait()
		require.NoError(t, nodes[0].Publish("no subscribers on the first node", want))
		for _, c := range conns[3:] {
			assert.Equal(t, want, routertest.Receive[Say](c))
		}
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

// TestCodec_MalformedMessages sends invalid binary messages. Every one is charged once and answered
// once, and the connection stays open.
func TestCodec_MalformedMessages(t *testing.T) {
	codec := newCountingCodec("a.v1")
	for name, tt := range map[string]struct {
		message, answer, text string
		charged               string
	}{
		"nothing":                     {"", "ERROR", "message is empty", ""},
		"half a length":               {"\x00", "ERROR", "the length of the head is more than follows in the message", ""},
		"an empty head":               {"\x00\x00", "ERROR", "message is empty", ""},
		"a length beyond the message": {"\x00\x10" + `{"type":"ECHO"}`, "ERROR", "the length of the head is more than follows in the message", ""},
		"a JSON envelope":             {`{"type":"ECHO","payload":{"n":1}}`, "ERROR", "the length of the head is more than follows in the message", ""},
		"a head that is no object":    {"\x00\x01[", "ERROR", "message must be a JSON object", ""},
		"a head without type":         {"\x00\x22" + `{"meta":{"correlationId":"b7c1"}}` + " ", "RPC_ERROR", "type is missing", ""},
		"a payload in the head":       {"\x00\x3c" + `{"type":"ECHO","meta":{"correlationId":"b7c1"},"payload":1}  `, "RPC_ERROR", "the head of a binary message must not contain a payload", "ECHO"},
		"an unknown type":             {"\x00\x0f" + `{"type":"NOPE"}`, "ERROR", "no handler for this type", ""},
		"a payload in another format": {"\x00\x0f" + `{"type":"ECHO"}` + `{"n":1}`, "ERROR", "payload cannot be decoded", "ECHO"},
		"no payload":                  {"\x00\x0f" + `{"type":"ECHO"}`, "ERROR", "payload cannot be decoded", "ECHO"},
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

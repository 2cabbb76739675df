package router_test

import (
	"encoding/json"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A Move has methods for its JSON, whose results differ from those of the library: only so a test can
// tell which of them was used.
type Move struct {
	X   int    `json:"x"`
	How string `json:"how"`
}

func (Move) MessageType() string { return "MOVE" }

// DecodeJSON decodes payloads that begin with x. For others, it leaves something behind.
func (m *Move) DecodeJSON(p []byte) error {
	m.How = "itself"
	if rest, ok := strings.CutPrefix(string(p), `{"x":`); ok {
		if strings.HasPrefix(rest, "-1") {
			panic("in DecodeJSON")
		}
		return json.Unmarshal([]byte(strings.TrimRight(rest, "}")), &m.X)
	}
	return errors.New("not handled")
}

// AppendJSON encodes values with an x from 0 to 9.
func (m Move) AppendJSON(b []byte) ([]byte, error) {
	switch {
	case m.X < 0:
		panic("in AppendJSON")
	case m.X == 99:
		return b[:0], nil
	case m.X > 9:
		return append(b, "rubbish"...), errors.New("not handled")
	}
	return append(b, `{"appended":`+string(rune('0'+m.X))+`}`...), nil
}

// A Walked is a Move whose methods have pointer receivers.
type Walked struct {
	X int `json:"x"`
}

func (Walked) MessageType() string { return "WALKED" }

func (m *Walked) AppendJSON(b []byte) ([]byte, error) { return Move{X: m.X}.AppendJSON(b) }

// Plain has the fields of Move and no methods.
type Plain struct {
	X   int    `json:"x"`
	How string `json:"how"`
}

func (Plain) MessageType() string { return "MOVE" }

// payloadOf sends a message with a payload and returns the payload of the answer.
func payloadOf(conn *routertest.Conn, payload string) string {
	conn.SendText(`{"type":"MOVE","meta":{"correlationId":"c"},"payload":` + payload + `}`)
	return string(conn.Next().Payload)
}

func TestDecodeJSON_ReplacesTheLibrary(t *testing.T) {
	for _, tt := range []struct {
		name, payload string
		want          Move
	}{
		{"it decodes", `{"x":7}`, Move{7, "itself"}},
		{"it returns an error, so the value is reset and the library decodes", ` { "x" : 8 } `, Move{8, ""}},
		{"the library ignores unknown members", `{"y":1}`, Move{}},
	} {
		runSynctest(t, tt.name, func(t *testing.T) {
			var got Move
			r := router.New(discardLogs(router.Options{}))
			router.RPC(r, func(_ *router.Context, m Move) (Echoed, error) { got = m; return Echoed{}, nil })
			assert.JSONEq(t, `{"n":0}`, payloadOf(routertest.Dial(t, r), tt.payload))
			assert.Equal(t, tt.want, got)
		})
	}
}

// TestDecodeJSON_ErrorsAreThoseOfTheLibrary compares the answers with those for the same type without
// methods.
func TestDecodeJSON_ErrorsAreThoseOfTheLibrary(t *testing.T) {
	payloads := []string{`{"x":"7"}`, `{ "x":1e99}`, `{"how":7}`, `[]`, `null`, `"x"`, `{"x":1,"x":2}`, `{"y":1}`, `{"x":7`, `{"how":"\ud800"}`, `{"y":1,"x":true}`}
	for _, reject := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			opts := router.Options{RejectUnknownFields: reject}
			own, plain := router.New(discardLogs(opts)), router.New(discardLogs(opts))
			router.RPC(own, func(_ *router.Context, m Move) (Echoed, error) { return Echoed{m.X}, nil })
			router.RPC(plain, func(_ *router.Context, m Plain) (Echoed, error) { return Echoed{m.X}, nil })
			a, b := routertest.Dial(t, own), routertest.Dial(t, plain)
			for _, payload := range payloads {
				assert.Equal(t, payloadOf(b, payload), payloadOf(a, payload), payload)
			}
			assert.Equal(t, reject, strings.Contains(payloadOf(a, `{"y":1}`), "is not a known field"))
		})
	}
}

func TestJSONMethods_PanicIsInternalError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports atomic.Int32
		r := router.New(discardLogs(router.Options{OnError: func(report router.ErrorReport) {
			var panicked *errors.PanicError
			assert.ErrorAs(t, report.Err, &panicked)
			reports.Add(1)
		}}))
		router.RPC(r, func(_ *router.Context, m Move) (Move, error) { m.X = -m.X; return m, nil })
		conn := routertest.Dial(t, r)
		assert.Contains(t, payloadOf(conn, `{"x":-1}`), `"INTERNAL"`, "in DecodeJSON")
		assert.Contains(t, payloadOf(conn, `{"x":1}`), `"INTERNAL"`, "in AppendJSON")
		assert.JSONEq(t, `{"appended":0}`, payloadOf(conn, `{"x":0}`), "the connection goes on")
		synctest.Wait()
		assert.Equal(t, int32(2), reports.Load())
		assert.ErrorContains(t, r.Publish("a", Move{X: -1}), "in AppendJSON")
	})
}

// TestAppendJSON_ReplacesTheLibrary sends values in every way in which the server sends them.
func TestAppendJSON_ReplacesTheLibrary(t *testing.T) {
	for x, want := range map[int]string{5: `{"appended":5}`, 10: `{"x":10}`, 99: `{"x":99}`} {
		synctest.Test(t, func(t *testing.T) {
			r := router.New(discardLogs(router.Options{}))
			router.RPC(r, func(ctx *router.Context, _ Echo) (Walked, error) {
				assert.NoError(t, errors.Join(ctx.Subscribe("a"), ctx.Send(Walked{x}), ctx.Conn().SendWait(ctx, Walked{x}), ctx.Publish("a", Walked{x}), ctx.Progress(Walked{x}), ctx.Progress(&Walked{x}), ctx.Progress((*Walked)(nil))))
				return Walked{x}, nil
			})
			router.Stream(r, func(*router.Context, Count) iter.Seq2[Walked, error] {
				return func(yield func(Walked, error) bool) { yield(Walked{x}, nil) }
			})
			conn := routertest.Dial(t, r)
			conn.SendText(`{"type":"ECHO","meta":{"correlationId":"c"},"payload":{"n":1}}`)
			for _, typ := range []string{"WALKED", "WALKED", "WALKED", "$ws:rpc-progress", "$ws:rpc-progress", "nil", "WALKED"} {
				frame := conn.Next()
				if typ == "nil" {
					assert.Equal(t, "null", string(frame.Payload), "progress that is a nil pointer")
					continue
				}
				assert.Equal(t, typ, frame.Type)
				assert.Equal(t, want, string(frame.Payload))
				assert.True(t, json.Valid([]byte(frame.Text)), frame.Text)
			}
			conn.SendText(`{"type":"COUNT","meta":{"correlationId":"d"},"payload":{"to":1}}`)
			assert.Equal(t, want, string(conn.Next().Payload), "an item of a stream")
		})
	}
}

// TestAppendJSON_ReplyOfMiddleware checks that middleware sees and replaces replies that are encoded
// where the handler left them.
func TestAppendJSON_ReplyOfMiddleware(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []router.Message
		r := router.New(discardLogs(router.Options{}))
		router.RPC(r, func(_ *router.Context, m Move) (Move, error) { return m, nil }).Use(func(next router.Handler) router.Handler {
			return func(ctx *router.Context) error {
				err := next(ctx)
				seen = append(seen, ctx.Reply())
				if m := ctx.Reply().(Move); m.X == 2 {
					ctx.SetReply(Move{X: 3})
					err = errors.Join(err, next(ctx)) // the handler replaces what SetReply has set
					seen = append(seen, ctx.Reply())
				} else if m.X == 4 {
					mine := &Move{X: 5}
					ctx.SetReply(mine)
					assert.NoError(t, next(ctx))
					assert.Equal(t, &Move{X: 5}, mine, "the handler does not change what SetReply has set")
					ctx.SetReply(mine)
				}
				return err
			}
		})
		conn := routertest.Dial(t, r)
		assert.JSONEq(t, `{"appended":1}`, payloadOf(conn, `{"x":1}`))
		assert.JSONEq(t, `{"appended":2}`, payloadOf(conn, `{"x":2}`))
		assert.JSONEq(t, `{"appended":5}`, payloadOf(conn, `{"x":4}`))
		assert.Equal(t, []router.Message{Move{1, "itself"}, Move{2, "itself"}, Move{2, "itself"}, Move{4, "itself"}}, seen)
	})
}

// A plainCodec is a codec whose payloads look like JSON.
type plainCodec struct{}

func (plainCodec) Subprotocol() string                   { return "plain" }
func (plainCodec) Marshal(v any) ([]byte, error)         { return json.Marshal(v) }
func (plainCodec) Unmarshal(payload []byte, v any) error { return json.Unmarshal(payload, v) }

func TestJSONMethods_OtherFormatsDoNotUseThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got Move
		r := router.New(discardLogs(router.Options{Codecs: []router.Codec{plainCodec{}}}))
		router.RPC(r, func(_ *router.Context, m Move) (Walked, error) { got = m; return Walked{m.X}, nil })
		conn := routertest.Dial(t, r, routertest.Codec(plainCodec{}))
		conn.SendBinary([]byte("\x00\x2d" + `{"type":"MOVE","meta":{"correlationId":"cc"}}` + `{"x":7}`))
		assert.Equal(t, `{"x":7}`, string(conn.Next().Payload))
		assert.Equal(t, Move{X: 7}, got)
	})
}

// An OtherMethods has methods of the same names for something else.
type OtherMethods struct {
	X int `json:"x"`
}

func (OtherMethods) MessageType() string { return "MOVE" }

func (*OtherMethods) DecodeJSON(string) error { panic("called") }

func (OtherMethods) AppendJSON([]byte) []byte { panic("called") }

// An Embedding has the methods of its field, which know nothing of Y.
type Embedding struct {
	Move

	Y int `json:"y"`
}

func (Embedding) MessageType() string { return "MOVE" }

// An EmbeddingPointer is an Embedding by pointer.
type EmbeddingPointer struct {
	*Walked

	Y int `json:"y"`
}

func (EmbeddingPointer) MessageType() string { return "MOVE" }

// An Embedder has methods in addition to those of its field.
type Embedder struct {
	Move

	Y int `json:"y"`
}

func (Embedder) MessageType() string { return "MOVE" }

func (m *Embedder) DecodeJSON([]byte) error { m.Y = 42; return nil }

func (m *Embedder) AppendJSON(b []byte) ([]byte, error) { return append(b, `"embedder"`...), nil }

// TestJSONMethods_OnlyThoseOfTheType ignores methods of another signature and of embedded fields.
func TestJSONMethods_OnlyThoseOfTheType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		check := func(register func(*router.Router), want string) {
			r := router.New(discardLogs(router.Options{}))
			register(r)
			assert.JSONEq(t, want, payloadOf(routertest.Dial(t, r), `{"x":3,"y":4}`))
		}
		check(func(r *router.Router) {
			router.RPC(r, func(_ *router.Context, m OtherMethods) (OtherMethods, error) { return m, nil })
		}, `{"x":3}`)
		check(func(r *router.Router) {
			router.RPC(r, func(_ *router.Context, m Embedding) (Embedding, error) { return m, nil })
		}, `{"x":3,"how":"","y":4}`)
		check(func(r *router.Router) {
			router.RPC(r, func(_ *router.Context, m EmbeddingPointer) (EmbeddingPointer, error) { return m, nil })
		}, `{"x":3,"y":4}`)
		check(func(r *router.Router) {
			router.RPC(r, func(_ *router.Context, m Embedder) (Embedder, error) {
				assert.Equal(t, 42, m.Y)
				return m, nil
			})
		}, `"embedder"`)
	})
}

// A CopyDecoder decodes into a copy of itself.
type CopyDecoder struct{ X int }

func (CopyDecoder) MessageType() string { return "COPY" }

func (CopyDecoder) DecodeJSON([]byte) error { return nil }

func TestRegistration_DecodeJSONNeedsPointerReceiver(t *testing.T) {
	defer func() {
		assert.Contains(t, recover(), "DecodeJSON of router_test.CopyDecoder has a value receiver")
	}()
	router.On(router.New(nil), func(*router.Context, CopyDecoder) error { return nil })
}

// TestCall_ReplyDecodesItself calls a client, whose reply has a DecodeJSON method.
func TestCall_ReplyDecodesItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reply Move
		r := router.New(discardLogs(router.Options{}))
		router.On(r, func(ctx *router.Context, _ Say) (err error) {
			reply, err = router.Call[Move](ctx, ctx.Conn(), Echo{1})
			return err
		})
		conn := routertest.Dial(t, r)
		conn.Send(Say{"a", "b"})
		id := conn.Next().Meta.CorrelationID
		conn.SendText(`{"type":"MOVE","meta":{"correlationId":"` + id + `"},"payload":{"x":6}}`)
		synctest.Wait()
		assert.Equal(t, Move{6, "itself"}, reply)
	})
}

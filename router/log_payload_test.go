package router_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/codec/protobuf"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/chatpb"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

const (
	marker       = "MARK3R"
	maxLineBytes = 2048
)

// A form has fields of all kinds, one of which rejects values itself.
type form struct {
	Text   string             `json:"text"`
	N      int8               `json:"n"`
	At     time.Time          `json:"at"`
	Prices map[string]float64 `json:"prices"`
	Any    any                `json:"any"`
	Inner  *form              `json:"inner"`
}

func (form) MessageType() string { return "FORM" }

func (m form) Validate() error {
	if m.N < 0 {
		return errors.InvalidField(m.Text, "must not be "+m.Text)
	}
	return nil
}

// A quotingCodec is a codec of an application, whose errors quote what they do not understand.
type quotingCodec struct{ *countingCodec }

func (quotingCodec) Unmarshal(payload []byte, _ any) error {
	return fmt.Errorf("unexpected %q", payload)
}

// binaryMessage returns a binary message.
func binaryMessage(typ, payload string) []byte {
	head := fmt.Sprintf(`{"type":%q}`, typ)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(head))), head+payload...)
}

// badJSON returns payloads that the type form does not accept, with the marker as names and values.
func badJSON() []string {
	long := strings.Repeat(marker, 5000)
	return []string{
		`{"MARK3R":1,"MARK3R":2}`, `{"any":{"MARK3R":1,"MARK3R":2}}`, `{"inner":{"any":[{"MARK3R":{"MARK3R":1,"MARK3R":2}}]}}`,
		`{"` + long + `":1,"` + long + `":2}`, `{"MARK3R":1}`, `{"` + long + `":1}`, `{"inner":{"MARK3R":1}}`,
		`{"n":"MARK3R"}`, `{"text":{"MARK3R":1}}`, `{"prices":{"MARK3R":"MARK3R"}}`, `{"prices":{"` + long + `":[]}}`, `{"at":"MARK3R"}`,
		`{"n":-1,"text":"MARK3R"}`, `"MARK3R"`, `MARK3R`, `{"text":"MARK3R`, `{"\ud800MARK3R":1,"\ud800MARK3R":2}`,
		"{\"text\":\"MARK3R\xff\"}", `{"any":` + strings.Repeat(`{"MARK3R":`, 100) + `1` + strings.Repeat(`}`, 101),
	}
}

// badCBOR returns the same for CBOR.
func badCBOR(t *testing.T) (payloads []string) {
	name := "\x66" + marker
	payloads = []string{
		"\xa2" + name + "\x01" + name + "\x02", "\xa1\x63any\xa2" + name + "\x01" + name + "\x02", "\xa2\x78\xff" + strings.Repeat("k", 255) + "\x01\x78\xff" + strings.Repeat("k", 255) + "\x02",
		name, marker, "\xa1\x64text\x67" + marker + "\xff", "\xa1" + name + strings.Repeat("\x81", 100) + "\x00", "\xa1\x63any" + strings.Repeat("\xa1"+name, 70) + "\x00",
	}
	for _, v := range []map[string]any{
		{marker: 1},
		{"inner": map[string]any{marker: 1}},
		{"n": marker},
		{"text": map[string]any{marker: 1}},
		{"prices": map[string]any{marker: marker}},
		{"at": marker},
		{"n": -1, "text": marker},
	} {
		payload, err := cbor.New(nil).Marshal(v)
		require.NoError(t, err)
		payloads = append(payloads, string(payload))
	}
	return payloads
}

// logHandlers are the ways in which lines are checked.
func logHandlers(w io.Writer) map[string]slog.Handler {
	opts := &slog.HandlerOptions{Level: slog.LevelDebug - 100}
	return map[string]slog.Handler{"json": slog.NewJSONHandler(w, opts), "text": slog.NewTextHandler(w, opts)}
}

// checkLines checks that no line contains the marker or is long.
func checkLines(t *testing.T, log string) {
	t.Helper()
	assert.NotContains(t, log, marker)
	for line := range strings.Lines(log) {
		assert.LessOrEqual(t, len(line), maxLineBytes, line)
	}
}

func TestLogger_NeverReceivesPayloads(t *testing.T) {
	codecs := map[string]router.Codec{
		"JSON": nil, "CBOR": cbor.New(nil), "strict CBOR": cbor.New(&cbor.Options{RejectUnknownFields: true}), "application's": quotingCodec{newCountingCodec("a.v1")},
	}
	for name, codec := range codecs {
		for _, strict := range []bool{false, true} {
			runSynctest(t, fmt.Sprintf("%s, %v", name, strict), func(t *testing.T) {
				var log lockedBuffer
				opts := router.Options{Logger: slog.New(logHandlers(&log)["json"]), RejectUnknownFields: strict, Limits: router.Limits{MaxMessageBytes: 1 << 20}}
				var dial []routertest.Option
				if codec != nil {
					opts.Codecs = []router.Codec{codec}
					dial = append(dial, routertest.Codec(codec))
				}
				r := router.New(&opts)
				router.On(r, func(*router.Context, form) error { return nil })
				c := routertest.Dial(t, r, dial...)
				sent := 0
				for _, payload := range badJSON() {
					envelope := `{"type":"FORM","meta":{"x":"MARK3R"},"payload":` + payload + `}`
					if utf8.ValidString(payload) {
						c.SendText(envelope)
					} else { // text that is not UTF-8 closes the connection
						c.SendBinary([]byte(envelope))
					}
					sent++
				}
				if codec != nil {
					for _, payload := range badCBOR(t) {
						c.SendBinary(binaryMessage("FORM", payload))
						sent++
					}
				}
				time.Sleep(time.Minute)
				assert.Greater(t, c.Pending(), sent/2, "most are errors in every case")
				for c.Pending() > 0 {
					assert.Less(t, len(c.Next().Text), 100_000)
				}
				checkLines(t, log.String())
			})
		}
	}
}

func TestLogger_NeverReceivesPayloadsOfProtobuf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		r := router.New(&router.Options{Logger: slog.New(logHandlers(&log)["text"]), Codecs: []router.Codec{protobuf.Codec{}}})
		router.On(r, func(*router.Context, *chatpb.Say) error { return nil })
		c := routertest.Dial(t, r, routertest.Codec(protobuf.Codec{}))
		for _, payload := range []string{marker, "\x0a\x06" + marker + "\xff", "\x0a\x07" + marker + "\xff", "\x0a\x7f" + marker} {
			c.SendBinary(binaryMessage("SAY", payload))
		}
		time.Sleep(time.Minute)
		assert.Equal(t, 4, c.Pending())
		checkLines(t, log.String())
	})
}

// TestDecodeErrors_ClientReceivesBoundedNames checks that the names in an error are valid and short.
func TestDecodeErrors_ClientReceivesBoundedNames(t *testing.T) {
	long := strings.Repeat("é", 5000)
	r := router.New(discardLogs(router.Options{RejectUnknownFields: true}))
	router.RPC(r, func(*router.Context, form) (Echoed, error) { return Echoed{}, nil })
	c := routertest.Dial(t, r)
	for payload, want := range map[string]string{
		`{"` + long + `":1}`:                 strings.Repeat("é", 32) + "… is not a known field",
		`{"x` + long + `":1}`:                "x" + strings.Repeat("é", 31) + "… is not a known field",
		`{"inner":{"` + long + `":1}}`:       "inner." + strings.Repeat("é", 32) + "… is not a known field",
		`{"prices":{"a":1,"a":2}}`:           "prices.a must not occur twice",
		`{"prices":{"` + long + `":"MARK"}}`: "prices." + strings.Repeat("é", 32) + "… must be a number, not a string",
		`{"inner":{"inner":{"n":1000}}}`:     "inner.inner.n must be an integer in range, not 1000",
	} {
		c.SendText(`{"type":"FORM","meta":{"correlationId":"a"},"payload":` + payload + `}`)
		assert.Equal(t, want, routertest.ReceiveError(c).Message)
	}
	deep := strings.Repeat(`{"inner":`, 50) + `{"x":1}` + strings.Repeat(`}`, 50)
	c.SendText(`{"type":"FORM","meta":{"correlationId":"a"},"payload":` + deep + `}`)
	assert.LessOrEqual(t, len(routertest.ReceiveError(c).Message), 300)
}

// TestLogger_NeverReceivesKeysOfReplies sends replies and details that cannot be encoded, within a map
// with a key of the client.
func TestLogger_NeverReceivesKeysOfReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		var reports recorder[error]
		for _, onError := range []func(router.ErrorReport){nil, func(report router.ErrorReport) { reports.add(report.Err) }} {
			r := router.New(&router.Options{Logger: slog.New(logHandlers(&log)["json"]), OnError: onError})
			router.RPC(r, func(_ *router.Context, m form) (form, error) {
				m.Prices = map[string]float64{m.Text: math.NaN()}
				if m.N > 0 {
					return m, &errors.Error{Code: errors.NotFound, Details: map[string]any{"prices": m.Prices}}
				}
				return m, nil
			})
			c := routertest.Dial(t, r)
			assert.Equal(t, errors.Internal, routertest.CallError(c, form{Text: marker}).Code)
			assert.Equal(t, errors.NotFound, routertest.CallError(c, form{Text: marker, N: 1}).Code)
			synctest.Wait()
		}
		assert.Equal(t, 2, strings.Count(log.String(), "float64 cannot be represented in JSON: unsupported value: NaN"), log.String())
		checkLines(t, log.String())
		require.Len(t, reports.all(), 2)
		assert.ErrorContains(t, reports.all()[0], "/"+marker, "the application receives the error of the library")
	})
}

// TestLogger_NeverReceivesAnswersOfClients lets a handler return the errors of a call to a client.
func TestLogger_NeverReceivesAnswersOfClients(t *testing.T) {
	for name, tt := range map[string]struct{ typ, payload string }{
		"type":          {marker, `{}`},
		"wrong field":   {"CONFIRMED", `{"MARK3R":1,"MARK3R":2}`},
		"unknown field": {"CONFIRMED", `{"MARK3R":1}`},
		"validation":    {"CONFIRMED", `{"By":"MARK3R"}`},
		"error":         {"RPC_ERROR", `{"code":"INTERNAL","message":"` + strings.Repeat(marker, 500) + `"}`},
		"other error":   {"RPC_ERROR", `{"code":"MARK3R","message":"MARK3R"}`},
		"no error":      {"RPC_ERROR", `{"code":"INTERNAL","details":{"MARK3R":1,"MARK3R":2}}`},
		"broken":        {"CONFIRMED", `{"MARK3R`},
	} {
		for _, wrap := range []string{"", "%w", "%q: %[1]w", "panic"} {
			runSynctest(t, name+" "+wrap, func(t *testing.T) {
				var log lockedBuffer
				r := router.New(&router.Options{
					Logger: slog.New(logHandlers(&log)["text"]), RejectUnknownFields: true, Timeouts: router.Timeouts{Call: time.Second},
					Validate: func(m any) error {
						if c, ok := m.(Confirmed); ok && c.By != "" {
							return fmt.Errorf("%q is not known", c.By)
						}
						return nil
					},
				})
				router.RPC(r, func(ctx *router.Context, _ Echo) (Echoed, error) {
					_, err := router.Call[Confirmed](ctx, ctx.Conn(), Confirm{})
					switch wrap {
					case "":
						return Echoed{}, err
					case "panic":
						panic(err)
					default:
						return Echoed{}, fmt.Errorf("confirm: "+wrap, err)
					}
				})
				client := routertest.Dial(t, r)
				client.Send(Echo{})
				client.SendText(`{"type":"ECHO","meta":{"correlationId":"own"},"payload":{"n":1}}`)
				synctest.Wait()
				client.SendText(answer("$ws:1", tt.typ, tt.payload))
				time.Sleep(time.Minute)
				if wrap == "panic" && strings.Contains(name, "error") {
					return // an error with a public part, whose text the application has logged
				}
				assert.NotContains(t, log.String(), marker)
			})
		}
	}
}

// TestLogger_LinesAreBounded logs what applications make of long texts with characters that handlers
// escape.
func TestLogger_LinesAreBounded(t *testing.T) {
	long := strings.Repeat("\x00\x1b\u202e\"<\xff\n", 10_000)
	for name := range logHandlers(io.Discard) {
		runSynctest(t, name, func(t *testing.T) {
			var log lockedBuffer
			r := router.New(&router.Options{
				Logger: slog.New(logHandlers(&log)[name]),
				Authenticate: func(*http.Request) (router.Identity, error) {
					return router.Identity{}, &errors.Error{Code: errors.Unauthenticated, Err: errors.New(long)}
				},
			})
			routertest.Refused(t, r)
			other := router.New(&router.Options{Logger: slog.New(logHandlers(&log)[name])})
			other.UseIngress(func(context.Context, router.IngressContext) error { return errors.New(long) })
			c := routertest.Dial(t, other)
			c.Send(Echo{})
			synctest.Wait()
			assert.Equal(t, 1, strings.Count(log.String(), "message failed"))
			assert.Equal(t, 1, strings.Count(log.String(), "connection refused"))
			assert.Equal(t, 2, strings.Count(log.String(), "…"))
			checkLines(t, log.String())
		})
	}
}

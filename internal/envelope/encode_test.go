package envelope_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// A testCodec encodes what marshal returns.
type testCodec struct{ marshal func(v any) ([]byte, error) }

func (testCodec) Subprotocol() string             { return "test.v1" }
func (c testCodec) Marshal(v any) ([]byte, error) { return c.marshal(v) }
func (testCodec) Unmarshal([]byte, any) error     { return errors.New("not used") }

func constant(text string) testCodec {
	return testCodec{func(any) ([]byte, error) { return []byte(text), nil }}
}

// A note has the type that it says.
type note struct {
	Type string `json:"-"`
	Text any    `json:"text"`
}

func (n note) MessageType() string { return n.Type }

type nothing struct{}

func (nothing) MessageType() string { return "NOTHING" }

type panicking struct{ note }

func (panicking) MessageType() string { panic("no type") }

type panickingKey struct{ note }

func (panickingKey) ConflationKey() string { panic("no key") }

// panickingJSON has a field that panics after something was written.
type panickingJSON struct {
	Before string
	Value  panickingValue
}

func (panickingJSON) MessageType() string { return "NOTE" }

type panickingValue struct{}

func (panickingValue) MarshalText() ([]byte, error) { panic("no JSON") }

func TestEncode_MessagesThatCannotBeEncoded(t *testing.T) {
	broken := testCodec{func(any) ([]byte, error) { return nil, errors.New("broken") }}
	for name, tt := range map[string]struct {
		codec  envelope.Codec
		m      envelope.Message
		want   string
		panics bool
	}{
		"nil":                      {nil, nil, "router: encode <nil>: MessageType: panic: runtime error", true},
		"a nil pointer":            {nil, (*note)(nil), "router: encode *envelope_test.note: MessageType: panic: ", true},
		"no type":                  {nil, note{}, `router: encode envelope_test.note: its MessageType "" is empty or reserved for the protocol`, false},
		"a reserved type":          {nil, note{Type: protocol.TypeAck}, `its MessageType "$ws:ack" is empty or reserved`, false},
		"a type that panics":       {nil, panicking{}, "router: encode envelope_test.panicking: MessageType: panic: no type", true},
		"a key that panics":        {nil, panickingKey{}, "router: encode envelope_test.panickingKey: ConflationKey: panic: no key", true},
		"a value that is no JSON":  {nil, note{"NOTE", make(chan int)}, "router: encode NOTE: ", false},
		"JSON that panics":         {nil, panickingJSON{}, "router: encode NOTE: panic: no JSON", true},
		"a long type, for a codec": {constant("x"), note{Type: strings.Repeat("n", wire.MaxNameBytes+1)}, "router: encode envelope_test.note: its MessageType has ", false},
		"a codec that fails":       {broken, note{Type: "NOTE"}, "router: encode NOTE, a envelope_test.note, for the subprotocol test.v1: broken", false},
		"a codec that panics":      {testCodec{func(any) ([]byte, error) { panic("torn") }}, note{Type: "NOTE"}, "for the subprotocol test.v1: panic: torn", true},
	} {
		t.Run(name, func(t *testing.T) {
			frame, err := envelope.EncodeEvent(tt.codec, tt.m)
			assert.Nil(t, frame)
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, errors.Internal, errors.CodeOf(err))
			_, panicked := failure.AsType[*errors.PanicError](err)
			assert.Equal(t, tt.panics, panicked)
		})
	}
}

func TestEncode_Envelopes(t *testing.T) {
	head := wire.OutgoingHead{CorrelationID: "c", At: time.UnixMilli(7)}
	const meta = `"meta":{"timestamp":7,"correlationId":"c"}`
	codec := constant("\x01\x02")
	for name, tt := range map[string]struct {
		codec envelope.Codec
		m     envelope.Message
		want  string
	}{
		"JSON":                     {nil, note{"NOTE", "<\xff>"}, `{"type":"NOTE",` + meta + `,"payload":{"text":"<` + "\ufffd" + `>"}}`},
		"a pointer":                {nil, &note{"NOTE", 1}, `{"type":"NOTE",` + meta + `,"payload":{"text":1}}`},
		"no fields":                {nil, nothing{}, `{"type":"NOTHING",` + meta + `}`},
		"a codec":                  {codec, note{"NOTE", 1}, `{"type":"NOTE",` + meta + "}\x01\x02"},
		"no fields, for a codec":   {codec, nothing{}, `{"type":"NOTHING",` + meta + `}`},
		"a pointer to no fields":   {nil, &nothing{}, `{"type":"NOTHING",` + meta + `,"payload":{}}`},
		"the same, for a codec":    {codec, &nothing{}, `{"type":"NOTHING",` + meta + "}\x01\x02"},
		"a long type, not a codec": {nil, note{strings.Repeat("n", 300), 1}, `{"type":"` + strings.Repeat("n", 300) + `",` + meta + `,"payload":{"text":1}}`},
	} {
		t.Run(name, func(t *testing.T) {
			frame, err := envelope.Encode(tt.codec, tt.m, head)
			require.NoError(t, err)
			assert.Equal(t, tt.want, text(frame, tt.codec != nil))
			assert.Equal(t, head.At, frame.At)
		})
	}
}

// text returns the head and the payload of a message.
func text(frame *wsconn.Frame, binary bool) string {
	if binary {
		return string(frame.Text()[2:]) // without the length of the head
	}
	return string(frame.Text())
}

// TestEncode_MessagesOfTheProtocolAreJSON encodes for connections with and without a codec.
func TestEncode_MessagesOfTheProtocolAreJSON(t *testing.T) {
	broken := testCodec{func(any) ([]byte, error) { return nil, errors.New("broken") }}
	head := wire.OutgoingHead{CorrelationID: "c", At: time.UnixMilli(7)}
	for name, tt := range map[string]struct {
		codec envelope.Codec
		parse func([]byte) (wire.Envelope, error)
	}{"JSON": {nil, wire.Parse}, "a codec": {broken, wire.ParseBinary}} {
		t.Run(name, func(t *testing.T) {
			frame, err := envelope.Encode(tt.codec, protocol.GoAway{ReconnectAfterMs: 812}, head)
			require.NoError(t, err)
			parsed, err := tt.parse(frame.Text())
			require.NoError(t, err)
			assert.Equal(t, protocol.TypeGoAway, string(parsed.Type))
			assert.Equal(t, "c", string(parsed.CorrelationID))
			assert.JSONEq(t, `{"reconnectAfterMs":812}`, string(parsed.Payload))

			parsed, err = tt.parse(envelope.EncodeControl(tt.codec != nil, protocol.TypeAck, "c").Text())
			require.NoError(t, err)
			assert.Equal(t, protocol.TypeAck, string(parsed.Type))
			assert.Nil(t, parsed.Payload)
		})
	}
}

func TestEncodeEvent_ConflatesByTypeAndKey(t *testing.T) {
	frame, err := envelope.EncodeEvent(nil, note{Type: "NOTE"})
	require.NoError(t, err)
	assert.Empty(t, frame.Key())
	frame, err = envelope.EncodeEvent(nil, keyed{note{Type: "NOTE"}, "k"})
	require.NoError(t, err)
	assert.Equal(t, "NOTE\x00k", frame.Key())
}

type keyed struct {
	note

	key string
}

func (k keyed) ConflationKey() string { return k.key }

// TestPayload_IsEncodedWithAnotherHead passes the payload of a message on, as nodes do.
func TestPayload_IsEncodedWithAnotherHead(t *testing.T) {
	first, second := wire.OutgoingHead{At: time.UnixMilli(7)}, wire.OutgoingHead{CorrelationID: "c", TimeoutMs: 9, At: time.UnixMilli(812)}
	for f, codec := range []envelope.Codec{nil, constant("\x01\x02")} {
		for _, m := range []envelope.Message{note{"NOTE", 1}, nothing{}} {
			frame, err := envelope.Encode(codec, m, first)
			require.NoError(t, err)
			want, err := envelope.Encode(codec, m, second)
			require.NoError(t, err)
			head, other := first, second
			head.Type, other.Type = m.MessageType(), m.MessageType()
			got := envelope.EncodePayload(codec != nil, envelope.Payload(frame, envelope.Format(f), head), other)
			assert.Equal(t, string(want.Text()), string(got.Text()))
		}
	}
}

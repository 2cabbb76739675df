package envelope

import (
	"encoding/hex"
	"encoding/json"
	"testing"
	"time"

	"github.com/penstock-go/penstock/tracing"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A namedJSON is JSON with another name.
type namedJSON string

func (n namedJSON) Subprotocol() string                 { return string(n) }
func (namedJSON) Marshal(v any) ([]byte, error)         { return json.Marshal(v) }
func (namedJSON) Unmarshal(payload []byte, v any) error { return json.Unmarshal(payload, v) }

type keyedMessage struct{ N int }

func (keyedMessage) MessageType() string   { return "KEYED" }
func (keyedMessage) ConflationKey() string { return "k" }

const allFormats FormatSet = 1<<(MaxCodecs+1) - 1

func formatsWith(names ...string) (fs Formats) {
	for _, name := range names {
		fs.Add(namedJSON(name), name)
	}
	return fs
}

func TestPacket_CarriesEveryFormat(t *testing.T) {
	for name, tt := range map[string]struct {
		from, to []string
		formats  FormatSet // of the receiver, which it uses
		want     []string  // of the receiver, by format; "" if it is missing
		lacks    bool
	}{
		"JSON only":                 {nil, nil, 1, []string{`{"N":7}`}, false},
		"from a node without codec": {nil, []string{"a"}, 3, []string{`{"N":7}`, ""}, true},
		"to a node without codec":   {[]string{"a"}, nil, 1, []string{`{"N":7}`}, false},
		"in another order":          {[]string{"a", "b"}, []string{"b", "x", "a"}, allFormats >> (MaxCodecs - 3), []string{`{"N":7}`, `{"N":7}`, "", `{"N":7}`}, true},
		"only what is used":         {[]string{"a", "b"}, []string{"a", "b"}, 1 << 2, []string{"", "", `{"N":7}`}, false},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := formatsWith(tt.from...), formatsWith(tt.to...)
			sent, err := from.Encode(keyedMessage{7}, from.All())
			require.NoError(t, err)
			packet := from.Packet(&sent, tracing.TraceContext{})
			now := time.Now()
			got, published, ok := to.ParsePacket(packet, tt.formats, now)
			require.True(t, ok)
			assert.Equal(t, sent.json.At.UnixMicro(), published.UnixMicro())
			assert.Equal(t, tt.lacks, got.Lacks(tt.formats))
			for f, want := range tt.want {
				frame := got.Frame(Format(f))
				if want == "" {
					assert.Nil(t, frame)
					continue
				}
				require.NotNil(t, frame)
				assert.Contains(t, string(frame.Text()), want)
				assert.Equal(t, "KEYED\x00k", frame.Key())
				assert.Equal(t, now, frame.At)
			}
			for n := range packet { // a packet that ends early is malformed, or lacks formats
				if part, _, ok := to.ParsePacket(packet[:n], tt.formats, now); ok && len(tt.from) > 0 {
					assert.True(t, part.Lacks(allFormats), "%d bytes", n)
				}
			}
		})
	}
}

func TestPacket_CarriesTraceContext(t *testing.T) {
	for _, codecs := range [][]string{nil, {"a"}} {
		for _, trace := range []tracing.TraceContext{{}, {Parent: "p"}, {Parent: "p", State: "s"}} {
			fs := formatsWith(codecs...)
			sent, err := fs.Encode(keyedMessage{7}, fs.All())
			require.NoError(t, err)
			packet := fs.Packet(&sent, trace)
			assert.Equal(t, trace, PacketTrace(packet))
			for _, other := range []Formats{formatsWith(), formatsWith("b")} { // as nodes that do not trace
				got, _, ok := other.ParsePacket(packet, OnlyJSON, time.Now())
				require.True(t, ok)
				assert.Contains(t, string(got.json.Text()), `{"N":7}`)
			}
			for n := range packet {
				PacketTrace(packet[:n]) // does not panic
			}
		}
	}
}

func TestPacket_MalformedPacketsAreIgnored(t *testing.T) {
	fs := formatsWith("a")
	for name, packet := range map[string]string{
		"nothing":                         "",
		"an unknown kind":                 "63",
		"no time":                         "01",
		"a time that does not end":        "01ffffffffffffffffffffff",
		"no key":                          "0401",
		"a key beyond the packet":         "04010561",
		"a subprotocol beyond the packet": "0401000561",
		"no message":                      "0401000161",
		"a message beyond the packet":     "04010001610561",
		"the largest length":              "0401000161ffffffffffffffffff01",
	} {
		b, err := hex.DecodeString(packet)
		require.NoError(t, err)
		_, _, ok := fs.ParsePacket(b, allFormats, time.Now())
		assert.False(t, ok, name)
	}
	b, _ := hex.DecodeString("0401000161017801610179")
	p, _, ok := fs.ParsePacket(b, allFormats, time.Now())
	require.True(t, ok)
	assert.Equal(t, "x", string(p.Frame(1).Text()), "the first message of a format counts")
}

func FuzzPacket(f *testing.F) {
	fs := formatsWith("a", "b")
	sent, err := fs.Encode(keyedMessage{7}, fs.All())
	require.NoError(f, err)
	f.Add(fs.Packet(&sent, tracing.TraceContext{}))
	var plain Formats
	f.Add(plain.Packet(&sent, tracing.TraceContext{}))
	f.Fuzz(func(t *testing.T, packet []byte) {
		p, _, _ := fs.ParsePacket(packet, 7, time.Now())
		p.Free()
		PacketTrace(packet)
	})
}

// TestPublication_LacksWhatIsUsedLater asks for the forms of a message that has only JSON, after those of JSON were encoded: another
// node may not know the codec, and a subscriber may come while the message is on its way.
func TestPublication_LacksWhatIsUsedLater(t *testing.T) {
	from, to := formatsWith(), formatsWith("a")
	sent, err := from.Encode(keyedMessage{7}, from.All())
	require.NoError(t, err)
	defer sent.Free()
	received, _, ok := to.ParsePacket(from.Packet(&sent, tracing.TraceContext{}), to.All(), time.Now())
	require.True(t, ok)
	own, err := to.Encode(keyedMessage{7}, OnlyJSON)
	require.NoError(t, err)
	for _, p := range []*Publication{&received, &own} {
		require.NotNil(t, p.Named(JSON, "room/go", 0))
		require.NotNil(t, p.Positioned(JSON, "room/go", 7))
		assert.Nil(t, p.Named(1, "room/go", 0))
		assert.Nil(t, p.Positioned(1, "room/go", 7))
		p.Free()
	}
}

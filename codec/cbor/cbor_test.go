package cbor_test

import (
	"encoding/hex"
	"fmt"
	"math"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
)

// A Sample has fields of every kind.
type Sample struct {
	Text    string            `json:"text"`
	Number  int8              `json:"number"`
	Float   float64           `json:"float"`
	Yes     bool              `json:"yes"`
	Bytes   []byte            `json:"bytes"`
	Names   []string          `json:"names"`
	Counts  map[string]uint64 `json:"counts"`
	At      time.Time         `json:"at,omitzero"`
	IP      netip.Addr        `json:"ip,omitzero"`
	Inner   *Sample           `json:"inner,omitempty"`
	Any     any               `json:"any,omitempty"`
	Renamed int               `cbor:"r" json:"other"`
}

func bytesOf(t *testing.T, text string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	require.NoError(t, err)
	return b
}

// TestCodec_DecodesExamplesOfRFC8949 decodes the examples of appendix A that a value of the type any can
// hold.
func TestCodec_DecodesExamplesOfRFC8949(t *testing.T) {
	examples, err := os.ReadFile("testdata/rfc8949.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(examples)) {
		example, want, _ := strings.Cut(strings.TrimSpace(line), " ")
		if example == "#" {
			continue
		}
		var got any
		require.NoError(t, cbor.New(nil).Unmarshal(bytesOf(t, example), &got), example)
		assert.Equal(t, want, strings.TrimSpace(fmt.Sprintf("%T %v", got, got)), example)
	}
}

func TestCodec_EncodesExamplesOfRFC8949(t *testing.T) {
	for want, v := range map[string]any{
		"00": 0, "17": 23, "1818": 24, "1903e8": 1000, "1bffffffffffffffff": uint64(math.MaxUint64), "20": -1, "3903e7": -1000,
		"f90000": 0.0, "f93c00": 1.0, "fb3ff199999999999a": 1.1, "f97c00": math.Inf(1), "f97e00": math.NaN(), "fa47c35000": 100000.0,
		"f4": false, "f6": nil, "4401020304": []byte{1, 2, 3, 4}, "62c3bc": "\u00fc", "80": []int(nil), "a0": map[string]int(nil),
		"c074323031332d30332d32315432303a30343a30305a": time.Date(2013, 3, 21, 20, 4, 0, 0, time.UTC),
		"a26161016162820203":                           map[string]any{"b": []int{2, 3}, "a": 1},
	} {
		got, err := cbor.New(nil).Marshal(v)
		require.NoError(t, err)
		assert.Equal(t, want, hex.EncodeToString(got), "%v", v)
	}
}

func TestCodec_RoundTrip(t *testing.T) {
	codec := cbor.New(&cbor.Options{RejectUnknownFields: true})
	sent := Sample{
		Text: "hi", Number: -7, Float: 1.5, Yes: true, Bytes: []byte{0xff}, Names: []string{"a", ""}, Counts: map[string]uint64{"x": math.MaxUint64, "y": 1},
		At: time.Date(2024, 10, 27, 3, 33, 20, 123456789, time.UTC), IP: netip.MustParseAddr("2001:db8::1"), Inner: &Sample{Names: []string{}, Bytes: []byte{}, Counts: map[string]uint64{}},
		Any: map[string]any{"a": "b"}, Renamed: 3,
	}
	payload, err := codec.Marshal(sent)
	require.NoError(t, err)
	assert.Contains(t, string(payload), "2001:db8::1", "MarshalText")
	assert.Contains(t, string(payload), "2024-10-27T03:33:20.123456789Z")
	assert.NotContains(t, string(payload), "other", "the tag cbor comes before the tag json")
	var got Sample
	require.NoError(t, codec.Unmarshal(payload, &got))
	assert.True(t, sent.At.Equal(got.At))
	got.At = sent.At
	assert.Equal(t, sent, got)
	for range 20 {
		again, err := codec.Marshal(sent)
		require.NoError(t, err)
		assert.Equal(t, payload, again, "the encoding is deterministic")
	}
}

// TestCodec_DoesNotKeepThePayload overwrites the payload after it has been decoded.
func TestCodec_DoesNotKeepThePayload(t *testing.T) {
	codec := cbor.New(nil)
	payload, err := codec.Marshal(Sample{Text: "text", Bytes: []byte("bytes"), Names: []string{"name"}, Counts: map[string]uint64{"key": 1}, Any: []any{"any", []byte("any")}})
	require.NoError(t, err)
	var got, want Sample
	require.NoError(t, codec.Unmarshal(payload, &got))
	require.NoError(t, codec.Unmarshal(append([]byte(nil), payload...), &want))
	for i := range payload {
		payload[i] = 'x'
	}
	assert.Equal(t, want, got)
}

func TestCodec_RejectsPayloads(t *testing.T) {
	strict := &cbor.Options{RejectUnknownFields: true}
	for name, tt := range map[string]struct {
		payload, field, reason string
		opts                   *cbor.Options
	}{
		"nothing":                     {"", "payload", "is missing", nil},
		"half an item":                {"a1", "payload", "is not valid CBOR", nil},
		"half a string":               {"a1 64 74657874 65 61", "payload", "is not valid CBOR", nil},
		"a reserved length":           {"a1 64 74657874 1c", "payload", "is not valid CBOR", nil},
		"a break without a beginning": {"ff", "payload", "is not valid CBOR", nil},
		"two items":                   {"a0 a0", "payload", "is followed by other bytes", nil},
		"text that is not UTF-8":      {"a1 64 74657874 61 ff", "payload", "is not valid CBOR", nil},
		"a field twice":               {"a2 64 74657874 60 64 74657874 60", "payload", `contains the key "text" twice`, nil},
		"a key twice":                 {"a1 66 636f756e7473 a2 6161 01 6161 02", "payload", `contains the key "a" twice`, nil},
		"an unknown key twice":        {"a2 617a 60 617a 60", "payload", `contains the key "z" twice`, nil},
		"an unknown field":            {"a1 617a 60", "payload", "has an unknown field", strict},
		"an unknown inner field":      {"a1 65 696e6e6572 a1 617a 60", "payload", "has an unknown field", strict},
		"an array for a struct":       {"80", "payload", "must not be an array", nil},
		"a text for a number":         {"a1 66 6e756d626572 6161", "number", "must be an integer in range, not a text string", nil},
		"a number out of range":       {"a1 66 6e756d626572 18c8", "number", "must be an integer in range, not a positive integer", nil},
		"a number for a text":         {"a1 64 74657874 29", "text", "must be a text string, not a negative integer", nil},
		"bytes for a text":            {"a1 64 74657874 4161", "text", "must be a text string, not a byte string", nil},
		"a text for bytes":            {"a1 65 6279746573 6161", "bytes", "must be a byte string, not a text string", nil},
		"a map for an array":          {"a1 65 6e616d6573 a0", "names", "must be an array, not a map", nil},
		"an inner field":              {"a1 65 696e6e6572 a1 64 74657874 f5", "inner", "must be a text string, not a boolean, a float or null", nil},
		"a float for an integer":      {"a1 66 6e756d626572 f93e00", "number", "must be an integer in range, not a boolean, a float or null", nil},
		"an integer as a key of any":  {"a1 63 616e79 a1 01 02", "any", "must be a text string, not a positive integer", nil},
		"the wrong case":              {"a1 64 54455854 60", "payload", "has an unknown field", strict},
	} {
		t.Run(name, func(t *testing.T) {
			var m Sample
			err := cbor.New(tt.opts).Unmarshal(bytesOf(t, tt.payload), &m)
			e, ok := errors.AsType[*errors.Error](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, errors.InvalidArgument, e.Code)
			assert.Equal(t, errors.FieldDetails{Field: tt.field, Reason: tt.reason}, e.Details)
			assert.NoError(t, e.Err, "clients cannot fill the log")
		})
	}
}

func TestCodec_BoundsDepthAndElements(t *testing.T) {
	codec := cbor.New(nil)
	var v any
	assert.NoError(t, codec.Unmarshal([]byte(strings.Repeat("\x81", 64)+"\x00"), &v))
	assert.EqualError(t, codec.Unmarshal([]byte(strings.Repeat("\x81", 65)+"\x00"), &v), "INVALID_ARGUMENT: payload is nested deeper than 64 levels")
	assert.NoError(t, codec.Unmarshal(append([]byte{0x9a, 0, 2, 0, 0}, make([]byte, 1<<17)...), &v))
	assert.EqualError(t, codec.Unmarshal(append([]byte{0x9a, 0, 2, 0, 1}, make([]byte, 1<<17+1)...), &v), "INVALID_ARGUMENT: payload has an array or a map with more than 131072 elements")
	assert.EqualError(t, codec.Unmarshal([]byte{0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, &v), "INVALID_ARGUMENT: payload has an array or a map with more than 131072 elements")
	assert.EqualError(t, codec.Unmarshal([]byte{0x5b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, &v), "INVALID_ARGUMENT: payload is not valid CBOR")
}

func TestCodec_CheckFindsTypesThatCannotBeEncoded(t *testing.T) {
	codec := cbor.New(nil)
	assert.NoError(t, codec.Check(reflect.TypeFor[Sample]()))
	assert.NoError(t, codec.Check(reflect.TypeFor[*Sample]()))
	assert.EqualError(t, codec.Check(reflect.TypeFor[struct{ C chan int }]()), "CBOR cannot represent struct { C chan int }")
}

// FuzzCodec decodes any payload. What decodes must encode, and decode again to the same encoding.
func FuzzCodec(f *testing.F) {
	for _, seed := range []string{
		"a0", "a1 64 74657874 62 6869", "a2 65 6e616d6573 82 60 6161 66 6e756d626572 26", "a1 63 616e79 9f 01 f93c00 c24101 bf 6161 f6 ff ff",
		"a1 62 6174 c0 74 323031332d30332d32315432303a30343a30305a", "a1 62 6970 69 3132372e302e302e31", "a1 65 696e6e6572 a1 65 6279746573 41ff",
		"d9d9f7 a0", "a1 63 616e79 5f 41 01 41 02 ff", "a1 66 636f756e7473 a1 61 61 1b ffffffffffffffff", "f6", "a1 6172 20", "fb 7ff8000000000001",
	} {
		b, err := hex.DecodeString(strings.ReplaceAll(seed, " ", ""))
		require.NoError(f, err)
		f.Add(b)
	}
	codec := cbor.New(nil)
	f.Fuzz(func(t *testing.T, payload []byte) {
		check(t, codec, payload, func() any { return new(Sample) })
		check(t, codec, payload, func() any { return new(any) })
	})
}

var farYear = regexp.MustCompile(`-\d+-\d\d-\d\dT|\d{5,}-\d\d-\d\dT`)

func check(t *testing.T, codec *cbor.Codec, payload []byte, newValue func() any) {
	t.Helper()
	v := newValue()
	if err := codec.Unmarshal(payload, v); err != nil {
		require.Equal(t, errors.InvalidArgument, errors.CodeOf(err))
		return
	}
	first, err := codec.Marshal(v)
	require.NoError(t, err)
	if farYear.Match(first) {
		return // a number of seconds may lie outside of the years that RFC 3339 can represent
	}
	again := newValue()
	require.NoError(t, codec.Unmarshal(first, again), "%x", first)
	second, err := codec.Marshal(again)
	require.NoError(t, err)
	require.Equal(t, first, second)
}

package cbor_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/codec/cbor"
)

func TestCodec_Elements(t *testing.T) {
	for payload, want := range map[string]int{
		"":                                     0,
		"\x07":                                 0,
		"\x80":                                 0,
		"\x83\x01\x80\xa0":                     3,
		"\xa2\x61a\x01\x61b\x82\x01\x02":       4,
		"\x82\x65\x9f\x9f\x9f\x9f\x9f\x01":     2, // a text
		"\x82\xc0\x61x\xf9\x00\x00":            2, // a tag and a float
		"\x9f\x01\x02\xff":                     4, // items, with the array and its end
		"\xbf\x61a\x01\xff":                    4,
		"\x9b\xff\xff\xff\xff\xff\xff\xff\xff": 9, // not well-formed
		"\x5b\xff\xff\xff\xff\xff\xff\xff\xff": 0,
		"\x82\x1c":                             2,
		"\x82\x19\x01":                         2,
	} {
		assert.Equal(t, want, cbor.New(nil).Elements([]byte(payload), nil), "%x", payload)
	}
	many := strings.Repeat("\x9b\xff\xff\xff\xff\xff\xff\xff\xff", 10_000)
	assert.Positive(t, cbor.New(nil).Elements([]byte(many), nil), "no overflow")
}

// FuzzCodec_Elements compares with what is decoded.
func FuzzCodec_Elements(f *testing.F) {
	for _, seed := range []string{"\x83\x01\x80\xa0", "\xa2\x61a\x01\x61b\x82\x01\x02", "\x9f\x01\x02\xff", "\xc0\x61x", "\xbf\x61a\x9f\xff\xff"} {
		f.Add([]byte(seed))
	}
	codec := cbor.New(nil)
	f.Fuzz(func(t *testing.T, payload []byte) {
		var v any
		if codec.Unmarshal(payload, &v) == nil {
			assert.GreaterOrEqual(t, codec.Elements(payload, nil), elementsOf(v))
		}
	})
}

func elementsOf(v any) (n int) {
	switch v := v.(type) {
	case []any:
		n = len(v)
		for _, item := range v {
			n += elementsOf(item)
		}
	case map[string]any:
		n = len(v)
		for _, item := range v {
			n += elementsOf(item)
		}
	}
	return n
}

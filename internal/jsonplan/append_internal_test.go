package jsonplan

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/jsonv2"
)

// encode returns what the library writes with the options of the router.
func encode(t testing.TB, v any) string {
	t.Helper()
	text, err := jsonv2.Marshal(v, encodeOptions)
	require.NoError(t, err)
	return string(text)
}

func TestAppendString_WritesWhatTheLibraryWrites(t *testing.T) {
	texts := []string{"", "a", "<>&'/\u2028\x7f", "ü€😀", "\xff", "a\xc3", "\xed\xa0\x80", "\ufffd", "\x00\b\f\n\r\t\x1f\"\\"}
	for c := range 256 {
		texts = append(texts, string([]byte{byte(c)}), "aaaaaaaa"+string([]byte{byte(c)})+"aaaaaaaaa", strings.Repeat("b", c%20)+string([]byte{byte(c)}))
	}
	for _, text := range texts {
		assert.Equal(t, encode(t, text), string(appendString(nil, text)), "%q", text)
	}
}

func TestAppendKey_LeavesInvalidUTF8(t *testing.T) {
	b, err := appendKey(nil, "a\n")
	require.NoError(t, err)
	assert.Equal(t, `"a\n":`, string(b))
	_, err = appendKey(nil, "\xff")
	assert.ErrorIs(t, err, errLibrary)
}

func TestAppendFloat_WritesWhatTheLibraryWrites(t *testing.T) {
	for _, f := range []float64{0, math.Copysign(0, -1), 1, -1.5, 1e20, 1e21, -1e21, 1e-6, 9.9e-7, -1e-9, 1e-10, 1e-100, math.MaxFloat64, math.SmallestNonzeroFloat64, 0.1, 1 << 53, 3.4e38} {
		b, err := appendFloat([]byte("x"), f, 64)
		require.NoError(t, err)
		assert.Equal(t, "x"+encode(t, f), string(b))
		if narrow := float32(f); !math.IsInf(float64(narrow), 0) {
			b, err = appendFloat([]byte("x"), float64(narrow), 32)
			require.NoError(t, err)
			assert.Equal(t, "x"+encode(t, narrow), string(b))
		}
	}
	for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		_, err := appendFloat(nil, f, 64)
		assert.ErrorIs(t, err, errLibrary)
	}
}

func TestAppendTime_WritesWhatTheLibraryWrites(t *testing.T) {
	for _, at := range []time.Time{
		{}, time.Unix(0, 1).UTC(), time.Unix(1e9, 120e6).In(time.FixedZone("", 5*3600+1800)), time.Unix(1e9, 0).In(time.FixedZone("", -(23*3600 + 59*60))),
	} {
		b, err := appendTime(nil, at)
		require.NoError(t, err)
		assert.Equal(t, encode(t, at), string(b))
	}
	for _, at := range []time.Time{
		time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(0, 0).In(time.FixedZone("", 24*3600)), time.Unix(0, 0).In(time.FixedZone("", 100*3600)),
	} {
		_, err := appendTime(nil, at)
		require.ErrorIs(t, err, errLibrary, "%v", at)
		_, err = jsonv2.Marshal(at)
		assert.Error(t, err)
	}
}

func TestAppendBytes_WritesWhatTheLibraryWrites(t *testing.T) {
	for _, data := range [][]byte{nil, {}, {0}, {1, 2}, {0xff, 0xfe, 0xfd}, []byte(strings.Repeat("x", 100))} {
		assert.Equal(t, encode(t, data), string(appendBytes(nil, data)))
	}
}

func TestAppendLibrary_LeavesErrorsAndDeepValues(t *testing.T) {
	var v any = map[string]any{"b": 1.0, "a": []any{"\xff", nil}}
	add := func() ([]byte, error) {
		return appendLibrary([]byte("x"), reflect.TypeFor[any](), unsafe.Pointer(&v), 0)
	}
	b, err := add()
	require.NoError(t, err)
	assert.Equal(t, `x{"a":["`+"\ufffd"+`",null],"b":1}`, string(b))

	v = math.NaN()
	_, err = add()
	require.ErrorIs(t, err, errLibrary)

	v = nil
	for range 1001 {
		v = []any{v}
	}
	_, err = add()
	assert.ErrorIs(t, err, errLibrary)
}

func TestIsEmpty_HoldsForValuesThatOmitemptyOmits(t *testing.T) {
	for text, want := range map[string]bool{"null": true, `""`: true, "[]": true, "{}": true, "0": false, "false": false, `"a"`: false, "[0]": false} {
		assert.Equal(t, want, isEmpty([]byte(text)), text)
	}
}

package jsoncode_test

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/codec/jsoncode"
	"github.com/penstock-go/penstock/codec/jsoncode/internal/kinds"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/testscale"
)

// The options of package router.
var (
	decodeOptions = jsonv2.JoinOptions(jsonv2.AllowInvalidUTF8(true))
	encodeOptions = jsonv2.JoinOptions(jsonv2.AllowInvalidUTF8(true), jsonv2.Deterministic(true))
)

// checkDecode checks that what generated code decodes has the result of the library, and reports
// whether it decodes the text.
func checkDecode(t *testing.T, typ reflect.Type, text []byte) bool {
	t.Helper()
	before := string(text)
	got := reflect.New(typ).Interface().(generated)
	err := got.DecodeJSON(text)
	require.Equal(t, before, string(text), "the text has changed")
	if err != nil {
		require.ErrorIs(t, err, jsoncode.ErrFallback)
		return false
	}
	want := reflect.New(typ).Interface()
	require.NoError(t, jsonv2.Unmarshal(text, want, decodeOptions), "%s: %q", typ, text)
	require.True(t, reflect.DeepEqual(want, any(got)), "%s: %q: %+v instead of %+v", typ, text, got, want)
	// DeepEqual does not distinguish 0 from -0.
	wantText, wantErr := jsonv2.Marshal(want, encodeOptions)
	gotText, gotErr := jsonv2.Marshal(got, encodeOptions)
	require.Equal(t, wantErr == nil, gotErr == nil)
	require.Equal(t, string(wantText), string(gotText))
	return true
}

// checkAppend checks that generated code appends what the library writes, and reports whether it does.
func checkAppend(t *testing.T, v generated) bool {
	t.Helper()
	got, err := v.AppendJSON([]byte("prefix"))
	want, wantErr := jsonv2.Marshal(v, encodeOptions)
	if err != nil {
		require.ErrorIs(t, err, jsoncode.ErrFallback)
		return false
	}
	require.NoError(t, wantErr)
	require.Equal(t, "prefix"+string(want), string(got))
	return true
}

// checkSeed checks a random value of a type and texts that are similar to its JSON.
func checkSeed(t *testing.T, n uint8, seed uint64) {
	typ := typeNumber(n)
	checkAppend(t, newFiller(seed, false).value(typ))

	g := newFiller(seed, true)
	v := g.value(typ)
	require.True(t, checkAppend(t, v), "%s: left to the library: %+v", typ, v)
	text, err := v.AppendJSON(nil)
	require.NoError(t, err)
	for _, text := range [][]byte{text, g.spaced(text)} {
		require.True(t, checkDecode(t, typ, text), "%s: left to the library: %s", typ, text)
	}
	for range 8 {
		checkDecode(t, typ, g.mutated(text))
	}
}

func TestGenerated_AgreesWithTheLibrary(t *testing.T) {
	for n, typ := range types() {
		t.Run(typ.Name(), func(t *testing.T) {
			for range testscale.Pick(20, 200) {
				checkSeed(t, uint8(n), rand.Uint64())
			}
		})
	}
}

// FuzzDecode decodes any text as any of the types.
func FuzzDecode(f *testing.F) {
	for n, typ := range types() {
		text, err := newFiller(1, true).value(typ).AppendJSON(nil)
		require.NoError(f, err)
		f.Add(uint8(n), text)
	}
	f.Fuzz(func(t *testing.T, n uint8, text []byte) {
		typ := typeNumber(n)
		checkDecode(t, typ, text)
		// What the library makes of the text is encoded and decoded again.
		v := reflect.New(typ).Interface().(generated)
		if jsonv2.Unmarshal(text, v, decodeOptions) == nil {
			checkAppend(t, v)
		}
	})
}

// FuzzAppend encodes random values and decodes texts similar to theirs.
func FuzzAppend(f *testing.F) {
	for n := range types() {
		f.Add(uint8(n), uint64(n))
	}
	f.Fuzz(checkSeed)
}

func TestGenerated_LeavesUnusualTextsToTheLibrary(t *testing.T) {
	for _, text := range []string{
		`{"room":"a","room":"b"}`, `{"Room":"a"}`, `{"other":1}`, `{"room":1}`, `{"n":1.5}`, `{"n":9223372036854775808}`, `{"\u0072oom":"a"}`, `{"room":"\ud800"}`,
		`{"room":"a"`, `{"room":"a"}}`, `{"room":"a",}`, `[]`, `"a"`, ``, `{"n":01}`, "{\"room\":\"\xff\"}", `{"room":"a"} x`,
	} {
		var m kinds.Say
		assert.ErrorIs(t, m.DecodeJSON([]byte(text)), jsoncode.ErrFallback, text)
	}
}

func TestGenerated_DecodesNull(t *testing.T) {
	for _, typ := range types() {
		assert.True(t, checkDecode(t, typ, []byte(" null ")), "%s", typ)
	}
	assert.True(t, checkDecode(t, reflect.TypeFor[kinds.Say](), []byte(`{"room":null,"text":null,"n":null}`)))
}

func TestGenerated_LeavesValuesThatContainThemselves(t *testing.T) {
	tree := &kinds.Tree{}
	tree.Left = tree
	_, err := tree.AppendJSON(nil)
	assert.ErrorIs(t, err, jsoncode.ErrFallback)
}

func TestGenerated_LeavesDeepTexts(t *testing.T) {
	nested := func(depth int) []byte {
		return []byte(strings.Repeat(`{"left":`, depth) + "null" + strings.Repeat("}", depth))
	}
	tree := reflect.TypeFor[kinds.Tree]()
	assert.True(t, checkDecode(t, tree, nested(1000)))
	assert.False(t, checkDecode(t, tree, nested(1001)))
	assert.False(t, checkDecode(t, tree, nested(10_001)))
}

func TestGenerated_DecodesLongLists(t *testing.T) {
	text := `{"points":[` + strings.Repeat(`{"X":1},`, 2000) + `{}],"matrix":[` + strings.Repeat(`[1],`, 2000) + `[]]}`
	assert.True(t, checkDecode(t, reflect.TypeFor[kinds.Lists](), []byte(text)))
}

func TestGenerated_DecodesIntoExistingValuesAsTheLibraryDoes(t *testing.T) {
	one := 1
	for _, text := range []string{`{"strings":["a"],"pairs":[[1,2],[3,4]],"points":[{"X":1}]}`, `{"strings":[],"pair":["a","b"],"pointers":[{"Y":2}]}`, `{"strings":null}`} {
		make := func() *kinds.Lists {
			return &kinds.Lists{Strings: []string{"x", "y"}, Pair: [2]string{"p"}, Points: []kinds.Point{{X: 1, Y: 2}, {X: 3, Y: 4}}, Pointers: []*kinds.Point{{X: 5}}}
		}
		got, want := make(), make()
		require.NoError(t, got.DecodeJSON([]byte(text)))
		require.NoError(t, jsonv2.Unmarshal([]byte(text), want, decodeOptions))
		assert.Equal(t, want, got)
	}
	got, want := kinds.Pointers{Point: &kinds.Point{X: 1}, Bool: new(bool), Int: new(&one)}, kinds.Pointers{Point: &kinds.Point{X: 1}, Bool: new(bool), Int: new(&one)}
	text := []byte(`{"Point":{"Y":2},"Bool":true,"Int":null}`)
	require.NoError(t, got.DecodeJSON(text))
	require.NoError(t, jsonv2.Unmarshal(text, &want, decodeOptions))
	assert.Equal(t, want, got)
	full := kinds.Lists{Map: map[string]int{"a": 1}}
	assert.ErrorIs(t, full.DecodeJSON([]byte(`{"map":{"b":1}}`)), jsoncode.ErrFallback)
}

func TestGenerated_AllocatesOnlyItsStrings(t *testing.T) {
	text := []byte(`{"room":"general","text":"The quick brown fox jumps over the lazy dog","n":1234567}`)
	var m kinds.Say
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { _ = m.DecodeJSON(text) }), 2.0)
	buffer := make([]byte, 0, 512)
	assert.Zero(t, testing.AllocsPerRun(100, func() { buffer, _ = m.AppendJSON(buffer[:0]) }))
	assert.Equal(t, string(text), string(buffer))
}

package jsonplan

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/testscale"
)

// checkDecode checks that a text is decoded, or refused, as the library does, and reports whether the plan
// does not leave it to the library.
func checkDecode(t *testing.T, typ reflect.Type, text []byte) bool {
	t.Helper()
	p := Of(typ)
	decoded := false
	for _, strict := range []bool{true, false} {
		before := string(text)
		got, want := reflect.New(typ), reflect.New(typ)
		decoded = p.root != nil && p.root.decode(text, got.UnsafePointer(), strict)
		if !decoded {
			got = reflect.New(typ)
			require.Equal(t, before, string(text), "the text has changed")
			requireSameError(t, libraryUnmarshal(text, want.Interface(), strict), p.Unmarshal(text, got.Interface(), strict))
			continue
		}
		require.Equal(t, before, string(text), "the text has changed")
		require.NoError(t, libraryUnmarshal(text, want.Interface(), strict), "%s: %q", typ, text)
		input := []byte(before)
		again := reflect.New(typ)
		require.NoError(t, p.Unmarshal(input, again.Interface(), strict))
		for i := range input { // the value must not refer to the text
			input[i] = 'x'
		}
		for _, got := range []reflect.Value{got, again} {
			require.True(t, reflect.DeepEqual(want.Interface(), got.Interface()), "%s: %q: %+v instead of %+v", typ, text, got, want)
		}
		// DeepEqual does not distinguish 0 from -0.
		wantText, wantErr := jsonv2.Marshal(want.Interface(), encodeOptions)
		gotText, gotErr := jsonv2.Marshal(got.Interface(), encodeOptions)
		require.Equal(t, wantErr == nil, gotErr == nil)
		require.Equal(t, string(wantText), string(gotText))
	}
	return decoded
}

func requireSameError(t *testing.T, want, got error) {
	t.Helper()
	require.IsType(t, want, got)
	if want != nil {
		require.Equal(t, want.Error(), got.Error())
	}
}

// checkAppend checks that what v points to is encoded as the library does, and reports whether the plan does
// not leave it to the library.
func checkAppend(t *testing.T, v reflect.Value) bool {
	t.Helper()
	p := Of(v.Type().Elem())
	want, wantErr := jsonv2.Marshal(v.Interface(), encodeOptions)
	for _, value := range []any{v.Interface(), v.Elem().Interface()} {
		got, err := p.Append([]byte("prefix"), value)
		if wantErr != nil {
			require.Equal(t, "prefix", string(got))
			_, wantErr = jsonv2.Marshal(value, encodeOptions)
			requireSameError(t, wantErr, err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, "prefix"+string(want), string(got), "%T", value)
	}
	if p.root == nil {
		return false
	}
	_, err := p.root.append(nil, v.UnsafePointer(), 0, false)
	return err == nil
}

// checkSeed checks a random value of a type and texts that are similar to its JSON.
func checkSeed(t *testing.T, typ reflect.Type, seed uint64) {
	t.Helper()
	checkAppend(t, newFiller(seed, false).value(typ))

	g := newFiller(seed, true)
	v := g.value(typ)
	planned := Of(typ).root != nil
	require.Equal(t, planned, checkAppend(t, v), "%s: left to the library: %+v", typ, v)
	text, err := Of(typ).Append(nil, v.Interface())
	if !planned && err != nil {
		return
	}
	require.NoError(t, err)
	for _, text := range [][]byte{text, g.spaced(text)} {
		require.Equal(t, planned, checkDecode(t, typ, text), "%s: left to the library: %s", typ, text)
	}
	for range 8 {
		checkDecode(t, typ, g.mutated(text))
	}
}

func TestPlan_AgreesWithTheLibrary(t *testing.T) {
	for _, typ := range types() {
		t.Run(typ.Name(), func(t *testing.T) {
			assert.Equal(t, typ.Name() != "Library", Of(typ).root != nil, "has a plan")
			for range testscale.Pick(20, 200) {
				checkSeed(t, typ, rand.Uint64())
			}
		})
	}
}

// FuzzDecode decodes any text as any of the types.
func FuzzDecode(f *testing.F) {
	for n, typ := range types() {
		text, err := Of(typ).Append(nil, newFiller(1, true).value(typ).Interface())
		require.NoError(f, err)
		f.Add(uint8(n), text)
	}
	f.Fuzz(func(t *testing.T, n uint8, text []byte) {
		typ := typeNumber(n)
		checkDecode(t, typ, text)
		// What the library makes of the text is encoded and decoded again.
		if v := reflect.New(typ); jsonv2.Unmarshal(text, v.Interface(), decodeOptions) == nil {
			checkAppend(t, v)
		}
	})
}

// FuzzAppend encodes random values and decodes texts similar to theirs.
func FuzzAppend(f *testing.F) {
	for n := range types() {
		f.Add(uint8(n), uint64(n))
	}
	f.Fuzz(func(t *testing.T, n uint8, seed uint64) { checkSeed(t, typeNumber(n), seed) })
}

func TestPlan_UnusualTexts(t *testing.T) {
	for text, decoded := range map[string]bool{
		`{"Room":"a"}`: true, `{"other":1}`: true, `{"\u0072oom":"a"}`: true, `{"x":{"a":1,"b":[{}, "\n",1e5,null,true]},"n":1}`: true, `{"x":1,"y":"ü"}`: true,
		`{"room":"a","room":"b"}`: false, `{"x":1,"x":2}`: false, `{"x":{"a":1,"a":2}}`: false, `{"x":"\ud800"}`: false, `{"x":01}`: false, "{\"x\xff\":1}": false, `{"x":nul}`: false,
		`{"room":1}`: false, `{"n":1.5}`: false, `{"n":9223372036854775808}`: false, `{"room":"\ud800"}`: false, `{"x":[1,]}`: false, `{"x":t}`: false, `{"x":}`: false,
		`{"room":"a"`: false, `{"room":"a"}}`: false, `{"room":"a",}`: false, `[]`: false, `"a"`: false, ``: false, `{"n":01}`: false, "{\"room\":\"\xff\"}": false, `{"room":"a"} x`: false,
	} {
		assert.Equal(t, decoded, checkDecode(t, reflect.TypeFor[Say](), []byte(text)), text)
	}
}

func TestPlan_DecodesNull(t *testing.T) {
	for _, typ := range types() {
		checkDecode(t, typ, []byte(" null "))
	}
	assert.True(t, checkDecode(t, reflect.TypeFor[Say](), []byte(`{"room":null,"text":null,"n":null}`)))
}

func TestPlan_LeavesValuesThatContainThemselves(t *testing.T) {
	tree := &Tree{}
	tree.Left = tree
	assert.False(t, checkAppend(t, reflect.ValueOf(tree)))
	tree = &Tree{Children: make([]Tree, 2)}
	tree.Children[1] = *tree
	tree.ByName = map[string]*Tree{"a": tree}
	assert.False(t, checkAppend(t, reflect.ValueOf(tree)))
}

func TestPlan_LeavesDeepTexts(t *testing.T) {
	nested := func(depth int) []byte {
		return []byte(strings.Repeat(`{"left":`, depth) + "null" + strings.Repeat("}", depth))
	}
	tree := reflect.TypeFor[Tree]()
	assert.True(t, checkDecode(t, tree, nested(1000)))
	assert.False(t, checkDecode(t, tree, nested(1001)))
	assert.False(t, checkDecode(t, tree, nested(10_001)))
	unknown := func(depth int) []byte {
		return []byte(`{"x":` + strings.Repeat(`[`, depth) + strings.Repeat("]", depth) + "}")
	}
	assert.True(t, checkDecode(t, tree, unknown(999)))
	assert.False(t, checkDecode(t, tree, unknown(1001)))
	assert.False(t, checkDecode(t, tree, unknown(100_000)))
}

func TestPlan_DecodesLongLists(t *testing.T) {
	text := `{"points":[` + strings.Repeat(`{"X":1},`, 2000) + `{}],"matrix":[` + strings.Repeat(`[1],`, 2000) + `[]]}`
	assert.True(t, checkDecode(t, reflect.TypeFor[Lists](), []byte(text)))
}

func TestPlan_AllocatesOnlyItsStrings(t *testing.T) {
	text := []byte(`{"room":"general","text":"The quick brown fox jumps over the lazy dog, who does not mind it at all","n":1234567}`)
	p := Of(reflect.TypeFor[Say]())
	var m Say
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { m = Say{}; _ = p.Unmarshal(text, &m, false) }), 1.0)
	buffer := make([]byte, 0, 512)
	assert.Zero(t, testing.AllocsPerRun(100, func() { buffer, _ = p.Append(buffer[:0], &m) }))
	assert.Equal(t, string(text), string(buffer))
	var v any = m
	assert.Zero(t, testing.AllocsPerRun(100, func() { buffer, _ = p.Append(buffer[:0], v) }))
}

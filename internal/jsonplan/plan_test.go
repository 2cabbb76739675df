package jsonplan_test

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/jsonplan"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/testscale"
)

// The options of package router.
var (
	decodeOptions = jsonv2.JoinOptions(jsonv2.AllowInvalidUTF8(true))
	encodeOptions = jsonv2.JoinOptions(jsonv2.AllowInvalidUTF8(true), jsonv2.Deterministic(true))
)

// checkDecode checks that what a plan decodes has the result of the library, and reports
// whether it decodes the text.
func checkDecode(t *testing.T, typ reflect.Type, text []byte) bool {
	t.Helper()
	before := string(text)
	got := reflect.New(typ).Interface()
	ok := jsonplan.Of(typ).Decode(text, got)
	require.Equal(t, before, string(text), "the text has changed")
	if !ok {
		return false
	}
	want := reflect.New(typ).Interface()
	require.NoError(t, jsonv2.Unmarshal(text, want, decodeOptions), "%s: %q", typ, text)
	require.True(t, reflect.DeepEqual(want, got), "%s: %q: %+v instead of %+v", typ, text, got, want)
	// DeepEqual does not distinguish 0 from -0.
	wantText, wantErr := jsonv2.Marshal(want, encodeOptions)
	gotText, gotErr := jsonv2.Marshal(got, encodeOptions)
	require.Equal(t, wantErr == nil, gotErr == nil)
	require.Equal(t, string(wantText), string(gotText))
	return true
}

// checkAppend checks that a plan appends what the library writes, and reports whether it does.
func checkAppend(t *testing.T, v any) bool {
	t.Helper()
	elem := reflect.ValueOf(v).Elem()
	plan := jsonplan.Of(elem.Type())
	got, ok := plan.AppendPointer([]byte("prefix"), v)
	copied, same := plan.Append([]byte("prefix"), elem.Interface())
	require.Equal(t, ok, same)
	require.Equal(t, string(got), string(copied))
	if !ok {
		require.Equal(t, "prefix", string(got))
		return false
	}
	want, err := jsonv2.Marshal(v, encodeOptions)
	require.NoError(t, err)
	require.Equal(t, "prefix"+string(want), string(got))
	return true
}

// encoded returns the JSON that a plan appends for what v points to.
func encoded(t testing.TB, v any) []byte {
	text, ok := jsonplan.Of(reflect.TypeOf(v).Elem()).AppendPointer(nil, v)
	require.True(t, ok)
	return text
}

// checkSeed checks a random value of a type and texts that are similar to its JSON.
func checkSeed(t *testing.T, n uint8, seed uint64) {
	typ := typeNumber(n)
	checkAppend(t, newFiller(seed, false).value(typ))

	g := newFiller(seed, true)
	v := g.value(typ)
	require.True(t, checkAppend(t, v), "%s: left to the library: %+v", typ, v)
	text := encoded(t, v)
	for _, text := range [][]byte{text, g.spaced(text)} {
		require.True(t, checkDecode(t, typ, text), "%s: left to the library: %s", typ, text)
	}
	for range 8 {
		checkDecode(t, typ, g.mutated(text))
	}
}

func TestPlan_AgreesWithTheLibrary(t *testing.T) {
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
		f.Add(uint8(n), encoded(f, newFiller(1, true).value(typ)))
	}
	f.Fuzz(func(t *testing.T, n uint8, text []byte) {
		typ := typeNumber(n)
		checkDecode(t, typ, text)
		// What the library makes of the text is encoded and decoded again.
		v := reflect.New(typ).Interface()
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

func TestPlan_LeavesUnusualTextsToTheLibrary(t *testing.T) {
	for _, text := range []string{
		`{"room":"a","room":"b"}`, `{"Room":"a"}`, `{"other":1}`, `{"room":1}`, `{"n":1.5}`, `{"n":9223372036854775808}`, `{"\u0072oom":"a"}`, `{"room":"\ud800"}`,
		`{"room":"a"`, `{"room":"a"}}`, `{"room":"a",}`, `[]`, `"a"`, ``, `{"n":01}`, "{\"room\":\"\xff\"}", `{"room":"a"} x`,
	} {
		assert.False(t, jsonplan.Of(reflect.TypeFor[Say]()).Decode([]byte(text), new(Say)), text)
	}
}

func TestPlan_DecodesNull(t *testing.T) {
	for _, typ := range types() {
		assert.True(t, checkDecode(t, typ, []byte(" null ")), "%s", typ)
	}
	assert.True(t, checkDecode(t, reflect.TypeFor[Say](), []byte(`{"room":null,"text":null,"n":null}`)))
}

func TestPlan_LeavesValuesThatContainThemselves(t *testing.T) {
	tree := &Tree{}
	tree.Left = tree
	assert.False(t, checkAppend(t, tree))
}

func TestPlan_LeavesDeepTexts(t *testing.T) {
	nested := func(depth int) []byte {
		return []byte(strings.Repeat(`{"left":`, depth) + "null" + strings.Repeat("}", depth))
	}
	tree := reflect.TypeFor[Tree]()
	assert.True(t, checkDecode(t, tree, nested(1000)))
	assert.False(t, checkDecode(t, tree, nested(1001)))
	assert.False(t, checkDecode(t, tree, nested(10_001)))
}

func TestPlan_DecodesLongLists(t *testing.T) {
	text := `{"points":[` + strings.Repeat(`{"X":1},`, 2000) + `{}],"matrix":[` + strings.Repeat(`[1],`, 2000) + `[]]}`
	assert.True(t, checkDecode(t, reflect.TypeFor[Lists](), []byte(text)))
}

func TestPlan_AllocatesOnlyItsStrings(t *testing.T) {
	text := []byte(`{"room":"general","text":"The quick brown fox jumps over the lazy dog","n":1234567}`)
	var m Say
	plan := jsonplan.Of(reflect.TypeFor[Say]())
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { plan.Decode(text, &m) }), 2.0)
	buffer := make([]byte, 0, 512)
	assert.Zero(t, testing.AllocsPerRun(100, func() { buffer, _ = plan.AppendPointer(buffer[:0], &m) }))
	assert.Equal(t, string(text), string(buffer))
}

// TestOf_LeavesTypesToTheLibrary has types that the library rejects, or for which it has rules of its own.
func TestOf_LeavesTypesToTheLibrary(t *testing.T) {
	for _, v := range []any{
		map[int]string{}, any(time.Duration(0)), Text{}, JSON{}, Fallback{}, List{}, make(chan int), func() {}, complex(1, 1),
		struct{ a int }{}, struct {
			A int `json:"a,format:hex"`
		}{}, struct {
			A string `json:"a,string"`
		}{}, struct {
			A int `json:"'a'"`
		}{},
		reflect.New(reflect.StructOf([]reflect.StructField{
			{Name: "A", Type: reflect.TypeFor[int](), Tag: `json:"x"`}, {Name: "B", Type: reflect.TypeFor[int](), Tag: `json:"x"`},
		})).Elem().Interface(),
	} {
		assert.Nil(t, jsonplan.Of(reflect.TypeOf(v)), "%T", v)
	}
}

package jsonplan

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// open has values that any text fits.
type open struct {
	Any    any
	Object map[string]any
	List   []any
	Raw    json.RawMessage

	A, B, C, D, E, F, G, H, I string
}

func TestPlan_DecodesAnyValue(t *testing.T) {
	typ := reflect.TypeFor[open]()
	for value, decoded := range map[string]bool{
		`{"a":[1,"b",null,true,{}],"c":-1.5e3}`: true, ` [ 1 , {"a" : 1} ] `: true, `null`: true, `{"":1}`: true, `"a"`: true, `1e400`: false, `{"a":1,"\u0061":2}`: false, `[1,]`: false, `{"a":{"b":1,"b":1}}`: false,
		`nul`: false, `"\ud800"`: false, `{"\ud800":1,"\ufffd":1}`: false, `01`: false, strings.Repeat("[", 1001) + strings.Repeat("]", 1001): false,
	} {
		assert.Equal(t, decoded, checkDecode(t, typ, []byte(`{"Any":`+value+`}`)), value)
		for _, name := range []string{"Object", "List", "Raw", "unknown"} {
			checkDecode(t, typ, []byte(`{"`+name+`":`+value+`}`))
		}
	}
}

func TestPlan_ComparesManyUnknownNames(t *testing.T) {
	var text strings.Builder
	for i := range 40 {
		text.WriteString(`"x` + strings.Repeat("y", i) + `":{"a":1},`)
	}
	for name, strict := range map[string]bool{"x": false, "xyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy": false, "z": true} {
		assert.Equal(t, strict, checkDecode(t, reflect.TypeFor[open](), []byte(`{`+text.String()+`"`+name+`":1}`)), name)
		assert.Equal(t, strict, checkDecode(t, reflect.TypeFor[open](), []byte(`{"Raw":{`+text.String()+`"`+name+`":1}}`)), name)
	}
}

// counted changes when it is encoded.
type counted struct {
	A, B, C string
	N       count
}

type count struct{ n [3]int }

func (c *count) MarshalJSON() ([]byte, error) {
	c.n[0]++
	return []byte("1"), nil
}

func TestPlan_MethodsDoNotChangeWhatAnInterfaceHolds(t *testing.T) {
	p := Of(reflect.TypeFor[counted]())
	require.NotNil(t, p.root)
	var v any = counted{A: strings.Repeat("a", 2)} // not a constant, which others may share
	_, err := p.Append(nil, v)
	require.NoError(t, err)
	assert.Zero(t, v.(counted).N)
}

func TestPlan_LeavesTypesWithoutJSON(t *testing.T) {
	type hidden struct{ a int }
	type values struct {
		A, B, C, D string
		Hidden     hidden
		Chan       chan int
	}
	v := values{Hidden: hidden{1}}
	assert.False(t, checkAppend(t, reflect.ValueOf(&v)))
	assert.True(t, checkDecode(t, reflect.TypeFor[values](), []byte(`{"A":"a"}`)))
	for _, text := range []string{`{"Hidden":{}}`, `{"Chan":null}`} {
		assert.False(t, checkDecode(t, reflect.TypeFor[values](), []byte(text)))
	}
	assert.Nil(t, Of(reflect.TypeFor[hidden]()).root)
}

func TestPlan_OtherTypesAreLeftToTheLibrary(t *testing.T) {
	p := Of(reflect.TypeFor[Say]())
	text, err := p.Append(nil, Point{1, 2})
	require.NoError(t, err)
	assert.Equal(t, `{"X":1,"Y":2}`, string(text))
	point := Point{}
	require.NoError(t, p.Unmarshal(text, &point, false))
	assert.Equal(t, Point{1, 2}, point)
	assert.Error(t, p.Unmarshal(text, nil, false))
	text, err = p.Append(nil, (*Say)(nil))
	require.NoError(t, err)
	assert.Equal(t, "null", string(text))
}

// An interface may hold these values without a pointer to them.
func TestPlan_PointerSizedValues(t *testing.T) {
	n := 7
	for _, v := range []any{
		struct{ P *int }{&n}, struct{ N uint64 }{8}, [1]*int{&n}, map[string]int{"a": 1}, struct{ M map[string]int }{map[string]int{"a": 1}}, &n, struct{}{}, [0]int{}, struct {
			P *int
			_ struct{}
		}{P: &n},
	} {
		want, err := libraryAppend(nil, v)
		require.NoError(t, err)
		got, err := Of(reflect.TypeOf(v)).Append(nil, v)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got))
		got, err = Append(nil, v)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got))
	}
}

func TestUnmarshal_IntoValuesThatAreNotZero(t *testing.T) {
	v, want := Say{Room: "old", N: 1}, Say{Room: "old", N: 1}
	text := []byte(`{"text":"new"}`)
	require.NoError(t, Unmarshal(text, &v))
	require.NoError(t, libraryUnmarshal(text, &want, false))
	assert.Equal(t, want, v)
	for _, into := range []any{nil, v, (*Say)(nil)} {
		requireSameError(t, libraryUnmarshal(text, into, false), Unmarshal(text, into))
	}
}

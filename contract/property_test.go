package contract_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/contract"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/testscale"
)

func kitchenContract(t *testing.T) *contract.Contract {
	t.Helper()
	c, err := contract.New(kitchenRouter().Describe(), kitchenOptions())
	require.NoError(t, err)
	return c
}

func definition(t *testing.T, c *contract.Contract, name string) (*jsonschema.Resolved, *jsonschema.Schema) {
	t.Helper()
	root := new(jsonschema.Schema)
	require.NoError(t, json.Unmarshal(c.JSONSchema(), root))
	require.Contains(t, root.Defs, name)
	root.AnyOf, root.Ref = nil, "#/$defs/"+name
	resolved, err := root.Resolve(nil)
	require.NoError(t, err)
	return resolved, root.Defs[name]
}

// encoded returns what the router sends for a payload, decoded as JSON.
func encoded(t *testing.T, v any) (text []byte, value any) {
	t.Helper()
	text, err := jsonv2.Marshal(v, jsonv2.AllowInvalidUTF8(true), jsonv2.Deterministic(true)) // as in router/json.go
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &value))
	return text, value
}

func TestJSONSchema_AcceptsWhatTheRouterEncodes(t *testing.T) {
	c := kitchenContract(t)
	for _, typ := range []reflect.Type{
		reflect.TypeFor[Everything](), reflect.TypeFor[Received](), reflect.TypeFor[Tree](), reflect.TypeFor[Nested](),
		reflect.TypeFor[Dict](), reflect.TypeFor[Extended](), reflect.TypeFor[Ping](), reflect.TypeFor[Row](),
	} {
		schema, _ := definition(t, c, typ.Name())
		for seed := range testscale.Pick[uint64](30, 150) {
			v := reflect.New(typ).Elem()
			if seed > 0 { // the first one is the zero value
				generator{rand.New(rand.NewPCG(seed, 1))}.fill(v, false, 4)
			} else if typ == reflect.TypeFor[Received]() {
				continue // whose enumerations have no value
			} else if typ == reflect.TypeFor[Everything]() {
				v.FieldByName("Color").SetString("red")
			}
			text, value := encoded(t, v.Addr().Interface())
			require.NoError(t, schema.Validate(value), "seed %d: %s", seed, text)
		}
	}
}

// TestJSONSchema_RejectsWhatIsNotEncoded replaces each member by values of other types. What the schema
// accepts must at least be decodable.
func TestJSONSchema_RejectsWhatIsNotEncoded(t *testing.T) {
	schema, def := definition(t, kitchenContract(t), "Everything")
	wrong := []any{nil, true, 0.5, "~", []any{map[string]any{"no": 1}}, map[string]any{"no": []any{}}}
	unknown := []string{"any", "raw"}
	rejectedBy := map[string]int{}
	seeds := testscale.Pick[uint64](2, 5)
	for seed := uint64(1); seed <= seeds; seed++ {
		var m Everything
		generator{rand.New(rand.NewPCG(seed, 2))}.fill(reflect.ValueOf(&m).Elem(), false, 4)
		_, value := encoded(t, &m)
		object := value.(map[string]any)
		for name := range def.Properties {
			original, present := object[name]
			for _, other := range wrong {
				object[name] = other
				if schema.Validate(object) != nil {
					rejectedBy[name]++
				} else if _, isText := other.(string); !isText { // texts have forms that the schema does not describe
					text, err := json.Marshal(map[string]any{name: other})
					require.NoError(t, err)
					assert.NoError(t, jsonv2.Unmarshal(text, new(Everything)), "the schema accepts %s: %v", name, other)
				}
			}
			delete(object, name)
			err := schema.Validate(object)
			if slices.Contains(def.Required, name) {
				require.True(t, present, name)
				assert.Error(t, err, "without %s", name)
			} else {
				assert.NoError(t, err, "without %s", name)
			}
			if present {
				object[name] = original
			}
		}
		require.NoError(t, schema.Validate(object))
	}
	for name := range def.Properties {
		if !slices.Contains(unknown, name) {
			assert.GreaterOrEqual(t, rejectedBy[name], int(seeds)*4, name) // of 6 values, one may be valid, and null
		}
	}
}

func TestJSONSchema_RejectsNumbersOutOfRangeAndUnknownValues(t *testing.T) {
	schema, _ := definition(t, kitchenContract(t), "Everything")
	_, value := encoded(t, &Everything{Color: "red"})
	object := value.(map[string]any)
	for name, values := range map[string][]any{
		"int8": {128.0, -129.0}, "uint8": {256.0, -1.0}, "int16": {32768.0}, "uint16": {65536.0}, "int32": {0x1p31}, "uint32": {0x1p32},
		"uint": {-1.0}, "safe": {0x1p53, -0x1p53}, "safeList": {[]any{-1.0}, []any{0x1p53}},
		"int64": {"", "01", "1.5", "-0", 1.0}, "uint64": {"-1"}, "floatText": {"x"},
		"color": {"blue", "", nil}, "colors": {[]any{"blue"}}, "byColor": {map[string]any{"blue": true}},
		"byInt": {map[string]any{"x": "a"}}, "byUint": {map[string]any{"-1": "a"}}, "byCode": {map[string]any{"ab": 1}},
		"hash": {"-_-_", "a"}, "pair": {[]any{1.0}, []any{1.0, 2.0, 3.0}}, "map": {nil}, "strings": {nil}, "bytes": {nil},
		"pointerZero": {nil}, "anonymous": {map[string]any{"X": 1.0}}, "tree": {map[string]any{"name": "x", "children": []any{map[string]any{}}}},
	} {
		original := maps.Clone(object)
		for _, other := range values {
			object[name] = other
			assert.Error(t, schema.Validate(object), "%s: %v", name, other)
		}
		object = original
		require.NoError(t, schema.Validate(object))
	}
}

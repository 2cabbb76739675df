package contract_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/contract"
	"github.com/penstock-go/penstock/router/description"
)

type selfEncoding struct{}

func (selfEncoding) MarshalJSON() ([]byte, error) { return []byte("1"), nil }

type readsText struct{}

func (*readsText) UnmarshalText([]byte) error { return nil }

type writesText struct{}

func (writesText) MarshalText() ([]byte, error) { return nil, nil }

type noValues string

func (noValues) Enum() []noValues { return nil }

type badSchema string

func (badSchema) JSONSchema() string { return `{"type":` }

type danglingSchema string

func (danglingSchema) JSONSchema() string { return `{"$ref":"#/$defs/Missing"}` }

// describe returns the description of a router whose only message from clients, or to them, is of a type.
func describe(typ reflect.Type, sent bool) description.Contract {
	m := description.Message{Type: "M", Go: typ}
	if sent {
		return description.Contract{Routes: []description.Route{{Message: m, Kind: description.KindEvent}}}
	}
	return description.Contract{Sent: []description.Message{m}}
}

func TestNew_RejectsTypesWithoutJSONForm(t *testing.T) {
	for name, tt := range map[string]struct {
		message any
		want    string
	}{
		"duration": {
			struct {
				In struct{ Timeout time.Duration }
			}{},
			`contract: M: field In.Timeout: time.Duration has no JSON form; write an integer with the unit in its name, such as TimeoutMs int`,
		},
		"int64": {
			struct{ IDs []map[string]int64 }{},
			`contract: M: field IDs[][]: int64 exceeds what JavaScript can represent; add the option string to its json tag, or contract:"safe" if it stays within ±(2^53-1), or make it an int32`,
		},
		"uint64": {struct{ N *uint64 }{}, `field N: uint64 exceeds`},
		"tag": {struct {
			N int64 `contract:"unsafe"`
		}{}, `field N: int64 has the tag contract:"unsafe"; the values are safe, and const= with a text`},
		"constant number": {struct {
			N int `contract:"const=1"`
		}{}, `field N: int has the tag contract:"const=1", which is for texts`},
		"channel":          {struct{ C chan int }{}, `chan int has no JSON form; leave the field out with the tag json:"-"`},
		"function":         {struct{ F func() }{}, `func() has no JSON form`},
		"complex":          {struct{ C complex128 }{}, `complex128 has no JSON form`},
		"uintptr":          {struct{ C uintptr }{}, `uintptr has no JSON form`},
		"pointer":          {struct{ C unsafe.Pointer }{}, `unsafe.Pointer has no JSON form`},
		"interface":        {struct{ S Shape }{}, `field S: contract_test.Shape is an interface without variants; use a struct, or any, or list the types of its values in Options.Variants`},
		"error":            {struct{ E error }{}, `field E: error is an interface without variants`},
		"encodes itself":   {struct{ S selfEncoding }{}, `field S: contract_test.selfEncoding encodes itself; give it a method JSONSchema() string that returns its JSON Schema, or set Options.Schemas`},
		"reads text only":  {struct{ S readsText }{}, `contract_test.readsText has UnmarshalText without MarshalText`},
		"writes text only": {struct{ S writesText }{}, `contract_test.writesText has MarshalText and clients send it; give it a method UnmarshalText, too`},
		"no values":        {struct{ S noValues }{}, `contract_test.noValues has a method Enum that returns no values`},
		"keys":             {struct{ M map[bool]int }{}, `field M[]: map[bool]int has keys that are no strings in JSON`},
		"malformed schema": {struct{ S badSchema }{}, `contract_test.badSchema has a JSON Schema that cannot be decoded`},
		"dangling schema":  {struct{ S danglingSchema }{}, `contract_test.danglingSchema has an invalid JSON Schema`},
		"quoted text": {struct {
			S string `json:",string"`
		}{}, `string is not encoded as a number; remove the option string from its tag`},
		"quoted values": {struct {
			L Level `json:",string"`
		}{}, `contract_test.Level is not encoded as a number`},
		"format": {struct {
			At time.Time `json:",format:Unix"`
		}{}, "cannot be encoded as JSON"},
		"embedded text":     {struct{ Color }{}, "cannot be encoded as JSON"},
		"inside definition": {Page[struct{ D time.Duration }]{}, "field Items[].D: time.Duration has no JSON form"},
	} {
		_, err := contract.New(describe(reflect.TypeOf(tt.message), true), nil)
		assert.ErrorContains(t, err, tt.want, name)
	}
}

func TestNew_ReportsEveryMistakeOnce(t *testing.T) {
	type inner struct{ D time.Duration }
	_, err := contract.New(describe(reflect.TypeFor[struct {
		A, B inner
		C    chan int
	}](), true), nil)
	require.Error(t, err)
	assert.Equal(t, `contract: M: field A.D: time.Duration has no JSON form; write an integer with the unit in its name, such as TimeoutMs int
contract: M: field C: chan int has no JSON form; leave the field out with the tag json:"-"`, err.Error())
}

func TestNew_RejectsInterfacesThatClientsSend(t *testing.T) {
	_, err := contract.New(describe(reflect.TypeFor[struct{ S Shape }](), true), kitchenOptions())
	assert.ErrorContains(t, err, "contract_test.Shape is an interface and clients send it, so its values cannot be decoded; use a struct whose fields are optional")
	_, err = contract.New(describe(reflect.TypeFor[struct{ S Shape }](), false), kitchenOptions())
	assert.NoError(t, err)
	opts := &contract.Options{Variants: map[reflect.Type][]reflect.Type{reflect.TypeFor[Shape](): {reflect.TypeFor[int]()}}}
	_, err = contract.New(describe(reflect.TypeFor[struct{ S Shape }](), false), opts)
	assert.ErrorContains(t, err, "cannot have the variant int, which does not implement it")
}

type (
	hasCentre struct{ X, Y int }
	hasCorner struct {
		Kind string `json:"kind" contract:"const=square"`
	}
)

func (hasCentre) Area() float64 { return 0 }
func (hasCorner) Area() float64 { return 0 }

func TestNew_RejectsVariantsThatCannotBeToldApart(t *testing.T) {
	for name, variants := range map[string][]reflect.Type{
		"no common field":     {reflect.TypeFor[hasCentre](), reflect.TypeFor[Circle]()},
		"the same value":      {reflect.TypeFor[Circle](), reflect.TypeFor[hasCorner](), reflect.TypeFor[Square]()},
		"one without a value": {reflect.TypeFor[Circle](), reflect.TypeFor[hasCentre]()},
	} {
		opts := &contract.Options{Variants: map[reflect.Type][]reflect.Type{reflect.TypeFor[Shape](): variants}}
		_, err := contract.New(describe(reflect.TypeFor[struct{ S Shape }](), false), opts)
		assert.ErrorContains(t, err, "contract: M: field S: contract_test.Shape has variants that clients cannot tell apart; give each a field", name)
	}
	one := &contract.Options{Variants: map[reflect.Type][]reflect.Type{reflect.TypeFor[Shape](): {reflect.TypeFor[hasCentre]()}}}
	_, err := contract.New(describe(reflect.TypeFor[struct{ S Shape }](), false), one)
	assert.NoError(t, err)
}

func TestNew_AcceptsMarshalTextOfWhatOnlyTheServerSends(t *testing.T) {
	_, err := contract.New(describe(reflect.TypeFor[struct{ S writesText }](), false), nil)
	assert.NoError(t, err)
}

func TestParse_ReturnsTheSameContract(t *testing.T) {
	c := kitchenContract(t)
	parsed, err := contract.Parse(c.Document())
	require.NoError(t, err)
	assert.Equal(t, string(c.TypeScript()), string(parsed.TypeScript()))
	assert.Equal(t, string(c.AsyncAPI()), string(parsed.AsyncAPI()))
	assert.Equal(t, string(c.JSONSchema()), string(parsed.JSONSchema()))
	assert.Equal(t, string(c.Document()), string(parsed.Document()))
}

func TestParse_RejectsIncompleteDocuments(t *testing.T) {
	edited := func(edit func(document map[string]any)) string {
		var document map[string]any
		require.NoError(t, json.Unmarshal(kitchenContract(t).Document(), &document))
		edit(document)
		text, err := json.Marshal(document)
		require.NoError(t, err)
		return string(text)
	}
	text := string(kitchenContract(t).Document())
	for name, tt := range map[string]struct{ text, want string }{
		"empty":    {"", "cannot be decoded"},
		"partial":  {text[:len(text)/2], "cannot be decoded: jsontext: unexpected EOF"},
		"HTML":     {"<html>", "cannot be decoded"},
		"other":    {`{"name":"package"}`, `is not a contract: it has no member "penstock"`},
		"version":  {`{"penstock":2}`, "has version 2; this program reads version 1"},
		"dangling": {edited(func(d map[string]any) { delete(d["$defs"].(map[string]any), "Tree") }), `refers to "#/$defs/Tree", which does not exist`},
		"remote": {edited(func(d map[string]any) {
			d["events"].([]any)[0].(map[string]any)["payload"] = map[string]any{"$ref": "http://x/y"}
		}), `refers to "http://x/y"`},
		"name":      {edited(func(d map[string]any) { d["$defs"].(map[string]any)["A = 1; evil()"] = map[string]any{} }), "is not an identifier"},
		"payload":   {edited(func(d map[string]any) { delete(d["events"].([]any)[0].(map[string]any), "payload") }), "the payload of EVERYTHING is missing"},
		"reply":     {edited(func(d map[string]any) { delete(d["calls"].([]any)[0].(map[string]any), "reply") }), `the call "ASK" has no reply`},
		"published": {edited(func(d map[string]any) { d["received"] = []any{} }), "of the topic"},
	} {
		_, err := contract.Parse([]byte(tt.text))
		assert.ErrorContains(t, err, tt.want, name)
	}
}

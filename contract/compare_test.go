package contract_test

import (
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/contract"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// Enumerations that differ in their values.
type (
	twoColors   string
	threeColors string
)

func (twoColors) Enum() []string   { return []string{"red", "green"} }
func (threeColors) Enum() []string { return []string{"red", "green", "blue"} }

type (
	node      struct{ Next *node }
	otherNode struct {
		Next *otherNode
		Text string `json:",omitzero"`
	}
	requiredNode struct {
		Next *requiredNode
		Text string
	}
)

func contractOf(t *testing.T, typ reflect.Type, sent bool) *contract.Contract {
	t.Helper()
	c, err := contract.New(describe(typ, sent), &contract.Options{Title: "any"})
	require.NoError(t, err)
	return c
}

// texts returns changes with their kind.
func texts(changes []contract.Change) (all []string) {
	for _, c := range changes {
		all = append(all, map[bool]string{true: "breaking: ", false: "compatible: "}[c.Breaking]+c.Text)
	}
	return all
}

func TestChanges_OfPayloads(t *testing.T) {
	type empty struct{}
	for name, tt := range map[string]struct {
		old, later any
		sent       []string // if clients send it
		received   []string // if the server sends it
	}{
		"equal": {struct{ A int }{}, struct{ A int }{}, nil, nil},
		"description": {
			struct{ A int }{}, struct {
				A int `description:"A number."`
			}{}, nil, nil,
		},
		"new member": {
			empty{},
			struct{ A int }{},
			[]string{"breaking: M.A: the server requires it, and clients need not send it"},
			[]string{"compatible: M: changed"},
		},
		"new optional member": {
			empty{},
			struct {
				A string `json:",omitempty"`
			}{},
			[]string{"compatible: M: changed"},
			[]string{"compatible: M: changed"},
		},
		"removed member": {
			struct{ A int }{},
			empty{},
			[]string{"compatible: M: changed"},
			[]string{"breaking: M.A: clients expect it, and the server may leave it out"},
		},
		"other type": {
			struct{ A int }{},
			struct{ A string }{},
			[]string{"breaking: M.A: clients send integer, and the server accepts string"},
			[]string{"breaking: M.A: the server sends string, and clients expect integer"},
		},
		"wider number": {
			struct{ A int8 }{},
			struct{ A float64 }{},
			[]string{"compatible: M: changed"},
			[]string{"breaking: M.A: the server sends number, and clients expect integer"},
		},
		"larger number": {
			struct{ A uint8 }{},
			struct{ A uint16 }{},
			[]string{"compatible: M: changed"},
			[]string{"breaking: M.A: the server sends numbers above 255, and clients expect none"},
		},
		"null": {
			struct{ A string }{},
			struct{ A *string }{},
			[]string{"compatible: M: changed"},
			[]string{"breaking: M.A: the server sends null, and clients expect string"},
		},
		"format": {
			struct{ A string }{},
			struct{ A time.Time }{},
			[]string{"breaking: M.A: clients send string, and the server accepts date-time"},
			[]string{"compatible: M: changed"},
		},
		"longer array": {
			struct{ A [2]int }{},
			struct{ A [3]int }{},
			[]string{"breaking: M.A: clients send arrays with fewer than 3 elements, and the server accepts none"},
			[]string{"breaking: M.A: the server sends arrays with more than 2 elements, and clients expect none"},
		},
		"more values": {
			struct{ A twoColors }{},
			struct{ A threeColors }{},
			[]string{"compatible: M: changed"},
			[]string{"compatible: M: changed"},
		},
		"fewer values": {
			struct{ A threeColors }{},
			struct{ A twoColors }{},
			[]string{`breaking: M.A: clients send "blue", and the server accepts "red", "green"`},
			[]string{"compatible: M: changed"},
		},
		"elements": {
			struct{ A []map[string]int }{},
			struct{ A []map[string]bool }{},
			[]string{"breaking: M.A[][]: clients send integer, and the server accepts boolean"},
			[]string{"breaking: M.A[][]: the server sends boolean, and clients expect integer"},
		},
		"recursive":                  {node{}, otherNode{}, []string{"compatible: M: changed"}, []string{"compatible: M: changed"}},
		"recursive and incompatible": {node{}, requiredNode{}, []string{"breaking: M.Text: the server requires it, and clients need not send it"}, []string{"compatible: M: changed"}},
		"anything":                   {struct{ A int }{}, struct{ A any }{}, []string{"compatible: M: changed"}, []string{"breaking: M.A: the server sends anything, and clients expect integer"}},
	} {
		for _, sent := range []bool{true, false} {
			want := tt.received
			if sent {
				want = tt.sent
			}
			old, later := contractOf(t, reflect.TypeOf(tt.old), sent), contractOf(t, reflect.TypeOf(tt.later), sent)
			assert.Equal(t, want, texts(old.Changes(later)), "%s, sent %t", name, sent)
			assert.Equal(t, want == nil, old.Hash() == later.Hash(), name)
		}
	}
}

// TestChanges_CompatiblePayloadsAreAccepted validates random values against the other version's schema, for all pairs
// of types.
func TestChanges_CompatiblePayloadsAreAccepted(t *testing.T) {
	all := []any{
		struct{ A int }{},
		struct{ A *int }{},
		struct{ A int8 }{},
		struct{ A uint8 }{},
		struct{ A float64 }{},
		struct{ A string }{},
		struct{ A any }{},
		struct{ A []int }{},
		struct{ A []any }{},
		struct{ A [2]int }{},
		struct{ A [2]int8 }{},
		struct{ A map[string]int }{},
		struct{ A map[int8]int }{},
		struct{ A twoColors }{},
		struct{ A threeColors }{},
		struct{ A *twoColors }{},
		struct{ A time.Time }{},
		struct{ A []byte }{},
		struct {
			A int `json:",omitzero"`
		}{},
		struct{ A, B int }{},
		struct{ B int }{},
		struct{ A struct{ A int } }{},
		struct{ A struct{ A *string } }{},
		struct{ A Page[int] }{},
		struct{ A Page[string] }{},
		struct{ A *Page[int] }{},
		struct{ A node }{},
		struct{ A otherNode }{},
		struct{ A requiredNode }{},
		struct{}{},
	}
	compatible := 0
	for _, a := range all {
		for _, b := range all {
			old, later := contractOf(t, reflect.TypeOf(a), true), contractOf(t, reflect.TypeOf(b), true)
			if slices.ContainsFunc(old.Changes(later), func(c contract.Change) bool { return c.Breaking }) {
				continue
			}
			compatible++
			schema := payloadSchema(t, later)
			for seed := range uint64(30) {
				v := reflect.New(reflect.TypeOf(a)).Elem()
				generator{rand.New(rand.NewPCG(seed, 1))}.fill(v, true, 4)
				text, value := encoded(t, v.Interface())
				require.NoError(t, schema.Validate(value), "%T is said to be compatible with %T, which does not accept %s", a, b, text)
			}
		}
	}
	assert.Greater(t, compatible, len(all)+20, "some are compatible with others")
}

// payloadSchema returns the schema of the message M.
func payloadSchema(t *testing.T, c *contract.Contract) *jsonschema.Resolved {
	t.Helper()
	var doc struct {
		Events []struct {
			Payload *jsonschema.Schema `json:"payload"`
		} `json:"events"`
		Defs map[string]*jsonschema.Schema `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal(c.Document(), &doc))
	doc.Events[0].Payload.Defs = doc.Defs
	resolved, err := doc.Events[0].Payload.Resolve(nil)
	require.NoError(t, err)
	return resolved
}

func versionRouter(version int) *router.Router {
	r := router.New(&router.Options{Limits: router.Limits{MaxMessageBytes: int64(1000 - version)}})
	ask := router.RPC(r, func(*router.Context, Ask) (Answer, error) { return Answer{}, nil })
	if version == 0 {
		ask.Doc(router.RouteDoc{Errors: []errors.Code{"MORE"}, ErrorDetails: map[errors.Code]any{"SAME": map[string]string{}, "LESS": TooHard{}}})
		router.On(r, func(*router.Context, Ping) error { return nil })
		router.DeclareMessage[Pong](r)
		router.Stream(r, func(*router.Context, Export) iter.Seq2[Row, error] { return nil }).Doc(router.RouteDoc{Reply: Exported{}})
		router.Topic(r, "room/{id}", &router.TopicOptions{Presence: true, AuthorizeHidden: func(*router.Context, router.TopicMatch) error { return nil }})
		router.Topic(r, "old/{id}", nil)
		return r
	}
	ask.Doc(router.RouteDoc{Errors: []errors.Code{"LESS", "NEW"}, ErrorDetails: map[errors.Code]any{"SAME": map[string]int{}, "MORE": TooHard{}}})
	router.On(r, func(*router.Context, Quiet) error { return nil }).Doc(router.RouteDoc{Errors: []errors.Code{errors.NotFound, "ROOM_FULL"}})
	router.Stream(r, func(*router.Context, Export) iter.Seq2[string, error] { return nil })
	router.DeclareCall[Confirm, Confirmed](r)
	router.DeclareMessage[Odd](r)
	router.Topic(r, "room/{id}", &router.TopicOptions{History: router.History{Messages: 10}})
	return r
}

func TestChanges_OfMessagesAndTopics(t *testing.T) {
	versions := make([]*contract.Contract, 2)
	for i := range versions {
		c, err := contract.New(versionRouter(i).Describe(), nil)
		require.NoError(t, err)
		versions[i] = c
	}
	assert.Empty(t, versions[0].Changes(versions[0]))
	changes := texts(versions[0].Changes(versions[1]))
	for _, want := range []string{
		"breaking: PING: removed, though clients send it",
		"breaking: PONG: removed, though clients may wait for it",
		"breaking: EXPORT: has no reply any more",
		"breaking: items of EXPORT: the server sends string, and clients expect object",
		"breaking: CONFIRM: the call of the server is new, and clients of the earlier version do not answer it",
		"breaking: topic old/{id}: removed",
		"breaking: topic room/{id}: no presence any more",
		"breaking: topic room/{id}: no hidden subscription any more",
		"breaking: ASK: may have at most 999 bytes, 1000 before",
		"breaking: ASK: has no details of LESS any more",
		"breaking: details of SAME of ASK[]: the server sends integer, and clients expect string",
		"compatible: ASK: new details of MORE",
		"compatible: ASK: may fail with NEW",
		"compatible: QUIET: new",
		"compatible: topic room/{id}: history",
		"compatible: messages may fail with ROOM_FULL",
	} {
		assert.Contains(t, changes, want)
	}
	assert.True(t, slices.IsSortedFunc(changes, func(a, b string) int { return int(a[0]) - int(b[0]) }), fmt.Sprint(changes))
}

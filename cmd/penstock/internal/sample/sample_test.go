package sample_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/cmd/penstock/internal/sample"
	"github.com/penstock-go/penstock/contract"
	"github.com/penstock-go/penstock/router"
)

type color string

func (color) Enum() []color { return []color{"red", "green"} }

type node struct {
	Name     string
	Children []node
}

type code string

func (code) MarshalJSON() ([]byte, error) { return []byte(`"x"`), nil }

func (code) JSONSchema() string { return `{"type":"string","pattern":"^[A-Z]{3}-[0-9]{4}$"}` }

type everything struct {
	Text     string    `json:"text"`
	Optional string    `json:"optional,omitempty"`
	At       time.Time `json:"at"`
	Small    int8
	Big      uint64 `json:",string"`
	Ratio    float64
	Yes      bool
	Color    color
	Bytes    []byte
	Pair     [2]int
	List     []string
	Map      map[string]int
	Pointer  *node
	Tree     node
	Any      any
}

type (
	nothing struct{}
	coded   struct{ Code code }
)

func (everything) MessageType() string { return "EVERYTHING" }
func (nothing) MessageType() string    { return "NOTHING" }
func (coded) MessageType() string      { return "CODED" }

func newDocument(t *testing.T, r *router.Router) []byte {
	c, err := contract.New(r.Describe(), nil)
	require.NoError(t, err)
	return c.Document()
}

func TestPayload_RefusesWhatItCannotMake(t *testing.T) {
	r := router.New(nil)
	router.On(r, func(*router.Context, coded) error { return nil })
	router.On(r, func(*router.Context, nothing) error { return nil })
	doc := newDocument(t, r)
	_, _, err := sample.Payload(doc, "OTHER")
	require.EqualError(t, err, `the contract has no message "OTHER" that clients send; it has CODED, NOTHING`)
	_, _, err = sample.Payload(doc, "CODED")
	require.ErrorContains(t, err, `no payload can be made for "CODED" from its schema; give one with -payload: Code: texts have the pattern ^[A-Z]{3}-[0-9]{4}$`)
	_, _, err = sample.Payload([]byte("<html>"), "OTHER")
	require.ErrorContains(t, err, "the document cannot be decoded")
}

// The router decodes and the schema accepts what is made.
func TestPayload_IsValid(t *testing.T) {
	r := router.New(nil)
	router.RPC(r, func(_ *router.Context, m everything) (everything, error) { return m, nil })
	router.On(r, func(*router.Context, nothing) error { return nil })
	doc := newDocument(t, r)
	text, kind, err := sample.Payload(doc, "EVERYTHING")
	require.NoError(t, err)
	assert.Equal(t, sample.Call, kind)
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	var m everything
	require.NoError(t, decoder.Decode(&m))
	assert.Equal(t, everything{
		Text: "text", At: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Small: 1, Big: 1, Ratio: 1, Color: "red", Bytes: m.Bytes, Pair: [2]int{1, 1},
		List: []string{}, Map: map[string]int{}, Pointer: &node{"text", []node{}}, Tree: node{"text", []node{}}, Any: map[string]any{},
	}, m)

	text, kind, err = sample.Payload(doc, "NOTHING")
	require.NoError(t, err)
	assert.Equal(t, sample.Event, kind)
	assert.Equal(t, "{}", text)
}

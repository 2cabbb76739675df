package jsoncode_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/codec/jsoncode/internal/kinds"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// Ordinary types have the fields of those with generated code and none of the methods.
type (
	plainSay     kinds.Say
	plainOmitted kinds.Omitted
	plainLibrary kinds.Library
)

func (plainSay) MessageType() string     { return "SAY" }
func (plainOmitted) MessageType() string { return "OMITTED" }
func (plainLibrary) MessageType() string { return "LIBRARY" }

// countedSay is Say with a count of what its generated code has handled.
type countedSay kinds.Say

var decodedSays, appendedSays atomic.Int64

func (countedSay) MessageType() string { return "SAY" }

func (m *countedSay) DecodeJSON(p []byte) error {
	err := (*kinds.Say)(m).DecodeJSON(p)
	if err == nil {
		decodedSays.Add(1)
	}
	return err
}

func (m countedSay) AppendJSON(b []byte) ([]byte, error) {
	appendedSays.Add(1)
	return kinds.Say(m).AppendJSON(b)
}

// echo answers a message with itself.
func echo[M router.Message](_ *router.Context, m M) (M, error) { return m, nil }

// TestRouter_AnswersTheSameWithGeneratedCode sends the same texts to two routers, one with generated code.
func TestRouter_AnswersTheSameWithGeneratedCode(t *testing.T) {
	for _, opts := range []*router.Options{nil, {RejectUnknownFields: true}} {
		generated, ordinary := router.New(opts), router.New(opts)
		router.RPC(generated, echo[countedSay])
		router.RPC(generated, echo[kinds.Omitted])
		router.RPC(generated, echo[kinds.Library])
		router.RPC(ordinary, echo[plainSay])
		router.RPC(ordinary, echo[plainOmitted])
		router.RPC(ordinary, echo[plainLibrary])
		a, b := routertest.Dial(t, generated), routertest.Dial(t, ordinary)
		for _, message := range messages() {
			a.SendText(message)
			b.SendText(message)
			got, want := a.Next(), b.Next()
			assert.Equal(t, want.Type, got.Type, message)
			assert.Equal(t, string(want.Payload), string(got.Payload), message)
		}
	}
	assert.Positive(t, decodedSays.Load())
	assert.Positive(t, appendedSays.Load())
}

// messages returns calls with usual, unusual and invalid payloads.
func messages() (all []string) {
	payloads := map[string][]string{
		"SAY": {
			`{"room":"a","text":"b","n":1}`, ` { "n" : -0 , "text" : "\u00fc\n\"" } `, `{}`, `null`, `{"text":null}`,
			`{"room":"\ud800"}`, `{"room":"a","other":{"x":[1]}}`, `{"ROOM":"a"}`, `{"r\u006fom":"a"}`,
			`{"room":"a","room":"b"}`, `{"room":1}`, `{"n":"1"}`, `{"n":1.5}`, `{"n":99999999999999999999}`, `[]`, `"a"`, `1`, `{"room":"a","n":`, `{"n":01}`, `{"room":"a"}}`,
		},
		"OMITTED": {`{"point":{"X":1},"any":[{"a":1}],"time":"2006-01-02T15:04:05Z"}`, `{"point":{"Z":1}}`, `{"time":"yesterday"}`, `{"point":[]}`, `{"inner":{"a":1}}`, `{"map":{"a":1,"a":2}}`},
		"LIBRARY": {`{"any":1,"addr":"127.0.0.1","fallback":{"NAME":"x"}}`, `{"addr":"x"}`, `{"fallback":{"name":"x","other":1}}`, `{"object":{"a":1,"a":1}}`, `{"byInt":{"x":"y"}}`},
	}
	for typ, list := range payloads {
		for _, payload := range list {
			all = append(all, `{"type":"`+typ+`","meta":{"correlationId":"1"},"payload":`+payload+`}`)
		}
		all = append(all, `{"type":"`+typ+`","meta":{"correlationId":"1"}}`)
	}
	return append(all, strings.Replace(all[0], `"1"`, `"2"`, 1))
}

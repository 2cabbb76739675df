package kotlinclient_test

import (
	"context"
	"iter"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/contract"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/interop/kotlintest"
	"github.com/penstock-go/penstock/router"
)

// The messages of the server from which types are generated.
type (
	color  string
	state  string
	nested []nested
	dict   map[string]dict
	shape  interface{ isShape() }

	thing struct {
		Name   string   `json:"name"`
		Tags   []string `json:"tags,omitzero"`
		Count  *int     `json:"count"`
		Class  color    `json:"class"`
		Favor  *color   `json:"favor"`
		Nested nested   `json:"nested"`
		Dict   dict     `json:"dict"`
		Any    any      `json:"any"`
		Quoted string   `json:"a-b c"`
		Inner  struct {
			X int `json:"x"`
		} `json:"inner"`
	}
	circle struct {
		Kind   string  `json:"kind" contract:"const=circle"`
		Radius float64 `json:"radius"`
	}
	square struct {
		Kind string  `json:"kind" contract:"const=square"`
		Side float64 `json:"side"`
	}
	published struct {
		Shapes []shape `json:"shapes"`
		States []state `json:"states"`
		Color  color   `json:"color"`
	}
	ping   struct{}
	ask    struct{ Question string }
	answer struct {
		Text string `json:"text"`
	}
	percents struct {
		Percent int `json:"percent"`
	}
	origin struct {
		Country string `json:"country"`
	}
	hardDetails struct {
		Level  int     `json:"level"`
		Origin *origin `json:"origin"`
	}
	export struct {
		Table string `json:"table"`
	}
	row struct {
		Cells []string `json:"cells"`
	}
	exported struct {
		Rows int `json:"rows"`
	}
	confirm struct {
		Text string `json:"text"`
	}
	confirmed struct {
		Yes bool `json:"yes"`
	}
)

func (color) Enum() []string          { return []string{"red", "dark-green"} }
func (state) Enum() []string          { return []string{"open", "closed"} }
func (circle) isShape()               {}
func (square) isShape()               {}
func (thing) MessageType() string     { return "THING" }
func (published) MessageType() string { return "PUBLISHED" }
func (ping) MessageType() string      { return "PING" }
func (ask) MessageType() string       { return "ASK" }
func (answer) MessageType() string    { return "ANSWER" }
func (export) MessageType() string    { return "EXPORT" }
func (exported) MessageType() string  { return "EXPORTED" }
func (confirm) MessageType() string   { return "CONFIRM" }
func (confirmed) MessageType() string { return "CONFIRMED" }

func answerAsk(c *router.Context, m ask) (answer, error) {
	switch m.Question {
	case "":
		return answer{}, errors.Errorf(errors.InvalidArgument, "the question is empty")
	case "unknown":
		return answer{}, errors.Errorf(errors.NotFound, "there is no answer")
	case "hard":
		return answer{}, &errors.Error{Code: "HARD", Message: "too hard", Details: hardDetails{3, &origin{"sea"}}}
	}
	if err := c.Progress(percents{50}); err != nil {
		return answer{}, err
	}
	sure, err := router.Call[confirmed](c, c.Conn(), confirm{"sure?"})
	if !sure.Yes {
		return answer{}, errors.Join(err, errors.New("the client is not sure"))
	}
	return answer{"yes"}, err
}

func exportRows(c *router.Context, m export) iter.Seq2[row, error] {
	c.SetReply(exported{2})
	return func(yield func(row, error) bool) {
		_ = yield(row{[]string{m.Table, "a"}}, nil) && yield(row{nil}, nil)
	}
}

// newTalk returns a server, and the types of its messages in Kotlin.
func newTalk(t *testing.T) (url string, types []byte) {
	opts := &contract.Options{Variants: map[reflect.Type][]reflect.Type{reflect.TypeFor[shape](): {reflect.TypeFor[circle](), reflect.TypeFor[square]()}}}
	r := router.New(&router.Options{Logger: slog.New(slog.DiscardHandler)})
	router.Topic(r, "room/{id}", &router.TopicOptions{
		Authorize: func(*router.Context, router.TopicMatch) error { return nil },
		Messages:  []router.Message{published{}},
		History:   router.History{Messages: 10},
	})
	router.RPC(r, func(_ *router.Context, m thing) (thing, error) { return m, nil })
	router.RPC(r, answerAsk).Doc(router.RouteDoc{
		Progress: percents{}, Errors: []errors.Code{errors.NotFound}, ErrorDetails: map[errors.Code]any{"HARD": hardDetails{}},
	})
	router.Stream(r, exportRows).Doc(router.RouteDoc{Reply: exported{}})
	router.DeclareCall[confirm, confirmed](r)
	router.On(r, func(*router.Context, ping) error {
		shapes := []shape{circle{"circle", 1.5}, square{"square", 2}, nil}
		return r.Publish("room/go", published{shapes, []state{"closed", "sold"}, "dark-green"})
	})
	c, err := contract.New(r.Describe(), opts)
	require.NoError(t, err)
	server := httptest.NewServer(r)
	t.Cleanup(func() {
		_ = r.Shutdown(context.Background())
		server.Close()
	})
	return "ws" + strings.TrimPrefix(server.URL, "http"), c.Kotlin("talk")
}

// TestContract_TypesCallsAndTopics runs a program that is typed by the contract of a server, against that server.
func TestContract_TypesCallsAndTopics(t *testing.T) {
	compiler := kotlintest.Find(t).Compiler(t)
	url, types := newTalk(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "Contract.kt")
	require.NoError(t, os.WriteFile(file, types, 0o600))
	classes := filepath.Join(dir, "classes")
	out, err := compiler.Compile(t.Context(), classes, file, "testdata/contract", kitchenPath)
	require.NoError(t, err, "%s", out)
	require.Empty(t, string(out))

	sent := `{"name":"n","count":null,"class":"dark-green","favor":"red","nested":[[],[[]]],"dict":{"a":{"b":{}}},"any":[1,null],"a-b c":"q","inner":{"x":9007199254740993}}`
	out, err = compiler.Program(t.Context(), classes, "MainKt", url, sent).CombinedOutput()
	require.NoError(t, err, "%s", out)
	lines := strings.SplitN(string(out), "\n", 2)
	assert.JSONEq(t, sent, lines[0], "the server has decoded all members")
	assert.Contains(t, lines[0], "9007199254740993", "an integer that a float64 does not have")
	assert.Equal(t, printed, lines[1])

	out, err = compiler.Compile(t.Context(), filepath.Join(dir, "wrong"), file, "testdata/wrong")
	require.Error(t, err)
	assert.Contains(t, string(out), "argument type mismatch", "a call takes its own payload alone")
}

// kitchenPath is a file with everything that a contract can have.
const kitchenPath = "../../../contract/testdata/kitchen.kt"

const printed = `called: yes after [50]
failed: there is no answer
failed: level 3, true
failed: true
exported: 2
rows: [[t, a], []]
published: [circle 1.5, square 2.0, none], true, true
`

package contract_test

import (
	"encoding/json"
	"iter"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/contract"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// talkingRouter answers with every kind of message.
func talkingRouter() *router.Router {
	r := router.New(nil)
	router.RPC(r, func(ctx *router.Context, m Ask) (Answer, error) {
		if m.Question == "" {
			return Answer{}, errors.Errorf(errors.NotFound, "there is no question")
		}
		return Answer{"yes"}, ctx.Progress(Progress{50})
	}).Doc(router.RouteDoc{Progress: Progress{}})
	router.Stream(r, func(ctx *router.Context, m Export) iter.Seq2[Row, error] {
		return func(yield func(Row, error) bool) {
			yield(Row{[]string{m.Table}}, nil)
			ctx.SetReply(Exported{1})
		}
	}).Doc(router.RouteDoc{Reply: Exported{}})
	router.Stream(r, func(*router.Context, Tail) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) { yield("line", nil) }
	})
	router.On(r, func(ctx *router.Context, m Quiet) error {
		if m.Why != "" {
			return errors.Errorf("NO_REASON", "%s", m.Why)
		}
		return errors.Join(ctx.Conn().Send(Pong{}), ctx.Conn().Send(Received{Level: 1, State: "open", Shape: Circle{Kind: "circle"}, Color: "red"}))
	})
	router.DeclareMessage[Pong](r)
	router.DeclareMessage[Received](r)
	router.DeclareCall[Confirm, Confirmed](r)
	return r
}

func TestJSONSchema_AcceptsTransmittedMessages(t *testing.T) {
	r := talkingRouter()
	c, err := contract.New(r.Describe(), kitchenOptions())
	require.NoError(t, err)
	client, _ := definition(t, c, "ClientMessage")
	server, _ := definition(t, c, "ServerMessage")
	conn := routertest.Dial(t, r)
	received := 0
	for text, answers := range map[string]int{
		`{"type":"ASK","meta":{"correlationId":"1"},"payload":{"Question":"why"}}`:   2,
		`{"type":"ASK","meta":{"correlationId":"1"},"payload":{"Question":""}}`:      1,
		`{"type":"EXPORT","meta":{"correlationId":"1"},"payload":{"Table":"users"}}`: 2,
		`{"type":"TAIL","meta":{"correlationId":"1"},"payload":{"File":"log"}}`:      2,
		`{"type":"QUIET","payload":{"Why":""}}`:                                      2,
		`{"type":"QUIET","payload":{"Why":"because"}}`:                               1,
	} {
		assert.NoError(t, client.Validate(parsed(t, text)), text)
		assert.Error(t, server.Validate(parsed(t, text)), text)
		conn.SendText(text)
		for range answers {
			frame := conn.Next()
			received++
			assert.NoError(t, server.Validate(parsed(t, frame.Text)), frame.Text)
			if frame.Type != "RPC_ERROR" { // with which clients answer, too
				assert.Error(t, client.Validate(parsed(t, frame.Text)), frame.Text)
			}
		}
	}
	assert.Equal(t, 10, received)
	assert.NoError(t, client.Validate(parsed(t, `{"type":"CONFIRMED","meta":{"correlationId":"$ws:1"},"payload":{"Yes":true}}`)))
	assert.NoError(t, server.Validate(parsed(t, `{"type":"CONFIRM","meta":{"correlationId":"$ws:1"},"payload":{"Text":"?"}}`)))
	for _, text := range []string{
		`{"type":"ASK","payload":{"Question":"why"}}`,
		`{"type":"ASK","meta":{},"payload":{"Question":"why"}}`,
		`{"type":"ASK","meta":{"correlationId":"1"}}`,
		`{"type":"ASK","meta":{"correlationId":"1"},"payload":{"Question":1}}`,
		`{"type":"NOBODY"}`,
		`[]`,
	} {
		assert.Error(t, client.Validate(parsed(t, text)), text)
	}
}

func parsed(t *testing.T, text string) (value any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &value))
	return value
}

func TestJSONSchema_OfAnEmptyRouterAcceptsNoMessageOfClients(t *testing.T) {
	c, err := contract.New(router.New(nil).Describe(), nil)
	require.NoError(t, err)
	client, _ := definition(t, c, "ClientMessage")
	assert.Error(t, client.Validate(parsed(t, `{"type":"X"}`)))
}

// TestDocuments_HaveNoDanglingReferences checks what the validators of these formats do not.
func TestDocuments_HaveNoDanglingReferences(t *testing.T) {
	c := kitchenContract(t)
	for name, text := range map[string][]byte{"AsyncAPI": c.AsyncAPI(), "JSON Schema": c.JSONSchema()} {
		root := parsed(t, string(text))
		references := 0
		var walk func(v any)
		walk = func(v any) {
			switch v := v.(type) {
			case []any:
				for _, element := range v {
					walk(element)
				}
			case map[string]any:
				if ref, ok := v["$ref"].(string); ok {
					references++
					assert.True(t, exists(root, ref), "%s: %s", name, ref)
				}
				for _, member := range v {
					walk(member)
				}
			}
		}
		walk(root)
		assert.Greater(t, references, 30, name)
		assert.False(t, exists(root, "#/nothing"), name)
	}
}

// exists reports whether a reference such as #/a/b leads to a value.
func exists(root any, ref string) bool {
	path, found := strings.CutPrefix(ref, "#/")
	if !found {
		return false
	}
	for name := range strings.SplitSeq(path, "/") {
		object, ok := root.(map[string]any)
		if !ok {
			return false
		}
		if root, ok = object[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]; !ok {
			return false
		}
	}
	return true
}

func TestJSONSchema_IsAValidSchema(t *testing.T) {
	schema := new(jsonschema.Schema)
	require.NoError(t, json.Unmarshal(kitchenContract(t).JSONSchema(), schema))
	_, err := schema.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	assert.NoError(t, err)
}

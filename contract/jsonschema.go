package contract

import (
	"github.com/google/jsonschema-go/jsonschema"
)

// The names of the definitions of whole messages.
const (
	clientMessage = "ClientMessage"
	serverMessage = "ServerMessage"
)

// JSONSchema returns a JSON Schema (draft 2020-12) of the messages with their envelopes. The definition
// ClientMessage has what clients send, ServerMessage what they receive, and every type has a definition
// of its own. Messages of the protocol itself, such as $ws:subscribe, are not part of it.
func (c *Contract) JSONSchema() []byte {
	root := &jsonschema.Schema{
		Schema: "https://json-schema.org/draft/2020-12/schema",
		Title:  c.doc.title(),
		AnyOf:  []*jsonschema.Schema{{Ref: refPrefix + clientMessage}, {Ref: refPrefix + serverMessage}},
		Defs: map[string]*jsonschema.Schema{
			clientMessage: anyOf(c.doc.clientFrames()),
			serverMessage: anyOf(c.doc.serverFrames()),
		},
	}
	for name, def := range c.doc.Defs {
		root.Defs[name] = def.CloneSchemas()
	}
	for _, def := range root.Defs {
		openEnums(def)
	}
	return encode(root)
}

func anyOf(frames []frame) *jsonschema.Schema {
	s := &jsonschema.Schema{AnyOf: []*jsonschema.Schema{}}
	for _, f := range frames {
		one := f.schema.CloneSchemas()
		one.Description = f.text
		s.AnyOf = append(s.AnyOf, one)
	}
	if len(s.AnyOf) == 0 {
		return &jsonschema.Schema{Not: &jsonschema.Schema{}} // nothing is valid
	}
	return s
}

func (doc *document) title() string {
	if doc.Title == "" {
		return "WebSocket API"
	}
	return doc.Title
}

package contract

import (
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/wire"
)

// A frame is a message as it is transmitted: the envelope and the payload.
type frame struct {
	key    string // unique; letters, digits, "_", "-" and "."
	typ    string
	text   string
	schema *jsonschema.Schema
}

// keyOf returns a key for a message type, in which every other character is written as _ and its code.
func keyOf(role, typ string) string {
	key := []byte(role + ".")
	for _, c := range []byte(typ) {
		switch {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c == '-':
			key = append(key, c)
		case c == '_':
			key = append(key, "_"...)
		default:
			const hex = "0123456789abcdef"
			key = append(key, '.', 'x', hex[c>>4], hex[c&15])
		}
	}
	return string(key)
}

// frame returns a message with an optional ID of a call, or with a required one.
func (doc *document) frame(role string, e event, call bool) frame {
	s := &jsonschema.Schema{
		Type:       "object",
		Required:   []string{"type"},
		Properties: map[string]*jsonschema.Schema{"type": constant(e.Type), "meta": meta(call)},
	}
	if call {
		s.Required = append(s.Required, "meta")
	}
	if e.Payload != nil {
		s.Properties["payload"] = e.Payload
		if !doc.isEmpty(e.Payload) {
			s.Required = append(s.Required, "payload")
		}
	}
	return frame{keyOf(role, e.Type), e.Type, e.Description, s}
}

func constant(value any) *jsonschema.Schema { return &jsonschema.Schema{Const: &value} }

// meta returns the schema of the member meta; see the protocol, section 1.
func meta(call bool) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{
		"timestamp":     {Type: "integer", Description: "the sender's clock in milliseconds since 1970"},
		"correlationId": {Type: "string", MaxLength: new(wire.MaxNameBytes)},
	}}
	if call {
		s.Required = []string{"correlationId"}
	}
	return s
}

// errorPayload returns the schema of the payload of an error; see the protocol, section 4.
func (doc *document) errorPayload() *jsonschema.Schema {
	codes := []any{}
	for _, code := range doc.ErrorCodes {
		codes = append(codes, code)
	}
	return &jsonschema.Schema{
		Type: "object", Required: []string{"code", "retryable"},
		Properties: map[string]*jsonschema.Schema{
			"code":         {Type: "string", Examples: codes},
			"message":      {Type: "string"},
			"details":      {Type: "object"},
			"retryable":    {Type: "boolean"},
			"retryAfterMs": {Types: []string{"integer", "null"}, Minimum: new(0.0)},
		},
	}
}

// rpcError returns the error that answers a call.
func (doc *document) rpcError(role string) frame {
	return doc.frame(role, event{Type: protocol.TypeRPCError, Payload: doc.errorPayload()}, true)
}

// progress returns a message of a call before its answer. It has the content twice.
func (doc *document) progress(c call, content *jsonschema.Schema) frame {
	f := doc.frame("progress", event{Type: protocol.TypeProgress, Payload: content}, true)
	f.key = keyOf("progress", c.Type)
	f.schema.Properties["data"] = content.CloneSchemas()
	f.schema.Required = append(f.schema.Required, "data")
	return f
}

// request returns what starts a call or a stream.
func (doc *document) request(c call) frame { return doc.frame("call", c.event, true) }

// answers returns the messages with which the server answers a call or a stream, the error last.
func (doc *document) answers(c call) (frames []frame) {
	switch {
	case c.Item != nil:
		frames = append(frames, doc.progress(c, c.Item))
	case c.Progress != nil:
		frames = append(frames, doc.progress(c, c.Progress))
	}
	reply := event{Type: protocol.TypeStreamEnd}
	if c.Reply != nil {
		reply = *c.Reply
	}
	return append(frames, doc.frame("reply", reply, true), doc.rpcError("reply"))
}

// clientFrames returns all messages that clients send, without those of the protocol itself.
func (doc *document) clientFrames() (frames []frame) {
	for _, e := range doc.Events {
		frames = append(frames, doc.frame("event", e, false))
	}
	for _, c := range slices.Concat(doc.Calls, doc.Streams) {
		frames = append(frames, doc.request(c))
	}
	for _, c := range doc.Served {
		frames = append(frames, doc.frame("answer", *c.Reply, true))
	}
	if len(doc.Served) > 0 {
		frames = append(frames, doc.rpcError("answer"))
	}
	return distinct(frames)
}

// serverFrames returns all messages that clients receive, without those of the protocol itself.
func (doc *document) serverFrames() (frames []frame) {
	for _, e := range doc.Received {
		frames = append(frames, doc.frame("message", e, false))
	}
	for _, c := range slices.Concat(doc.Calls, doc.Streams) {
		frames = append(frames, doc.answers(c)...)
	}
	for _, c := range doc.Served {
		frames = append(frames, doc.frame("served", c.event, true))
	}
	return distinct(append(frames, doc.frame("message", event{Type: protocol.TypeError, Payload: doc.errorPayload()}, false)))
}

// distinct removes frames that occur again: several calls may have the same reply.
func distinct(frames []frame) (result []frame) {
	seen := map[string]bool{}
	for _, f := range frames {
		if !seen[f.key] {
			seen[f.key] = true
			result = append(result, f)
		}
	}
	return result
}

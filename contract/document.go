package contract

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/penstock-go/penstock/errors"
)

// documentVersion is the version of the format of a document. A program reads one version only.
const documentVersion = 1

// refPrefix begins every $ref of a document.
const refPrefix = "#/$defs/"

// Keywords of our own.
const (
	openKeyword   = "x-penstock-open"   // true: later versions may have more values than enum
	closedKeyword = "x-penstock-fields" // 0: the Go type has no fields, so messages have no payload
)

// A document is a Contract in a form that can be sent to another program. All of the generated files
// are made from it alone.
type document struct {
	Penstock    int    `json:"penstock"` // documentVersion
	Title       string `json:"title,omitzero"`
	Version     string `json:"version,omitzero"`
	Description string `json:"description,omitzero"`
	URL         string `json:"url,omitzero"`

	Events   []event `json:"events"`
	Calls    []call  `json:"calls"`
	Streams  []call  `json:"streams"`
	Received []event `json:"received"`
	Served   []call  `json:"served"`
	Topics   []topic `json:"topics"`

	Limits          map[string]limit `json:"limits,omitzero"` // by name
	ErrorCodes      []string         `json:"errorCodes"`
	CloseCodes      []closeCode      `json:"closeCodes"`
	Codecs          []string         `json:"codecs,omitempty"`
	MaxMessageBytes int64            `json:"maxMessageBytes,omitzero"`

	Defs map[string]*jsonschema.Schema `json:"$defs"` // by name of the type
}

// An event is a message type with its payload.
type event struct {
	Type            string             `json:"type"`
	Description     string             `json:"description,omitzero"`
	Payload         *jsonschema.Schema `json:"payload"`
	Errors          []failure          `json:"errors,omitempty"`
	MaxMessageBytes int64              `json:"maxMessageBytes,omitzero"` // 0: that of the document
}

// A failure is an error with which a message may be answered.
type failure struct {
	Code    string             `json:"code"`
	Details *jsonschema.Schema `json:"details,omitzero"` // nil if they are not declared
}

// A call is a message type with its answers.
type call struct {
	event

	Reply     *event             `json:"reply,omitzero"`    // nil for a stream without one
	Item      *jsonschema.Schema `json:"item,omitzero"`     // of a stream
	Progress  *jsonschema.Schema `json:"progress,omitzero"` // nil if the call sends none
	TimeoutMs int64              `json:"timeoutMs,omitzero"`
}

type topic struct {
	Pattern         string   `json:"pattern"`
	Messages        []string `json:"messages,omitempty"` // of Received; empty if they are not declared
	Subscribe       bool     `json:"subscribe,omitzero"`
	Presence        bool     `json:"presence,omitzero"`
	Hidden          bool     `json:"hidden,omitzero"`
	HistoryMessages int      `json:"historyMessages,omitzero"`
	HistoryMs       int64    `json:"historyMs,omitzero"`
}

type limit struct {
	Capacity int64    `json:"capacity"`
	Refill   int64    `json:"refill"`
	RefillMs int64    `json:"refillMs"`
	Scope    string   `json:"scope"`
	Buckets  []bucket `json:"buckets"`
}

type bucket struct {
	Costs map[string]*int64 `json:"costs"` // nil: the cost depends on the message
	Keep  map[string]int64  `json:"keep,omitzero"`
}

type closeCode struct {
	Code   int    `json:"code"`
	Reason string `json:"reason"`
}

// check returns an error if the document lacks something that it refers to. A document may come from
// another program.
func (doc *document) check() error {
	for name, def := range doc.Defs {
		if !isIdentifier(name) {
			return fmt.Errorf("the name of the definition %q is not an identifier", name)
		}
		if err := doc.checkSchema("the definition "+name, def); err != nil {
			return err
		}
	}
	for where, schema := range doc.payloads() {
		if err := doc.checkSchema(where, schema); err != nil {
			return err
		}
	}
	for _, c := range slices.Concat(doc.Calls, doc.Served) {
		if c.Reply == nil {
			return fmt.Errorf("the call %q has no reply", c.Type)
		}
	}
	for _, t := range doc.Topics {
		for _, typ := range t.Messages {
			if !slices.ContainsFunc(doc.Received, func(e event) bool { return e.Type == typ }) {
				return fmt.Errorf("the message %q of the topic %q is not described", typ, t.Pattern)
			}
		}
	}
	return nil
}

// payloads iterates over the schemas of all messages.
func (doc *document) payloads() func(yield func(where string, schema *jsonschema.Schema) bool) {
	return func(yield func(string, *jsonschema.Schema) bool) {
		messages := slices.Concat(doc.Events, doc.Received)
		calls := slices.Concat(doc.Calls, doc.Streams, doc.Served)
		for _, c := range calls {
			messages = append(messages, c.event)
		}
		for _, e := range messages {
			if !yield("the payload of "+e.Type, e.Payload) {
				return
			}
			for _, f := range e.Errors {
				if f.Details != nil && !yield("the details of "+f.Code, f.Details) {
					return
				}
			}
		}
		for _, c := range calls {
			if c.Reply != nil && !yield("the reply to "+c.Type, c.Reply.Payload) ||
				c.Item != nil && !yield("the items of "+c.Type, c.Item) ||
				c.Progress != nil && !yield("the progress of "+c.Type, c.Progress) {
				return
			}
		}
	}
}

// checkSchema returns an error if a schema is missing, or refers to a definition that does not exist.
func (doc *document) checkSchema(where string, s *jsonschema.Schema) error {
	if s == nil {
		return errors.New(where + " is missing")
	}
	if s.Ref != "" && doc.resolve(s) == nil {
		return fmt.Errorf("%s refers to %q, which does not exist", where, s.Ref)
	}
	for child := range children(s) {
		if err := doc.checkSchema(where, child); err != nil {
			return err
		}
	}
	return nil
}

// resolve returns the definition that a schema refers to, or the schema itself. It returns nil if the
// definition does not exist.
func (doc *document) resolve(s *jsonschema.Schema) *jsonschema.Schema {
	if s.Ref == "" {
		return s
	}
	name, found := strings.CutPrefix(s.Ref, refPrefix)
	if !found {
		return nil
	}
	return doc.Defs[name]
}

// children iterates over the schemas that are directly inside a schema, for all keywords that a schema
// in a document may have.
func children(s *jsonschema.Schema) func(yield func(*jsonschema.Schema) bool) {
	return func(yield func(*jsonschema.Schema) bool) {
		for _, one := range []*jsonschema.Schema{
			s.Items, s.AdditionalItems, s.AdditionalProperties, s.PropertyNames, s.Contains, s.Not, s.If, s.Then, s.Else,
			s.UnevaluatedItems, s.UnevaluatedProperties, s.ContentSchema,
		} {
			if one != nil && !yield(one) {
				return
			}
		}
		for _, list := range [][]*jsonschema.Schema{s.AllOf, s.AnyOf, s.OneOf, s.PrefixItems, s.ItemsArray} {
			for _, one := range list {
				if !yield(one) {
					return
				}
			}
		}
		for _, set := range []map[string]*jsonschema.Schema{s.Properties, s.PatternProperties, s.DependentSchemas, s.DependencySchemas} {
			for _, one := range set {
				if !yield(one) {
					return
				}
			}
		}
	}
}

// isStruct reports whether a schema is an object with named members and nothing else.
func isStruct(s *jsonschema.Schema) bool {
	return s.Type == "object" && len(s.Properties) > 0 && s.AllOf == nil && s.AnyOf == nil && s.OneOf == nil
}

// typesOf returns the JSON types that a schema names.
func typesOf(s *jsonschema.Schema) []string {
	if s.Type != "" {
		return []string{s.Type}
	}
	return s.Types
}

package contract

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Hash returns 16 hexadecimal digits that are the same for all contracts with the same messages, topics, error codes and
// formats: limits, titles and descriptions do not count. A client that has been generated from another contract has
// another hash; see router.Options.ContractHash.
func (c *Contract) Hash() string {
	doc := c.doc
	doc.Title, doc.Version, doc.Description, doc.URL, doc.Limits, doc.CloseCodes = "", "", "", "", nil, nil
	doc.Events, doc.Received = bareEvents(doc.Events), bareEvents(doc.Received)
	doc.Calls, doc.Streams, doc.Served = bareCalls(doc.Calls), bareCalls(doc.Streams), bareCalls(doc.Served)
	doc.Defs = map[string]*jsonschema.Schema{}
	for name, def := range c.doc.Defs {
		doc.Defs[name] = bare(def)
	}
	sum := sha256.Sum256(encode(doc))
	return hex.EncodeToString(sum[:8])
}

func bareEvents(events []event) (all []event) {
	for _, e := range events {
		e.Description, e.Payload = "", bare(e.Payload)
		all = append(all, e)
	}
	return all
}

func bareCalls(calls []call) (all []call) {
	for _, c := range calls {
		c.event = bareEvents([]event{c.event})[0]
		c.Item, c.Progress = bare(c.Item), bare(c.Progress)
		if c.Reply != nil {
			c.Reply = &bareEvents([]event{*c.Reply})[0]
		}
		all = append(all, c)
	}
	return all
}

// bare returns a copy of a schema without descriptions.
func bare(s *jsonschema.Schema) *jsonschema.Schema {
	if s == nil {
		return nil
	}
	s = s.CloneSchemas()
	for each := range within(s) {
		each.Description = ""
	}
	return s
}

// within iterates over a schema and all schemas inside it.
func within(s *jsonschema.Schema) func(yield func(*jsonschema.Schema) bool) {
	return func(yield func(*jsonschema.Schema) bool) {
		if !yield(s) {
			return
		}
		for child := range children(s) {
			for each := range within(child) {
				if !yield(each) {
					return
				}
			}
		}
	}
}

// shape returns a text that is the same for all schemas with the same content, definitions that they refer to
// included.
func (doc *document) shape(s *jsonschema.Schema) string {
	defs := map[string]string{}
	doc.addShapes(s, defs)
	var b strings.Builder
	b.Write(encode(bare(s)))
	for _, name := range slices.Sorted(maps.Keys(defs)) {
		b.WriteString(name + " " + defs[name])
	}
	return b.String()
}

// addShapes adds the definitions that a schema refers to.
func (doc *document) addShapes(s *jsonschema.Schema, defs map[string]string) {
	for each := range within(s) {
		if each.Ref == "" || defs[each.Ref] != "" {
			continue
		}
		def := doc.resolve(each)
		defs[each.Ref] = string(encode(bare(def)))
		doc.addShapes(def, defs)
	}
}

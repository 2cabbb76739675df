package contract

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// This file decides whether every value of one schema is a value of another one.

// payload compares two versions of a payload.
func (d *comparison) payload(where string, o, l *jsonschema.Schema, dir direction) {
	s := subset{sender: d.old, receiver: d.later, sends: "clients send", expects: "the server accepts", needs: "the server requires it, and clients need not send it"}
	from, to := o, l
	if dir == toClient {
		s = subset{sender: d.later, receiver: d.old, sends: "the server sends", expects: "clients expect", needs: "clients expect it, and the server may leave it out"}
		from, to = l, o
	}
	s.visited = map[[2]*jsonschema.Schema]bool{}
	s.compare(where, from, to)
	for _, problem := range s.problems {
		d.add(true, "%s", problem)
	}
	if len(s.problems) == 0 && d.old.shape(o) != d.later.shape(l) {
		d.add(false, "%s: changed", where)
	}
}

// A subset looks for values that the sender's schema permits and the receiver's does not.
type subset struct {
	sender, receiver      *document
	sends, expects, needs string
	visited               map[[2]*jsonschema.Schema]bool
	problems              []string
}

func (s *subset) fail(where, format string, args ...any) {
	s.problems = append(s.problems, where+": "+fmt.Sprintf(format, args...))
}

// compare records what the receiver does not accept.
func (s *subset) compare(where string, from, to *jsonschema.Schema) {
	from, to = s.sender.resolve(from), s.receiver.resolve(to)
	pair := [2]*jsonschema.Schema{from, to}
	if s.visited[pair] || acceptsAll(to) {
		return
	}
	s.visited[pair] = true
	sent, accepted := alternatives(from), alternatives(to)
	if len(sent) == 1 && len(accepted) == 1 {
		s.compareOne(where, sent[0], accepted[0])
		return
	}
	for _, one := range sent {
		fits := func(other *jsonschema.Schema) bool {
			trial := *s
			trial.problems, trial.visited = nil, maps.Clone(s.visited)
			trial.compare(where, one, other)
			return len(trial.problems) == 0
		}
		if !slices.ContainsFunc(accepted, fits) {
			s.fail(where, "%s %s, and %s %s", s.sends, nameOf(one), s.expects, namesOf(accepted))
		}
	}
}

// compareOne compares schemas with at most one type each.
func (s *subset) compareOne(where string, from, to *jsonschema.Schema) {
	if a, b := from.Type, to.Type; a != b && b != "" && (a != "integer" || b != "number") {
		s.fail(where, "%s %s, and %s %s", s.sends, nameOf(from), s.expects, nameOf(to))
		return
	}
	s.compareValues(where, from, to)
	s.compareTexts(where, from, to)
	s.compareSizes(where, from, to)
	if to.Items != nil {
		s.compare(where+"[]", cmp.Or(from.Items, &jsonschema.Schema{}), to.Items)
	}
	s.compareMembers(where, from, to)
}

// compareMembers compares objects. Members that the receiver does not name are ignored, unless its schema describes
// them together.
func (s *subset) compareMembers(where string, from, to *jsonschema.Schema) {
	for _, name := range to.Required {
		if !slices.Contains(from.Required, name) {
			s.fail(where+"."+name, "%s", s.needs)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(from.Properties)) {
		if member := cmp.Or(to.Properties[name], to.AdditionalProperties); member != nil {
			s.compare(where+"."+name, from.Properties[name], member)
		}
	}
	if from.AdditionalProperties != nil && to.AdditionalProperties != nil {
		s.compare(where+"[]", from.AdditionalProperties, to.AdditionalProperties)
	}
	if to.PropertyNames != nil {
		s.compare("keys of "+where, cmp.Or(from.PropertyNames, &jsonschema.Schema{Type: "string"}), to.PropertyNames)
	}
}

func (s *subset) compareValues(where string, from, to *jsonschema.Schema) {
	sent, accepted := valuesOf(from), valuesOf(to)
	switch {
	case accepted == nil || to.Extra[openKeyword] == true:
	case sent == nil || from.Extra[openKeyword] == true && s.sends == "clients send":
		s.fail(where, "%s any %s, and %s %s", s.sends, from.Type, s.expects, nameOf(to))
	default:
		for _, value := range sent {
			if !slices.ContainsFunc(accepted, func(other any) bool { return reflect.DeepEqual(value, other) }) {
				s.fail(where, "%s %s, and %s %s", s.sends, literal(value), s.expects, nameOf(to))
			}
		}
	}
}

func valuesOf(s *jsonschema.Schema) []any {
	if s.Const != nil {
		return []any{*s.Const}
	}
	return s.Enum
}

func (s *subset) compareTexts(where string, from, to *jsonschema.Schema) {
	form := func(s *jsonschema.Schema) string { return s.Format + s.ContentEncoding + s.Pattern }
	if to.Type == "string" && form(to) != "" && form(to) != form(from) {
		s.fail(where, "%s %s, and %s %s", s.sends, nameOf(from), s.expects, nameOf(to))
	}
}

// compareSizes compares the ranges of numbers and the lengths of arrays.
func (s *subset) compareSizes(where string, from, to *jsonschema.Schema) {
	if to.Minimum != nil && (from.Minimum == nil || *from.Minimum < *to.Minimum) {
		s.fail(where, "%s numbers below %v, and %s none", s.sends, *to.Minimum, s.expects)
	}
	if to.Maximum != nil && (from.Maximum == nil || *from.Maximum > *to.Maximum) {
		s.fail(where, "%s numbers above %v, and %s none", s.sends, *to.Maximum, s.expects)
	}
	if to.MinItems != nil && (from.MinItems == nil || *from.MinItems < *to.MinItems) {
		s.fail(where, "%s arrays with fewer than %d elements, and %s none", s.sends, *to.MinItems, s.expects)
	}
	if to.MaxItems != nil && (from.MaxItems == nil || *from.MaxItems > *to.MaxItems) {
		s.fail(where, "%s arrays with more than %d elements, and %s none", s.sends, *to.MaxItems, s.expects)
	}
}

// acceptsAll reports whether a schema accepts every value.
func acceptsAll(s *jsonschema.Schema) bool {
	return s.Type == "" && s.Types == nil && s.Const == nil && s.Enum == nil && s.AnyOf == nil && s.OneOf == nil && s.AllOf == nil && s.Not == nil
}

// alternatives returns the schemas of which a value has at least one, each with at most one type.
func alternatives(s *jsonschema.Schema) []*jsonschema.Schema {
	if s.Type == "" && len(s.Types) == 0 && len(s.AnyOf)+len(s.OneOf) > 0 {
		return slices.Concat(s.AnyOf, s.OneOf)
	}
	if len(s.Types) == 0 {
		return []*jsonschema.Schema{s}
	}
	var all []*jsonschema.Schema
	for _, typ := range s.Types {
		one := *s
		one.Types, one.Type = nil, typ
		all = append(all, &one)
	}
	return all
}

// nameOf describes a schema for people.
func nameOf(s *jsonschema.Schema) string {
	if s.Ref != "" {
		return strings.TrimPrefix(s.Ref, refPrefix)
	}
	switch values := valuesOf(s); {
	case values != nil:
		var texts []string
		for _, value := range values {
			texts = append(texts, literal(value))
		}
		return strings.Join(texts, ", ")
	case s.Format != "":
		return s.Format
	case s.ContentEncoding != "":
		return s.ContentEncoding
	case s.Pattern != "":
		return "texts like " + s.Pattern
	case s.Type == "":
		return "anything"
	}
	return s.Type
}

func namesOf(all []*jsonschema.Schema) string {
	var names []string
	for _, one := range all {
		names = append(names, nameOf(one))
	}
	return strings.Join(names, " or ")
}

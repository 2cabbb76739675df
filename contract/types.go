package contract

import (
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// This file is the walk over a document that all languages share: it decides what a schema and a message are. A printer
// says that in its language, so that what one language has, all have.

// A printer writes the types of one language.
type printer interface { //nolint:interfacebloat // a method for each kind of type
	// reference returns the type of a definition.
	reference(name string) string
	// literals returns the type of some values. Open ones are those of this version: later ones may have other strings.
	literals(values []any, open bool) string
	basic(kind basicType) string
	// list returns the type of an array. length is that of all of them, or -1.
	list(item string, length int) string
	// object returns the type of an object with named members.
	object(s *jsonschema.Schema, at spot) string
	// dictionary returns the type of an object whose members are all of one type.
	dictionary(values string) string
	// union returns the type of a value of one of some types, without repetition. There is at least one.
	union(types []string) string
}

// A basicType is a type that contains no other one.
type basicType int

const (
	anything basicType = iota
	nothing            // accepts no value
	null
	boolean
	integer
	number
	text
	timestamp   // as in RFC 3339
	base64      // bytes
	integerText // an integer of any size in a string
	numberText
)

// A spot is where a type stands in the text.
type spot struct {
	name   string // what an object without a name is called
	indent string // of the line
}

// typeOf returns the type of a schema.
func typeOf(p printer, s *jsonschema.Schema, at spot) string {
	switch {
	case s.Ref != "":
		return p.reference(strings.TrimPrefix(s.Ref, refPrefix))
	case s.Const != nil:
		return p.literals([]any{*s.Const}, false)
	case len(s.Enum) > 0:
		return p.literals(s.Enum, s.Extra[openKeyword] == true && s.Type == "string")
	case isFalse(s):
		return p.basic(nothing)
	}
	types := typesOf(s)
	var all []string
	for _, typ := range types {
		all = append(all, typeOfKind(p, s, typ, at))
	}
	if len(types) == 0 {
		for _, one := range slices.Concat(s.AnyOf, s.OneOf) {
			all = append(all, typeOf(p, one, at))
		}
	}
	if len(all) == 0 {
		return p.basic(anything)
	}
	return p.union(all)
}

// typeOfKind returns the type of a schema for one of its JSON types.
func typeOfKind(p printer, s *jsonschema.Schema, typ string, at spot) string {
	switch typ {
	case "null":
		return p.basic(null)
	case "boolean":
		return p.basic(boolean)
	case "integer":
		return p.basic(integer)
	case "number":
		return p.basic(number)
	case "string":
		return p.basic(textType(s))
	case "array":
		if s.Items == nil {
			return p.list(p.basic(anything), -1)
		}
		length := -1
		if s.MinItems != nil && s.MaxItems != nil && *s.MinItems == *s.MaxItems {
			length = *s.MinItems
		}
		return p.list(typeOf(p, s.Items, at), length)
	case "object":
		return objectType(p, s, at)
	default:
		return p.basic(anything)
	}
}

func textType(s *jsonschema.Schema) basicType {
	switch {
	case s.Format == "date-time":
		return timestamp
	case s.ContentEncoding == "base64":
		return base64
	case s.Pattern == integerPattern || s.Pattern == unsignedPattern:
		return integerText
	case s.Pattern == numberPattern:
		return numberText
	default:
		return text
	}
}

func objectType(p printer, s *jsonschema.Schema, at spot) string {
	switch {
	case len(s.Properties) > 0:
		return p.object(s, at)
	case s.AdditionalProperties != nil && isFalse(s.AdditionalProperties), s.Extra[closedKeyword] != nil:
		return p.dictionary(p.basic(nothing))
	case s.AdditionalProperties != nil:
		return p.dictionary(typeOf(p, s.AdditionalProperties, at))
	default:
		return p.dictionary(p.basic(anything))
	}
}

// A member is one of an object with named members.
type member struct {
	name, description string
	schema            *jsonschema.Schema
	required          bool
}

// membersOf returns the members of an object in the order of their names.
func membersOf(s *jsonschema.Schema) (members []member) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		schema := s.Properties[name]
		members = append(members, member{name, schema.Description, schema, slices.Contains(s.Required, name)})
	}
	return members
}

// hasOtherMembers reports whether an object may have members that its type does not name.
func hasOtherMembers(s *jsonschema.Schema) bool {
	return s.AdditionalProperties != nil && !isFalse(s.AdditionalProperties)
}

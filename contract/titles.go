package contract

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// This file names the schemas of an AsyncAPI document: generators name classes by titles, and call a schema
// without one AnonymousSchema_1.

// titles has the names that are taken.
type titles map[string]bool

// unique returns a name that no other schema has.
func (t titles) unique(name string) string {
	free := name
	for n := 2; t[free]; n++ {
		free = name + strconv.Itoa(n)
	}
	t[free] = true
	return free
}

// name adds titles to a schema, which it owns, and to those inside it that become types of their own.
func (t titles) name(s *jsonschema.Schema, title string) {
	if reflect.DeepEqual(s, &jsonschema.Schema{}) { // it would be encoded as true, which generators do not know
		s.Description = "any value"
	}
	if s.Title == "" && (len(s.Properties) > 0 || len(s.Enum) > 0 || len(s.AnyOf)+len(s.OneOf) > 0) {
		s.Title = t.unique(title)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		t.name(s.Properties[name], title+pascal(name))
	}
	if s.Items != nil {
		t.name(s.Items, title+"Item")
	}
	if s.AdditionalProperties != nil {
		t.name(s.AdditionalProperties, title+"Value")
	}
	for i, part := range slices.Concat(s.PrefixItems, s.AllOf, s.AnyOf, s.OneOf) {
		t.name(part, title+strconv.Itoa(i+1))
	}
}

// openEnums makes the values of open enumerations examples: validators and generated types must accept those of
// later versions. It changes the schema.
func openEnums(s *jsonschema.Schema) {
	if s.Extra[openKeyword] == true {
		s.Examples, s.Enum = s.Enum, nil
	}
	for child := range children(s) {
		openEnums(child)
	}
}

// discriminator returns the member by which the objects of a union differ, or "".
func (doc *document) discriminator(s *jsonschema.Schema) string {
	var objects []*jsonschema.Schema
	for _, variant := range s.AnyOf {
		if one := doc.resolve(variant); one != nil && one.Type == "object" {
			objects = append(objects, one)
		}
	}
	if len(objects) < 2 {
		return ""
	}
	for _, name := range objects[0].Required {
		if discriminates(objects, name) {
			return name
		}
	}
	return ""
}

// pascal returns a name as an identifier of a class: JoinRoom for JOIN_ROOM and for join-room.
func pascal(name string) string {
	var result strings.Builder
	for part := range strings.FieldsFuncSeq(name, func(r rune) bool { return r == '_' || identifier(string(r)) == "" }) {
		if part == strings.ToUpper(part) {
			part = strings.ToLower(part)
		}
		result.WriteString(capitalize(part))
	}
	return result.String()
}

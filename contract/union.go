package contract

import (
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// This file describes interfaces. Clients tell their variants apart by a field with a value of its own in each.

// The variants of an interface.
type variants struct {
	typ     reflect.Type
	at      place
	schemas []*jsonschema.Schema
}

// union returns the schema of an interface.
func (w *walker) union(t reflect.Type, at place) *jsonschema.Schema {
	types := w.opts.Variants[t]
	switch {
	case len(types) == 0 && t.NumMethod() == 0:
		return &jsonschema.Schema{}
	case len(types) == 0:
		return w.fail(at, t, "is an interface without variants; use a struct, or any, or list the types of its values in Options.Variants")
	case w.sent:
		return w.fail(at, t, "is an interface and clients send it, so its values cannot be decoded; use a struct whose fields are optional")
	}
	s := &jsonschema.Schema{}
	for _, variant := range types {
		if !variant.Implements(t) {
			return w.fail(at, t, "cannot have the variant %v, which does not implement it", variant)
		}
		s.AnyOf = append(s.AnyOf, w.walk(indirect(variant), place{message: at.message, path: at.path}))
	}
	w.unions = append(w.unions, variants{t, at, slices.Clone(s.AnyOf)})
	s.AnyOf = append(s.AnyOf, &jsonschema.Schema{Type: "null"})
	return s
}

// constant returns the schema of a field that always has the same value.
func (w *walker) constant(value string, t reflect.Type, at place) *jsonschema.Schema {
	if t.Kind() != reflect.String || implementsAny(t, marshalers...) {
		return w.fail(at, t, "has the tag contract:%q, which is for texts", "const="+value)
	}
	var constant any = value
	return &jsonschema.Schema{Type: "string", Const: &constant}
}

// checkDiscriminator records a mistake if clients cannot tell the objects among the variants apart. It must be
// called when all definitions are complete.
func (w *walker) checkDiscriminator(u variants) {
	var objects []*jsonschema.Schema
	for _, s := range u.schemas {
		if t, ok := w.refs[s]; ok {
			s = w.defs[t]
		}
		if s.Type == "object" {
			objects = append(objects, s)
		}
	}
	if len(objects) < 2 || slices.ContainsFunc(objects[0].Required, func(name string) bool { return discriminates(objects, name) }) {
		return
	}
	w.fail(u.at, u.typ, `has variants that clients cannot tell apart; give each a field of the same name with a value of its own, such as Kind string `+
		"`json:\"kind\" contract:\"const=circle\"`")
}

// discriminates reports whether a member is in all objects, with a value of its own in each.
func discriminates(objects []*jsonschema.Schema, name string) bool {
	seen := map[any]bool{}
	for _, object := range objects {
		member := object.Properties[name]
		if member == nil || member.Const == nil || seen[*member.Const] || !slices.Contains(object.Required, name) {
			return false
		}
		seen[*member.Const] = true
	}
	return true
}

package jsonplan

import (
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxMembers is how many members a struct with a plan has.
const maxMembers = 256

// membersOf returns the members of the JSON object of a struct, in the order of their fields. It finds them
// as package encoding/json/v2 does: breadth-first through embedded structs. It reports false if the whole
// struct is left to the library, which may reject it.
func membersOf(root reflect.Type) (members []TaggedMember, ok bool) {
	type level struct {
		typ     reflect.Type
		index   []int
		descend bool
	}
	seen := map[reflect.Type]bool{root: true}
	for queue := []level{{root, nil, true}}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		names := map[string]bool{}
		ignored, tagged := 0, false
		for i := range at.typ.NumField() {
			f := at.typ.Field(i)
			text, hasTag := f.Tag.Lookup("json")
			tagged = tagged || hasTag
			m, known := ParseTag(f.Name, f.IsExported(), f.Anonymous, f.Tag)
			if !known {
				if hasTag && text != "-" {
					return nil, false
				}
				ignored++
				continue
			}
			if !isUsual(f, m) {
				return nil, false
			}
			m.Index = append(slices.Clone(at.index), i)
			if !m.Embedded {
				if names[m.Name] {
					return nil, false
				}
				names[m.Name] = true
				members = append(members, m)
				continue
			}
			inner := indirect(f.Type)
			if at.descend {
				queue = append(queue, level{inner, m.Index, !seen[inner]})
			}
			seen[inner] = true
		}
		if ignored > 0 && ignored == at.typ.NumField() && !tagged {
			return nil, false
		}
	}
	members = DominantMembers(members, func(m TaggedMember) TaggedMember { return m })
	slices.SortFunc(members, func(a, b TaggedMember) int { return slices.Compare(a.Index, b.Index) })
	return members, len(members) <= maxMembers
}

// isUsual reports whether a field has a tag that plans know, and its type the form that the tag needs.
func isUsual(f reflect.StructField, m TaggedMember) bool {
	if strings.ContainsAny(m.Name, "\\'\"`") || !utf8.ValidString(m.Name) {
		return false
	}
	for i, option := range m.Options {
		switch option {
		case "omitzero", "omitempty", "string", "embed", "case:strict":
		default:
			return false
		}
		if slices.Contains(m.Options[:i], option) {
			return false
		}
	}
	if !m.Embedded {
		return f.IsExported()
	}
	inner := indirect(f.Type)
	return !m.Tagged && !slices.ContainsFunc(m.Options, func(option string) bool { return option != "embed" }) &&
		inner.Kind() == reflect.Struct && !HasMethods(inner) && (f.IsExported() || f.Type == inner)
}

// indirect returns the type that an unnamed pointer type points to, and other types unchanged.
func indirect(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer && t.Name() == "" {
		return t.Elem()
	}
	return t
}

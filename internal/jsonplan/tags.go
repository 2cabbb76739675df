package jsonplan

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
)

// This file selects the members of a JSON object among the fields of a struct, as package encoding/json/v2 does, whose
// documentation has the rules. Package contract describes the same members.

// A TaggedMember is a member of the JSON object of a struct, or an embedded field whose members are members
// of that object.
type TaggedMember struct {
	Name      string
	Tagged    bool // the name is from the tag
	Embedded  bool
	OmitZero  bool
	OmitEmpty bool
	Quoted    bool     // a number in a string
	Options   []string // all options of the tag, including those that have a field above

	// Index is the path of the field through embedded structs, as in [reflect.StructField]. The user sets it.
	Index []int
}

// ParseTag reads the tag of a struct field, given the name of the field in Go, and whether Go embeds it. ok is
// false if the field is not part of the JSON. ParseTag does not check the syntax of the tag, nor whether its
// options are known and allowed for the field.
func ParseTag(goName string, exported, anonymous bool, tag reflect.StructTag) (m TaggedMember, ok bool) {
	text := tag.Get("json")
	if text == "-" || !exported && !anonymous {
		return TaggedMember{}, false
	}
	name, options, hasOptions := strings.Cut(text, ",")
	m = TaggedMember{Name: cmp.Or(name, goName), Tagged: name != "", Embedded: anonymous && name == ""}
	if hasOptions {
		m.Options = strings.Split(options, ",")
	}
	for _, option := range m.Options {
		switch option {
		case "omitzero":
			m.OmitZero = true
		case "omitempty":
			m.OmitEmpty = true
		case "string":
			m.Quoted = true
		case "embed":
			m.Embedded = true
		}
	}
	return m, true
}

// DominantMembers returns the fields that are members of the object, sorted by name: of fields with one name, the
// least deep one counts if it is the only one there, or the only one there whose tag has the name. member
// returns the TaggedMember of a field. DominantMembers sorts all.
func DominantMembers[F any](all []F, member func(F) TaggedMember) (dominant []F) {
	slices.SortStableFunc(all, func(x, y F) int {
		a, b := member(x), member(y)
		return cmp.Or(strings.Compare(a.Name, b.Name), comparePrecedence(a, b))
	})
	for len(all) > 0 {
		first := member(all[0])
		n := 1
		for n < len(all) && member(all[n]).Name == first.Name {
			n++
		}
		if n == 1 || comparePrecedence(first, member(all[1])) != 0 {
			dominant = append(dominant, all[0])
		}
		all = all[n:]
	}
	return dominant
}

// comparePrecedence orders members with one name: less deep ones first, then those whose tag has the name.
func comparePrecedence(a, b TaggedMember) int {
	switch {
	case len(a.Index) != len(b.Index):
		return cmp.Compare(len(a.Index), len(b.Index))
	case a.Tagged == b.Tagged:
		return 0
	case a.Tagged:
		return -1
	default:
		return 1
	}
}

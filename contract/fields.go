package contract

import (
	"reflect"
	"slices"

	"github.com/penstock-go/penstock/internal/jsonplan"
	"github.com/penstock-go/penstock/internal/jsonv2"
)

// A field is a member of the JSON object of a struct.
type field struct {
	reflect.StructField

	json     jsonplan.TaggedMember
	optional bool // inside an embedded pointer, which may be nil
}

// fieldsOf returns the members of the object of a struct, and the type of an embedded map or
// jsontext.Value that has all other members, or nil. They are found as in package encoding/json/v2:
// breadth-first through embedded structs.
func fieldsOf(root reflect.Type) (fields []field, rest reflect.Type, err error) {
	if err := jsonv2.Unmarshal([]byte("{}"), reflect.New(root).Interface()); err != nil {
		return nil, nil, err // the tags are invalid; everything below relies on valid ones
	}
	type level struct {
		typ      reflect.Type
		index    []int
		optional bool
		descend  bool
	}
	var all, rests []field
	seen := map[reflect.Type]bool{root: true}
	for queue := []level{{typ: root, descend: true}}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for i := range at.typ.NumField() {
			sf := at.typ.Field(i)
			member, ok := jsonplan.ParseTag(sf.Name, sf.IsExported(), sf.Anonymous, sf.Tag)
			if !ok {
				continue
			}
			member.Index = append(slices.Clone(at.index), i)
			f := field{sf, member, at.optional}
			target := indirect(f.Type)
			switch {
			case !member.Embedded:
				all = append(all, f)
			case target.Kind() == reflect.Struct:
				if at.descend {
					queue = append(queue, level{target, member.Index, at.optional || f.Type.Kind() == reflect.Pointer, !seen[target]})
				}
				seen[target] = true
			default:
				rests = append(rests, f)
			}
		}
	}
	if n := len(rests); n == 1 || n > 1 && len(rests[0].json.Index) != len(rests[1].json.Index) {
		rest = indirect(rests[0].Type)
	}
	return jsonplan.DominantMembers(all, func(f field) jsonplan.TaggedMember { return f.json }), rest, nil
}

// indirect returns what an unnamed pointer points to.
func indirect(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer && t.Name() == "" {
		return t.Elem()
	}
	return t
}

// mayBeOmitted reports whether the member may be missing in an encoded object.
func (f *field) mayBeOmitted() bool {
	return f.optional || f.json.OmitZero || f.json.OmitEmpty && encodesEmpty(f.Type, map[reflect.Type]bool{})
}

// encodesEmpty reports whether a value may be encoded as null, "", [] or {}, which omitempty omits.
func encodesEmpty(t reflect.Type, visiting map[reflect.Type]bool) bool {
	if t == timeType || visiting[t] {
		return false
	}
	visiting[t] = true
	defer delete(visiting, t)
	if implementsAny(t, marshalers...) {
		return true
	}
	switch t.Kind() {
	case reflect.String, reflect.Map, reflect.Slice, reflect.Pointer, reflect.Interface:
		return true
	case reflect.Array:
		return t.Len() == 0
	case reflect.Struct:
		fields, _, err := fieldsOf(t)
		return err != nil || !slices.ContainsFunc(fields, func(f field) bool {
			return !f.optional && !f.json.OmitZero && (!f.json.OmitEmpty || !encodesEmpty(f.Type, visiting))
		})
	default:
		return false
	}
}

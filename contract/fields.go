package contract

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/internal/jsonv2"
)

// A field is a member of the JSON object of a struct.
type field struct {
	reflect.StructField

	name      string
	named     bool // the tag has the name
	index     []int
	omitzero  bool
	omitempty bool
	quoted    bool // a number in a string
	optional  bool // inside an embedded pointer, which may be nil
}

// fieldsOf returns the members of the object of a struct, and the type of an embedded map or
// jsontext.Value that has all other members, or nil. They are found as in package encoding/json/v2, whose
// documentation has the rules: breadth-first through embedded structs; of fields with one name, the
// least deep one counts if it is the only one there, or the only one there whose tag has the name.
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
			f, embedded := parseField(at.typ.Field(i))
			f.index = append(slices.Clone(at.index), i)
			f.optional = at.optional
			target := indirect(f.Type)
			switch {
			case f.name == "":
			case !embedded:
				all = append(all, f)
			case target.Kind() == reflect.Struct:
				if at.descend {
					queue = append(queue, level{target, f.index, at.optional || f.Type.Kind() == reflect.Pointer, !seen[target]})
				}
				seen[target] = true
			default:
				rests = append(rests, f)
			}
		}
	}
	if n := len(rests); n == 1 || n > 1 && len(rests[0].index) != len(rests[1].index) {
		rest = indirect(rests[0].Type)
	}
	return dominant(all), rest, nil
}

// dominant returns the fields that count, sorted by name.
func dominant(all []field) (fields []field) {
	slices.SortStableFunc(all, func(a, b field) int {
		byTag := func(f field) int {
			if f.named {
				return 0
			}
			return 1
		}
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(len(a.index), len(b.index)), cmp.Compare(byTag(a), byTag(b)))
	})
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].name == all[0].name {
			n++
		}
		if n == 1 || len(all[0].index) != len(all[1].index) || all[0].named != all[1].named {
			fields = append(fields, all[0])
		}
		all = all[n:]
	}
	return fields
}

// parseField reads the tag of a struct field. The name is empty if the field is not part of the JSON.
// embedded means that the members of the field are members of the struct.
func parseField(sf reflect.StructField) (f field, embedded bool) {
	f.StructField = sf
	tag := sf.Tag.Get("json")
	if tag == "-" || !sf.IsExported() && !sf.Anonymous {
		return f, false
	}
	name, options, _ := strings.Cut(tag, ",")
	f.name, f.named = cmp.Or(name, sf.Name), name != ""
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "omitzero":
			f.omitzero = true
		case "omitempty":
			f.omitempty = true
		case "string":
			f.quoted = true
		case "embed":
			embedded = true
		}
	}
	return f, embedded || sf.Anonymous && !f.named
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
	return f.optional || f.omitzero || f.omitempty && encodesEmpty(f.Type, map[reflect.Type]bool{})
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
			return !f.optional && !f.omitzero && (!f.omitempty || !encodesEmpty(f.Type, visiting))
		})
	default:
		return false
	}
}

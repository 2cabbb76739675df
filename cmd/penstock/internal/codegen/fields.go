package codegen

import (
	"cmp"
	"fmt"
	"go/types"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// A field is a member of the JSON object of a struct.
type field struct {
	name      string
	tagged    bool // the name is from the tag
	path      []*types.Var
	index     []int
	omitzero  bool
	omitempty bool
	quoted    bool // a number in a string
	value     *value
}

// goName returns the selector of the field: Author.Name.
func (f *field) goName() string {
	var names []string
	for _, v := range f.path {
		names = append(names, v.Name())
	}
	return strings.Join(names, ".")
}

// fieldsOf returns the fields of a struct in their order. They are found as in package
// encoding/json/v2, whose documentation has the rules: breadth-first through embedded structs; of
// fields with one name, the least deep one counts if it is the only one there, or the only one there
// whose tag has the name.
func fieldsOf(root types.Type, pkg *types.Package) ([]*field, error) {
	type level struct {
		typ     types.Type
		parent  *field
		descend bool
	}
	var all []*field
	seen := map[string]bool{types.TypeString(root, nil): true}
	for queue := []level{{root, &field{}, true}}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		s := at.typ.Underlying().(*types.Struct)
		names := map[string]bool{}
		ignored := 0
		for i := range s.NumFields() {
			f, embedded, err := parseField(s.Field(i), s.Tag(i))
			switch {
			case err != nil:
				return nil, err
			case f == nil:
				ignored++
				continue
			}
			f.path = append(slices.Clone(at.parent.path), s.Field(i))
			f.index = append(slices.Clone(at.parent.index), i)
			if !embedded {
				if names[f.name] {
					return nil, rejected("%s: another field is also named %q in JSON", f.goName(), f.name)
				}
				names[f.name] = true
				all = append(all, f)
				continue
			}
			if err := checkEmbedded(f, pkg); err != nil {
				return nil, err
			}
			inner := indirect(s.Field(i).Type())
			key := types.TypeString(inner, nil)
			if at.descend {
				queue = append(queue, level{inner, f, !seen[key]})
			}
			seen[key] = true
		}
		if ignored > 0 && ignored == s.NumFields() && !hasTag(s) {
			return nil, rejected("%s has no exported fields; the JSON library rejects it", types.TypeString(at.typ, types.RelativeTo(pkg)))
		}
	}
	return dominant(all), nil
}

func hasTag(s *types.Struct) bool {
	for i := range s.NumFields() {
		if _, ok := reflect.StructTag(s.Tag(i)).Lookup("json"); ok {
			return true
		}
	}
	return false
}

// checkEmbedded returns an error for an embedded field whose members generated code does not handle.
func checkEmbedded(f *field, pkg *types.Package) error {
	v := f.path[len(f.path)-1]
	inner := indirect(v.Type())
	named, ok := inner.(*types.Named)
	if _, isStruct := inner.Underlying().(*types.Struct); !isStruct {
		return unsupported("%s: only structs are embedded by generated code; give the field a JSON name", f.goName())
	}
	if ok && named.Obj().Pkg() != pkg {
		return unsupported("%s: a struct of another package is embedded; copy its fields, or give the field a JSON name", f.goName())
	}
	if method := ownEncoding(inner); method != "" {
		return rejected("%s: an embedded type has the method %s; give the field a JSON name", f.goName(), method)
	}
	if _, pointer := v.Type().(*types.Pointer); pointer && !v.Exported() {
		return unsupported("%s: a pointer to an unexported struct is embedded; embed the struct", f.goName())
	}
	return nil
}

// dominant returns the fields that count, in their order.
func dominant(all []*field) (fields []*field) {
	slices.SortStableFunc(all, func(a, b *field) int {
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(len(a.index), len(b.index)), compareBools(b.tagged, a.tagged))
	})
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].name == all[0].name {
			n++
		}
		if n == 1 || len(all[0].index) != len(all[1].index) || all[0].tagged != all[1].tagged {
			fields = append(fields, all[0])
		}
		all = all[n:]
	}
	slices.SortFunc(fields, func(a, b *field) int { return slices.Compare(a.index, b.index) })
	return fields
}

// compareBools orders false before true.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}

// parseField reads a tag. It returns nil if the field is not part of the JSON. embedded means that the
// members of the field are members of the struct. Tags that do not have the usual syntax are left to
// the library, which has rules for them.
func parseField(v *types.Var, tag string) (f *field, embedded bool, err error) {
	text, has := reflect.StructTag(tag).Lookup("json")
	if text == "-" {
		return nil, false, nil
	}
	if !v.Exported() && !v.Embedded() {
		if has {
			return nil, false, rejected("%s is not exported, but has a JSON tag", v.Name())
		}
		return nil, false, nil
	}
	name, options, hasOptions := strings.Cut(text, ",")
	if strings.ContainsAny(name, "\\'\"`") || !utf8.ValidString(name) {
		return nil, false, unsupported("%s: the tag %q is unusual", v.Name(), text)
	}
	f = &field{name: cmp.Or(name, v.Name()), tagged: name != ""}
	seen := map[string]bool{}
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "": // there are none: two commas in a row are unusual, too
			if hasOptions {
				return nil, false, unsupported("%s: the tag %q is unusual", v.Name(), text)
			}
		case "omitzero":
			f.omitzero = true
		case "omitempty":
			f.omitempty = true
		case "string":
			f.quoted = true
		case "embed":
			embedded = true
		case "case:strict":
		default:
			return nil, false, unsupported("%s: generated code does not know the option %q", v.Name(), option)
		}
		if seen[option] {
			return nil, false, rejected("%s has the option %q twice", v.Name(), option)
		}
		seen[option] = true
	}
	embedded = embedded || v.Embedded() && !f.tagged
	if embedded && (f.tagged || f.omitzero || f.omitempty || f.quoted || seen["case:strict"]) {
		return nil, false, rejected("%s is embedded and must have neither a JSON name nor other options", v.Name())
	}
	if !v.Exported() && !embedded {
		return nil, false, unsupported("%s: an unexported embedded type has a JSON name", v.Name())
	}
	return f, embedded, nil
}

// A typeError says why no code is generated for a type.
type typeError struct {
	text     string
	rejected bool // the library returns an error, too
}

func (e *typeError) Error() string { return e.text }

func rejected(format string, args ...any) error {
	return &typeError{fmt.Sprintf(format, args...), true}
}

func unsupported(format string, args ...any) error {
	return &typeError{fmt.Sprintf(format, args...), false}
}

package codegen

import (
	"fmt"
	"go/types"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/penstock-go/penstock/internal/jsontag"
)

// A field is a member of the JSON object of a struct.
type field struct {
	jsontag.Member

	path  []*types.Var
	value *value
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
// encoding/json/v2: breadth-first through embedded structs.
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
			f, err := parseField(s.Field(i), s.Tag(i))
			switch {
			case err != nil:
				return nil, err
			case f == nil:
				ignored++
				continue
			}
			f.path = append(slices.Clone(at.parent.path), s.Field(i))
			f.Index = append(slices.Clone(at.parent.Index), i)
			if !f.Embedded {
				if names[f.Name] {
					return nil, rejected("%s: another field is also named %q in JSON", f.goName(), f.Name)
				}
				names[f.Name] = true
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
	fields := jsontag.Dominant(all, func(f *field) jsontag.Member { return f.Member })
	slices.SortFunc(fields, func(a, b *field) int { return slices.Compare(a.Index, b.Index) })
	return fields, nil
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

// parseField reads a tag. It returns nil if the field is not part of the JSON.
func parseField(v *types.Var, tag string) (*field, error) {
	text, has := reflect.StructTag(tag).Lookup("json")
	member, ok := jsontag.Parse(v.Name(), v.Exported(), v.Embedded(), reflect.StructTag(tag))
	switch {
	case !ok && has && text != "-":
		return nil, rejected("%s is not exported, but has a JSON tag", v.Name())
	case !ok:
		return nil, nil
	}
	if err := checkTag(v, text, member); err != nil {
		return nil, err
	}
	return &field{Member: member}, nil
}

// checkTag returns an error for a tag that the library rejects or that generated code does not handle. Tags
// that do not have the usual syntax are left to the library, which has rules for them.
func checkTag(v *types.Var, text string, m jsontag.Member) error {
	if strings.ContainsAny(m.Name, "\\'\"`") || !utf8.ValidString(m.Name) {
		return unsupported("%s: the tag %q is unusual", v.Name(), text)
	}
	for i, option := range m.Options {
		switch option {
		case "": // two commas in a row, or one at the end
			return unsupported("%s: the tag %q is unusual", v.Name(), text)
		case "omitzero", "omitempty", "string", "embed", "case:strict":
		default:
			return unsupported("%s: generated code does not know the option %q", v.Name(), option)
		}
		if slices.Contains(m.Options[:i], option) {
			return rejected("%s has the option %q twice", v.Name(), option)
		}
	}
	isOther := func(option string) bool { return option != "embed" }
	switch {
	case m.Embedded && (m.Tagged || slices.ContainsFunc(m.Options, isOther)):
		return rejected("%s is embedded and must have neither a JSON name nor other options", v.Name())
	case !v.Exported() && !m.Embedded:
		return unsupported("%s: an unexported embedded type has a JSON name", v.Name())
	}
	return nil
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

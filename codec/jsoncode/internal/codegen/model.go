package codegen

import (
	"fmt"
	"go/types"

	"github.com/penstock-go/penstock/errors"
)

type kind int

const (
	kindLibrary kind = iota // encoded and decoded by the library
	kindBool
	kindString
	kindInt
	kindUint
	kindFloat
	kindBytes     // []byte
	kindByteArray // [n]byte
	kindTime
	kindPointer
	kindSlice
	kindArray
	kindMap
	kindStruct
)

// A value is a type, and how it is encoded.
type value struct {
	kind   kind
	typ    types.Type
	bits   string     // of a number: a constant expression
	elem   *value     // of a pointer, slice, array or map
	length int64      // of an array
	object *structure // of a struct
}

// A structure is a struct type with a pair of generated functions.
type structure struct {
	typ       types.Type
	suffix    string // of the names of the functions
	fields    []*field
	recursive bool
	err       error // if it is left to the library
}

// A model holds the structs of a package for which code is generated.
type model struct {
	pkg        *types.Package
	structures []*structure // in the order in which they were found
	byType     map[string]*structure
	suffixes   map[string]bool
	visiting   map[string]bool // named types that valueOf is looking at
}

func newModel(pkg *types.Package) *model {
	return &model{pkg: pkg, byType: map[string]*structure{}, suffixes: map[string]bool{}, visiting: map[string]bool{}}
}

// structureOf returns the structure of a struct type. name is what its functions are named after if
// the type has no name.
func (m *model) structureOf(t types.Type, name string) *structure {
	key := types.TypeString(t, nil)
	if s := m.byType[key]; s != nil {
		return s
	}
	s := &structure{typ: t, suffix: m.suffix(t, name)}
	m.byType[key] = s // before its fields: the type may contain itself
	m.structures = append(m.structures, s)
	if s.fields, s.err = fieldsOf(t, m.pkg); s.err != nil {
		return s
	}
	for _, f := range s.fields {
		at := f.path[len(f.path)-1]
		var err error
		if f.value, err = m.valueOf(at.Type(), s.suffix+"_"+at.Name()); err == nil {
			err = checkOptions(f)
		}
		if err != nil {
			s.err = inField(f, err)
			return s
		}
	}
	return s
}

// inField adds the name of a field to an error.
func inField(f *field, err error) error {
	if e, ok := errors.AsType[*typeError](err); ok {
		return &typeError{f.goName() + ": " + e.text, e.rejected}
	}
	return fmt.Errorf("%s: %w", f.goName(), err)
}

// suffix returns a part for names of functions that no other structure has.
func (m *model) suffix(t types.Type, name string) string {
	if named, ok := t.(*types.Named); ok && named.TypeArgs().Len() == 0 {
		name = named.Obj().Name()
	} else if ok {
		name = named.Obj().Name() + "_of"
	}
	suffix := name
	taken := func() bool {
		return m.suffixes[suffix] || m.pkg.Scope().Lookup("decodeJSON"+suffix) != nil || m.pkg.Scope().Lookup("appendJSON"+suffix) != nil
	}
	for n := 2; taken(); n++ {
		suffix = fmt.Sprint(name, "_", n)
	}
	m.suffixes[suffix] = true
	return suffix
}

// valueOf returns how a type is encoded. It returns an error if the library rejects it.
func (m *model) valueOf(t types.Type, name string) (*value, error) {
	t = types.Unalias(t)
	v := &value{typ: t}
	if named, ok := t.(*types.Named); ok {
		switch object := named.Obj(); {
		case object.Pkg() != nil && object.Pkg().Path() == "time" && object.Name() == "Time":
			v.kind = kindTime
			return v, nil
		case object.Pkg() != nil && object.Pkg().Path() == "time" && object.Name() == "Duration":
			return nil, rejected("time.Duration has no JSON form; declare an integer, named for its unit: TimeoutMs int64")
		case ownEncoding(t) != "" || !isNameable(named, m.pkg):
			return v, nil
		}
		if _, isStruct := t.Underlying().(*types.Struct); !isStruct {
			key := types.TypeString(t, nil)
			if m.visiting[key] { // type List []List
				return v, nil
			}
			m.visiting[key] = true
			defer delete(m.visiting, key)
		}
	}
	switch u := t.Underlying().(type) {
	case *types.Basic:
		return v, m.setBasic(v, u)
	case *types.Interface:
		return v, nil
	case *types.Pointer:
		return v, m.setElement(v, kindPointer, u.Elem(), name)
	case *types.Slice:
		if isByte(u.Elem()) {
			v.kind = kindBytes
			return v, nil
		}
		return v, m.setElement(v, kindSlice, u.Elem(), name)
	case *types.Array:
		v.length = u.Len()
		if isByte(u.Elem()) {
			v.kind = kindByteArray
			return v, nil
		}
		return v, m.setElement(v, kindArray, u.Elem(), name)
	case *types.Map:
		if !m.isStringKey(u.Key()) {
			return v, nil
		}
		return v, m.setElement(v, kindMap, u.Elem(), name)
	case *types.Struct:
		return v, m.setStruct(v, u, name)
	default:
		return nil, rejected("the type %s has no JSON form; exclude the field with the tag `json:\"-\"`", types.TypeString(t, types.RelativeTo(m.pkg)))
	}
}

func (m *model) setBasic(v *value, u *types.Basic) error {
	bits := map[types.BasicKind]string{
		types.Int: "strconv.IntSize", types.Uint: "strconv.IntSize", types.Uintptr: "strconv.IntSize", types.Int8: "8", types.Uint8: "8", types.Int16: "16", types.Uint16: "16",
		types.Int32: "32", types.Uint32: "32", types.Int64: "64", types.Uint64: "64", types.Float32: "32", types.Float64: "64",
	}
	v.bits = bits[u.Kind()]
	switch info := u.Info(); {
	case info&types.IsBoolean != 0:
		v.kind = kindBool
	case info&types.IsString != 0:
		v.kind = kindString
	case info&types.IsUnsigned != 0:
		v.kind = kindUint
	case info&types.IsInteger != 0:
		v.kind = kindInt
	case info&types.IsFloat != 0:
		v.kind = kindFloat
	case u.Kind() == types.Invalid:
		return errors.New("its type has an error; fix what the compiler reports first")
	default:
		return rejected("the type %s has no JSON form; exclude the field with the tag `json:\"-\"`", u.Name())
	}
	return nil
}

// setElement sets the kind of a value with elements. If the library handles the elements, it handles
// the whole value.
func (m *model) setElement(v *value, k kind, elem types.Type, name string) (err error) {
	if v.elem, err = m.valueOf(elem, name); err == nil && v.elem.kind != kindLibrary {
		v.kind = k
	}
	return err
}

// setStruct sets the kind of a struct. The library handles structs of other packages, which may change
// without this one.
func (m *model) setStruct(v *value, u *types.Struct, name string) error {
	named, ok := v.typ.(*types.Named)
	if ok && named.Obj().Pkg() != m.pkg {
		return nil
	}
	for f := range u.Fields() {
		if f.Pkg() != m.pkg {
			return nil
		}
	}
	s := m.structureOf(v.typ, name)
	if s.err == nil {
		v.kind, v.object = kindStruct, s
		return nil
	}
	if isLeft(s.err) {
		return nil
	}
	return s.err
}

// isStringKey reports whether generated code handles a type of map keys.
func (m *model) isStringKey(t types.Type) bool {
	t = types.Unalias(t)
	if named, ok := t.(*types.Named); ok && (ownEncoding(t) != "" || !isNameable(named, m.pkg)) {
		return false
	}
	u, ok := t.Underlying().(*types.Basic)
	return ok && u.Info()&types.IsString != 0
}

// isByte reports whether the library encodes lists of a type in base64.
func isByte(t types.Type) bool {
	u, ok := types.Unalias(t).(*types.Basic)
	return ok && u.Kind() == types.Uint8
}

// checkOptions returns an error for options that the type of a field does not allow.
func checkOptions(f *field) error {
	if f.Quoted {
		v := f.value
		for v.kind == kindPointer {
			v = v.elem
		}
		switch v.kind {
		case kindInt, kindUint, kindFloat:
		case kindLibrary:
			return unsupported("generated code does not know the option string for %s", types.TypeString(v.typ, nil))
		default:
			return rejected("the option string is for numbers, not for %s", types.TypeString(v.typ, nil))
		}
	}
	if _, ok := f.value.typ.Underlying().(*types.Interface); ok && f.OmitZero && hasInterfaceMethod(f.value.typ, "IsZero") {
		return unsupported("generated code does not know the option omitzero for an interface with IsZero")
	}
	return nil
}

func hasInterfaceMethod(t types.Type, name string) bool {
	object, _, _ := types.LookupFieldOrMethod(t, false, nil, name)
	return object != nil
}

// finish completes the model, which structureOf builds while structures that refer to each other are
// incomplete: it leaves values to the library whose structure is, and finds recursive structures.
func (m *model) finish() {
	for changed := true; changed; {
		changed = false
		for _, s := range m.structures {
			changed = s.leaveValues() || changed
		}
	}
	for _, s := range m.structures {
		s.recursive = s.err == nil && reaches(s, s, map[*structure]bool{})
	}
}

// leaveValues leaves the values to the library whose structure is. It reports whether there are any.
func (s *structure) leaveValues() (changed bool) {
	if s.err != nil {
		return false
	}
	for _, f := range s.fields {
		object := f.value.innermost().object
		if object == nil || object.err == nil {
			continue
		}
		if !isLeft(object.err) {
			s.err = inField(f, object.err)
			return true
		}
		f.value = &value{typ: f.value.typ}
		changed = true
	}
	return changed
}

// innermost returns the value itself, or that of its elements.
func (v *value) innermost() *value {
	for v.elem != nil {
		v = v.elem
	}
	return v
}

// isLeft reports whether an error means that the library handles a type.
func isLeft(err error) bool {
	e, ok := errors.AsType[*typeError](err)
	return ok && !e.rejected
}

// reaches reports whether values of one structure may contain values of another one.
func reaches(from, to *structure, seen map[*structure]bool) bool {
	for _, f := range from.fields {
		object := f.value.innermost().object
		if object == nil || seen[object] {
			continue
		}
		seen[object] = true
		if object == to || reaches(object, to, seen) {
			return true
		}
	}
	return false
}

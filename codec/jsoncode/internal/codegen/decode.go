package codegen

import (
	"fmt"
	"go/types"
	"slices"
)

func (f *file) decodeStruct(s *structure) {
	f.n = 0
	f.guardStruct(s)
	name := f.typeName(s.typ)
	f.printf("\nfunc decodeJSON%s(s *{jsoncode}.Scanner, v *%s) {\n", s.suffix, name)
	f.printf("if s.Null() {\n*v = %s{}\nreturn\n}\n", name)
	const bits = 64
	words := (len(s.fields) + bits - 1) / bits
	for word := range words {
		f.printf("var %s uint64\n", seen(word))
	}
	f.printf("for more := s.Object(); more; more = s.NextMember() {\nswitch string(s.Name()) {\n")
	for i, field := range s.fields {
		f.printf("case %q:\ns.Once(&%s, 1<<%d)\n", field.Name, seen(i/bits), i%bits)
		f.makeEmbedded(field)
		f.decode("v."+field.goName(), field.value, field.Quoted)
	}
	f.printf("default:\ns.Fail()\n}\n}\n}\n")
}

// seen returns the name of the variable that has a bit for each of 64 members.
func seen(word int) string {
	if word == 0 {
		return "seen"
	}
	return fmt.Sprint("seen", word+1)
}

// makeEmbedded makes the embedded structs that a field belongs to and that are pointers.
func (f *file) makeEmbedded(member *field) {
	for _, selector := range embeddedPointers(member) {
		f.printf("if %s == nil {\n%[1]s = new(%s)\n}\n", selector.path, f.typeName(indirect(selector.typ)))
	}
}

// A selector is an expression for an embedded field.
type selector struct {
	path string
	typ  types.Type
}

// embeddedPointers returns the pointers on the way to a field.
func embeddedPointers(member *field) (all []selector) {
	for i, step := range member.path[:len(member.path)-1] {
		if _, ok := types.Unalias(step.Type()).(*types.Pointer); ok {
			outer := field{path: member.path[:i+1]}
			all = append(all, selector{"v." + outer.goName(), step.Type()})
		}
	}
	return all
}

// decode writes statements that decode into an expression, which must be addressable. quoted means
// that a number is in a string.
func (f *file) decode(to string, v *value, quoted bool) {
	if v.kind != kindLibrary {
		f.guardNamed(v.typ)
	}
	switch v.kind {
	case kindLibrary:
		f.printf("s.Value(&%s)\n", to)
	case kindStruct:
		f.printf("decodeJSON%s(s, &%s)\n", v.object.suffix, to)
	case kindByteArray:
		f.printf("s.ByteArray(%s[:])\n", to)
	case kindPointer:
		f.decodePointer(to, v, quoted)
	case kindSlice:
		f.decodeSlice(to, v)
	case kindArray:
		f.decodeArray(to, v)
	case kindMap:
		f.decodeMap(to, v)
	default:
		f.printf("%s = %s\n", to, f.read(v, quoted))
	}
}

// read returns an expression that reads a value without elements.
func (f *file) read(v *value, quoted bool) string {
	method, result, argument := "", "", ""
	switch v.kind {
	case kindBool:
		method, result = "Bool", "bool"
	case kindString:
		method, result = "String", "string"
	case kindInt:
		method, result, argument = "Int", "int64", v.bits
	case kindUint:
		method, result, argument = "Uint", "uint64", v.bits
	case kindFloat:
		method, result, argument = "Float", "float64", v.bits
	case kindBytes:
		method, result = "Bytes", "[]byte"
	case kindTime:
		return "s.Time()"
	}
	if argument == "strconv.IntSize" {
		argument = f.importName("strconv", "strconv") + ".IntSize"
	}
	if quoted {
		method = "Quoted" + method
	}
	call := fmt.Sprintf("s.%s(%s)", method, argument)
	if name := f.typeName(v.typ); name != result {
		return fmt.Sprintf("%s(%s)", name, call)
	}
	return call
}

func (f *file) decodePointer(to string, v *value, quoted bool) {
	f.printf("if s.Null() {\n%s = nil\n} else {\n", to)
	f.printf("if %s == nil {\n%[1]s = new(%s)\n}\n", to, f.typeName(v.elem.typ))
	if v.elem.kind == kindStruct {
		f.printf("decodeJSON%s(s, %s)\n", v.elem.object.suffix, to)
	} else {
		f.decode("(*"+to+")", v.elem, quoted)
	}
	f.printf("}\n")
}

// isSimple reports whether read handles a value.
func isSimple(v *value) bool {
	return slices.Contains([]kind{kindBool, kindString, kindInt, kindUint, kindFloat, kindBytes, kindTime}, v.kind)
}

func (f *file) decodeSlice(to string, v *value) {
	list, more, elem := f.local("list"), f.local("more"), f.typeName(v.elem.typ)
	f.printf("if s.Null() {\n%s = nil\n} else {\n%s := %[1]s[:0]\n", to, list)
	f.printf("for %s := s.Array(); %[1]s; %[1]s = s.NextElement() {\n", more)
	if isSimple(v.elem) {
		f.guardNamed(v.elem.typ)
		f.printf("%s = append(%[1]s, %s)\n", list, f.read(v.elem, false))
	} else {
		f.printf("%s = append(%[1]s, %s)\n", list, f.zero(v.elem, elem))
		f.decode(fmt.Sprintf("%s[len(%[1]s)-1]", list), v.elem, false)
	}
	f.printf("}\nif %s == nil {\n%[1]s = %s{}\n}\n%s = %[1]s\n}\n", list, f.typeName(v.typ), to)
}

// zero returns the zero value of a type with elements.
func (f *file) zero(v *value, name string) string {
	switch v.kind {
	case kindPointer, kindSlice, kindMap:
		return "nil"
	default:
		return name + "{}" // a struct or an array
	}
}

func (f *file) decodeArray(to string, v *value) {
	i, more := f.local("i"), f.local("more")
	f.printf("%s = %s{}\nif !s.Null() {\n%s := 0\n", to, f.typeName(v.typ), i)
	f.printf("for %s := s.Array(); %[1]s; %[1]s = s.NextElement() {\n", more)
	f.printf("if %s == len(%s) {\ns.Fail()\nbreak\n}\n", i, to)
	f.decode(fmt.Sprintf("%s[%s]", to, i), v.elem, false)
	f.printf("%s++\n}\nif %[1]s != len(%s) {\ns.Fail()\n}\n}\n", i, to)
}

func (f *file) decodeMap(to string, v *value) {
	members, more, key, elem := f.local("members"), f.local("more"), f.local("key"), f.local("elem")
	u := v.typ.Underlying().(*types.Map)
	keyType, name := f.typeName(u.Key()), f.typeName(v.typ)
	f.guardNamed(types.Unalias(u.Key()))
	f.printf("if s.Null() {\n%s = nil\n} else {\n%s := %[1]s\n", to, members)
	f.printf("if %s == nil {\n%[1]s = %s{}\n%s = %[1]s\n} else if len(%[1]s) > 0 {\ns.Fail()\n}\n", members, name, to)
	f.printf("for %s := s.Object(); %[1]s; %[1]s = s.NextMember() {\n", more)
	if keyType == "string" {
		f.printf("%s := s.Key()\n", key)
	} else {
		f.printf("%s := %s(s.Key())\n", key, keyType)
	}
	f.printf("if _, twice := %s[%s]; twice {\ns.Fail()\n}\n", members, key)
	if isSimple(v.elem) {
		f.guardNamed(v.elem.typ)
		f.printf("%s[%s] = %s\n", members, key, f.read(v.elem, false))
	} else {
		f.printf("var %s %s\n", elem, f.typeName(v.elem.typ))
		f.decode(elem, v.elem, false)
		f.printf("%s[%s] = %s\n", members, key, elem)
	}
	f.printf("}\n}\n")
}

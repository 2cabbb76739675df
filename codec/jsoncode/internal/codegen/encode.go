package codegen

import (
	"bytes"
	"fmt"
	"go/types"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/codec/jsoncode"
)

func (f *file) appendStruct(s *structure) {
	before := f.body
	f.n, f.failing, f.body = 0, false, bytes.Buffer{}
	f.members(s)
	body := f.body.Bytes()
	f.body = before
	depth := ""
	if s.recursive {
		depth = ", depth int"
	}
	f.printf("\nfunc appendJSON%s(b []byte, v *%s%s) ([]byte, error) {\n", s.suffix, f.typeName(s.typ), depth)
	if s.recursive {
		f.printf("if depth == {jsoncode}.MaxDepth {\nreturn b, {jsoncode}.ErrFallback\n}\n")
	}
	if f.failing {
		f.printf("var err error\n")
	}
	f.body.Write(body)
	f.printf("}\n")
}

// members writes the statements that encode the members of a struct. If its first member may be
// missing, the comma before the first one that is present becomes the opening brace.
func (f *file) members(s *structure) {
	if len(s.fields) == 0 {
		f.literal("{}")
		f.printf("return b, nil\n")
		return
	}
	certain := !mayBeMissing(s.fields[0])
	if !certain {
		f.printf("begin := len(b)\n")
	}
	for i, member := range s.fields {
		delimiter := ","
		if i == 0 && certain {
			delimiter = "{"
		}
		f.member(s, member, delimiter+string(jsoncode.AppendString(nil, member.Name))+":")
	}
	if !certain {
		f.printf("if len(b) == begin {\n")
		f.literal("{}")
		f.printf("return b, nil\n}\nb[begin] = '{'\n")
	}
	f.printf("return append(b, '}'), nil\n")
}

// mayBeMissing reports whether a member is missing in the JSON of some values.
func mayBeMissing(member *field) bool {
	return member.OmitZero || member.OmitEmpty || len(embeddedPointers(member)) > 0
}

// member writes the statements that encode a member. prefix is what precedes the value.
func (f *file) member(s *structure, member *field, prefix string) {
	expression := "v." + member.goName()
	var conditions []string
	for _, pointer := range embeddedPointers(member) {
		conditions = append(conditions, pointer.path+" != nil")
	}
	if member.OmitZero {
		conditions = append(conditions, f.notZero(expression, member.value))
	}
	check := false // of the encoded value, whether it is empty
	if member.OmitEmpty {
		var condition string
		if condition, check = notEmpty(expression, member.value); condition != "" {
			conditions = append(conditions, condition)
		}
	}
	conditions = slices.Compact(conditions) // omitzero and omitempty may have the same
	if len(conditions) > 0 {
		f.printf("if %s {\n", strings.Join(conditions, " && "))
	}
	var before, begin string
	if check {
		before, begin = f.local("before"), f.local("begin")
		f.printf("%s := len(b)\n", before)
	}
	f.literal(prefix)
	if check {
		f.printf("%s := len(b)\n", begin)
	}
	f.append(s, expression, member.value, member.Quoted)
	if check {
		f.printf("if {jsoncode}.IsEmpty(b[%s:]) {\nb = b[:%s]\n}\n", begin, before)
	}
	if len(conditions) > 0 {
		f.printf("}\n")
	}
}

// notZero returns the condition under which omitzero keeps a member.
func (f *file) notZero(expression string, v *value) string {
	if isZeroer(v.typ) {
		if _, ok := v.typ.Underlying().(*types.Pointer); ok {
			return fmt.Sprintf("%s != nil && !%[1]s.IsZero()", expression)
		}
		return fmt.Sprintf("!%s.IsZero()", expression)
	}
	switch u := v.typ.Underlying().(type) {
	case *types.Pointer, *types.Slice, *types.Map, *types.Interface:
		return expression + " != nil"
	case *types.Basic:
		switch {
		case u.Info()&types.IsBoolean != 0:
			return fmt.Sprintf("bool(%s)", expression)
		case u.Info()&types.IsString != 0:
			return expression + ` != ""`
		default:
			return expression + " != 0"
		}
	}
	// For structs and arrays, reflection has rules of its own.
	return fmt.Sprintf("!%s.IsZero(&%s)", f.importName(runtimePath, "jsoncode"), expression)
}

// isZeroer reports whether a type or a pointer to it has the method IsZero() bool.
func isZeroer(t types.Type) bool {
	if p, ok := t.(*types.Pointer); ok {
		if _, ok := p.Elem().Underlying().(*types.Pointer); ok {
			return false
		}
		t = p.Elem()
	}
	object, _, _ := types.LookupFieldOrMethod(t, true, nil, "IsZero")
	method, ok := object.(*types.Func)
	if !ok {
		return false
	}
	signature := method.Signature()
	return signature.Params().Len() == 0 && signature.Results().Len() == 1 && types.Identical(signature.Results().At(0).Type(), types.Typ[types.Bool])
}

// notEmpty returns the condition that a member which omitempty keeps fulfills, if there is one that can be known
// before encoding, and whether the encoded value must be checked.
func notEmpty(expression string, v *value) (condition string, check bool) {
	switch v.kind {
	case kindBool, kindInt, kindUint, kindFloat, kindTime:
		return "", false
	case kindString, kindBytes, kindSlice, kindMap:
		return fmt.Sprintf("len(%s) > 0", expression), false
	case kindByteArray, kindArray:
		if v.length > 0 {
			return "", false
		}
		return "false", false
	case kindPointer:
		return expression + " != nil", mayBeEmpty(v.elem)
	default:
		return "", true
	}
}

// mayBeEmpty reports whether a value may be encoded as null, "", [] or {}.
func mayBeEmpty(v *value) bool {
	switch v.kind {
	case kindBool, kindInt, kindUint, kindFloat, kindTime:
		return false
	case kindArray, kindByteArray:
		return v.length == 0
	default:
		return true
	}
}

func (f *file) literal(text string) {
	if len(text) == 1 {
		f.printf("b = append(b, %q)\n", text[0])
		return
	}
	f.printf("b = append(b, `%s`...)\n", text)
}

// append writes statements that append the JSON of an expression, which must be addressable.
func (f *file) append(s *structure, from string, v *value, quoted bool) {
	if quoted && v.kind != kindPointer {
		f.literal(`"`)
		defer f.literal(`"`)
	}
	switch v.kind {
	case kindLibrary:
		f.try("{jsoncode}.AppendValue(b, &%s)", from)
	case kindBool:
		f.printf("b = {strconv}.AppendBool(b, %s)\n", f.convert(from, v, "bool"))
	case kindString:
		f.printf("b = {jsoncode}.AppendString(b, %s)\n", f.convert(from, v, "string"))
	case kindInt:
		f.printf("b = {strconv}.AppendInt(b, %s, 10)\n", f.convert(from, v, "int64"))
	case kindUint:
		f.printf("b = {strconv}.AppendUint(b, %s, 10)\n", f.convert(from, v, "uint64"))
	case kindFloat:
		f.try("{jsoncode}.AppendFloat(b, %s, %s)", f.convert(from, v, "float64"), v.bits)
	case kindBytes:
		f.printf("b = {jsoncode}.AppendBytes(b, %s)\n", from)
	case kindByteArray:
		f.printf("b = {jsoncode}.AppendBytes(b, %s[:])\n", from)
	case kindTime:
		f.try("{jsoncode}.AppendTime(b, %s)", from)
	case kindStruct:
		f.try("appendJSON%s(b, &%s%s)", v.object.suffix, from, f.nextDepth(s, v.object))
	case kindPointer:
		f.appendPointer(s, from, v, quoted)
	case kindSlice, kindArray:
		f.appendList(s, from, v)
	case kindMap:
		f.appendMap(s, from, v)
	}
}

// try writes a call that may return an error.
func (f *file) try(pattern string, args ...any) {
	f.failing = true
	f.printf("if b, err = "+pattern+"; err != nil {\nreturn b, err\n}\n", args...)
}

// nextDepth returns the argument with the depth of a contained structure.
func (f *file) nextDepth(s, contained *structure) string {
	if s.recursive {
		return depthArgument(contained, "depth+1")
	}
	return depthArgument(contained, "0")
}

// convert returns a conversion to a predeclared type, if one is needed.
func (f *file) convert(from string, v *value, to string) string {
	if f.typeName(v.typ) == to {
		return from
	}
	return fmt.Sprintf("%s(%s)", to, from)
}

func (f *file) appendPointer(s *structure, from string, v *value, quoted bool) {
	f.printf("if %s == nil {\n", from)
	f.literal("null")
	f.printf("} else {\n")
	if v.elem.kind == kindStruct {
		f.try("appendJSON%s(b, %s%s)", v.elem.object.suffix, from, f.nextDepth(s, v.elem.object))
	} else {
		f.append(s, "(*"+from+")", v.elem, quoted)
	}
	f.printf("}\n")
}

func (f *file) appendList(s *structure, from string, v *value) {
	i := f.local("i")
	f.literal("[")
	f.printf("for %s := range %s {\nif %[1]s > 0 {\n", i, from)
	f.literal(",")
	f.printf("}\n")
	f.append(s, fmt.Sprintf("%s[%s]", from, i), v.elem, false)
	f.printf("}\n")
	f.literal("]")
}

// appendMap writes the members in the order of their keys. Up to 8 keys are sorted without an
// allocation.
func (f *file) appendMap(s *structure, from string, v *value) {
	keys, i, key, elem := f.local("keys"), f.local("i"), f.local("key"), f.local("elem")
	u := v.typ.Underlying().(*types.Map)
	f.literal("{")
	f.printf("var %s [8]%s\n", keys, f.typeName(u.Key()))
	f.printf("for %s, %s := range {jsoncode}.SortedKeys(%s[:0], %s) {\nif %[1]s > 0 {\n", i, key, keys, from)
	f.literal(",")
	f.printf("}\n")
	f.try("{jsoncode}.AppendKey(b, %s)", f.convert(key, &value{typ: u.Key()}, "string"))
	f.printf("%s := %s[%s]\n", elem, from, key)
	f.append(s, elem, v.elem, false)
	f.printf("}\n")
	f.literal("}")
}

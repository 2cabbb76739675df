package contract

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"
)

// This file has the types of schemas and the names in Kotlin.

// kotlinNull is the type of null alone.
const kotlinNull = "Nothing?"

func (k *kotlin) reference(name string) string {
	def := k.doc.Defs[name]
	if len(k.sealed(def)) > 0 && slices.ContainsFunc(def.AnyOf, func(s *jsonschema.Schema) bool { return s.Type == "null" }) {
		return k.defs[name] + "?"
	}
	return k.defs[name]
}

// literals returns the type that all values have: only definitions have values of their own.
func (k *kotlin) literals(values []any, _ bool) string {
	var types []string
	for _, value := range values {
		switch value := value.(type) {
		case nil:
			types = append(types, kotlinNull)
		case string:
			types = append(types, "String")
		case bool:
			types = append(types, "Boolean")
		case float64:
			if value == float64(int64(value)) {
				types = append(types, "Long")
			} else {
				types = append(types, "Double")
			}
		default:
			return "JsonElement"
		}
	}
	return k.union(types)
}

func (k *kotlin) basic(kind basicType) string {
	switch kind {
	case null:
		return kotlinNull
	case boolean:
		return "Boolean"
	case integer:
		return "Long"
	case number:
		return "Double"
	case text, integerText, numberText:
		return "String"
	case timestamp:
		return "Timestamp"
	case base64:
		return "Base64"
	default:
		return "JsonElement"
	}
}

func (k *kotlin) list(item string, _ int) string { return "List<" + item + ">" }

func (k *kotlin) dictionary(values string) string {
	if values == "JsonElement" {
		return "JsonObject"
	}
	return "Map<String, " + values + ">"
}

func (k *kotlin) union(types []string) string {
	var distinct []string
	nullable := false
	for _, typ := range types {
		switch {
		case typ == kotlinNull:
			nullable = true
		case !slices.Contains(distinct, typ):
			distinct = append(distinct, typ)
		}
	}
	slices.Sort(distinct)
	switch {
	case nullable && len(distinct) == 0:
		return kotlinNull
	case slices.Equal(distinct, []string{"Double", "Long"}):
		distinct = distinct[:1]
	case len(distinct) != 1:
		return "JsonElement" // which has null
	}
	if nullable {
		return kotlinNullable(distinct[0])
	}
	return distinct[0]
}

// object writes a class of its own.
func (k *kotlin) object(s *jsonschema.Schema, at spot) string {
	name := k.names.unique(capitalize(identifier(at.name)))
	k.dataClass(name, s, nil)
	return name
}

func kotlinNullable(typ string) string { return strings.TrimSuffix(typ, "?") + "?" }

// isTextEnum reports whether a definition is one of some texts.
func isTextEnum(def *jsonschema.Schema) bool {
	isText := func(value any) bool { _, is := value.(string); return is }
	return len(def.Enum) > 0 && !slices.ContainsFunc(def.Enum, func(value any) bool { return !isText(value) })
}

// recursive reports whether a definition without named members contains itself, which an alias cannot.
func (k *kotlin) recursive(name string) bool {
	seen := map[string]bool{}
	var reaches func(s *jsonschema.Schema) bool
	reaches = func(s *jsonschema.Schema) bool {
		if next, found := strings.CutPrefix(s.Ref, refPrefix); found {
			if next == name {
				return true
			}
			if seen[next] || isStruct(k.doc.Defs[next]) {
				return false
			}
			seen[next] = true
			return reaches(k.doc.Defs[next])
		}
		for child := range children(s) {
			if reaches(child) {
				return true
			}
		}
		return false
	}
	return reaches(k.doc.Defs[name])
}

// kotlinNames are names that are used.
type kotlinNames map[string]bool

// unique returns a name that nothing else has.
func (names kotlinNames) unique(name string) string {
	for names[name] {
		name += "_"
	}
	names[name] = true
	return name
}

// property returns the name of a property for a member. Properties whose names differ in the case of the first letter have the same
// getter in Java.
func (names kotlinNames) property(member string) string {
	name := kotlinIdentifier(identifier(member))
	for names[capitalize(name)] {
		name += "_"
	}
	names[capitalize(name)] = true
	return name
}

// kotlinReserved are the names that the file uses itself.
//
//nolint:gochecknoglobals // never changed
var kotlinReserved = []string{
	"AutoCloseable", "Base64", "Boolean", "Contract", "DeserializationStrategy", "Double", "ErrorCode", "Flow", "Int", "JsonContentPolymorphicSerializer",
	"JsonElement", "JsonObject", "JsonPrimitive", "JvmInline", "List", "Long", "Map", "Nothing", "Required", "SerialName", "Serializable",
	"SerializationException", "String", "Timestamp", "Unit",
}

//nolint:gochecknoglobals // never changed
var kotlinKeywords = []string{
	"as", "break", "class", "continue", "do", "else", "false", "for", "fun", "if", "in", "interface", "is", "null", "object", "package",
	"return", "super", "this", "throw", "true", "try", "typealias", "typeof", "val", "var", "when", "while",
}

// kotlinIdentifier returns a name that is no keyword, and begins with a letter. Quotation marks would permit keywords, but not the
// property class, whose getter every object has.
func kotlinIdentifier(name string) string {
	switch {
	case slices.Contains(kotlinKeywords, name):
		return name + "_"
	case strings.Trim(name, "_") == "", unicode.IsDigit(rune(name[0])):
		return "n" + name
	default:
		return name
	}
}

// kotlinConstant returns the name of a constant for a text: IN_PROGRESS for in-progress.
func kotlinConstant(text string) string {
	return kotlinIdentifier(strings.ToUpper(strings.Join(kotlinWords(text), "_")))
}

// kotlinMethod returns the name of a method for a type of messages: joinRoom for JOIN_ROOM.
func kotlinMethod(typ string) string {
	return kotlinIdentifier(lowerFirst(kotlinClass(typ)))
}

// kotlinClass returns the name of a class for a type of messages or a code: JoinRoom for JOIN_ROOM.
func kotlinClass(typ string) string {
	var b strings.Builder
	for _, word := range kotlinWords(typ) {
		if word == strings.ToUpper(word) {
			word = strings.ToLower(word)
		}
		b.WriteString(capitalize(word))
	}
	return capitalize(kotlinIdentifier(b.String()))
}

func lowerFirst(name string) string {
	first, size := utf8.DecodeRuneInString(name)
	return string(unicode.ToLower(first)) + name[size:]
}

// kotlinWords returns what is between characters that no name has.
func kotlinWords(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == '_' || identifier(string(r)) == "" })
}

// kotlinText returns a text in quotation marks.
func kotlinText(text string) string { return `"` + kotlinEscape(text) + `"` }

// kotlinEscape returns a text as it is between quotation marks.
func kotlinEscape(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case strings.ContainsRune(`"\$`, r):
			b.WriteString(`\` + string(r))
		case r < ' ' || r == 0x7f:
			code := strconv.FormatInt(int64(r), 16)
			b.WriteString(`\u` + strings.Repeat("0", 4-len(code)) + code)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// kotlinDescription returns the description of a schema, with what its type does not say.
func kotlinDescription(s *jsonschema.Schema) string {
	switch {
	case len(s.Enum) > 0:
		var values []string
		for _, value := range s.Enum {
			values = append(values, literal(value))
		}
		return strings.TrimSpace(s.Description + "\n\nOne of " + strings.Join(values, ", ") + ".")
	case hasOtherMembers(s) && isStruct(s):
		return strings.TrimSpace(s.Description + "\n\nIt may have other members.")
	default:
		return s.Description
	}
}

// kotlinDoc returns a comment with the documentation of what follows. Comments contain others in Kotlin.
func kotlinDoc(indent, text string) string {
	text = strings.NewReplacer("*/", "*&#47;", "/*", "&#47;*").Replace(strings.TrimSpace(text))
	switch {
	case text == "":
		return ""
	case !strings.Contains(text, "\n"):
		return indent + "/** " + text + " */\n"
	}
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		b.WriteString(strings.TrimRight(indent+" * "+strings.TrimSpace(line), " ") + "\n")
	}
	return indent + "/**\n" + b.String() + indent + " */\n"
}

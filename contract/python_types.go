package contract

import (
	"regexp"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// This file has the types of schemas in Python.

func (p *python) reference(name string) string { return pythonName(name) }

func (p *python) literals(values []any, open bool) string {
	typ := pythonLiterals(values)
	if open {
		typ += " | str"
	}
	return typ
}

func (p *python) basic(kind basicType) string {
	switch kind {
	case nothing:
		return "_t.NoReturn"
	case null:
		return "None"
	case boolean:
		return "bool"
	case integer:
		return "int"
	case number:
		return "float"
	case text, integerText, numberText:
		return "str"
	case timestamp:
		return "Timestamp"
	case base64:
		return "Base64"
	default:
		return "_t.Any"
	}
}

func (p *python) list(item string, _ int) string { return "list[" + item + "]" }

func (p *python) dictionary(values string) string { return "dict[str, " + values + "]" }

func (p *python) union(types []string) string { return pythonUnion(types) }

// object writes a TypedDict of its own.
func (p *python) object(s *jsonschema.Schema, at spot) string {
	name := p.unique(pythonName(capitalize(identifier(at.name))))
	p.typedDict(name, s)
	return name
}

// unique returns a name that nothing else has.
func (p *python) unique(name string) string {
	for p.names[name] {
		name += "_"
	}
	p.names[name] = true
	return name
}

var (
	pythonIdentifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	jsonWord         = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|null|true|false`)
)

//nolint:gochecknoglobals // never changed
var pythonKeywords = map[string]bool{
	"False": true, "None": true, "True": true, "and": true, "as": true, "assert": true, "async": true, "await": true, "break": true,
	"class": true, "continue": true, "def": true, "del": true, "elif": true, "else": true, "except": true, "finally": true, "for": true,
	"from": true, "global": true, "if": true, "import": true, "in": true, "is": true, "lambda": true, "nonlocal": true, "not": true,
	"or": true, "pass": true, "raise": true, "return": true, "try": true, "while": true, "with": true, "yield": true,
}

//nolint:gochecknoglobals // never changed
var pythonTypes = map[string]bool{
	"bool": true, "dict": true, "float": true, "int": true, "list": true, "str": true,
	"Base64": true, "Timestamp": true, "_M": true, "_NotRequired": true, "_t": true,
}

// pythonName returns the name of a type, which may be a keyword of Python alone.
func pythonName(name string) string {
	if pythonKeywords[name] {
		return name + "_"
	}
	return name
}

// pythonValue returns a JSON value as Python has it.
func pythonValue(value any) string {
	return jsonWord.ReplaceAllStringFunc(strings.TrimSpace(string(encode(value))), func(word string) string {
		switch word {
		case "null":
			return "None"
		case "true":
			return "True"
		case "false":
			return "False"
		default:
			return word
		}
	})
}

// pythonLiterals returns the type of some values.
func pythonLiterals(values []any) string {
	var all []string
	for _, value := range values {
		switch value := value.(type) {
		case nil:
			all = append(all, "None")
		case string, bool:
			all = append(all, "_t.Literal["+pythonValue(value)+"]")
		case float64:
			if text := pythonValue(value); strings.ContainsAny(text, ".eE") {
				all = append(all, "float") // which cannot be a literal
			} else {
				all = append(all, "_t.Literal["+text+"]")
			}
		default:
			return "_t.Any"
		}
	}
	return strings.ReplaceAll(pythonUnion(all), "] | _t.Literal[", ", ")
}

// pythonUnion returns a union without repetition.
func pythonUnion(types []string) string {
	var distinct []string
	for _, typ := range types {
		if typ == "_t.Any" {
			return typ
		}
		if !slices.Contains(distinct, typ) {
			distinct = append(distinct, typ)
		}
	}
	if len(distinct) == 0 {
		return "_t.Any"
	}
	return strings.Join(distinct, " | ")
}

// pythonPlain matches types that name nothing which follows them.
var pythonPlain = regexp.MustCompile(`^(_t\.Literal\[[^\[\]]*\]|int|str|float|bool|_t\.Any)( \| str)?$`)

// quoted returns a type as a text, so that it may name what follows it.
func quoted(typ string) string {
	if pythonPlain.MatchString(typ) {
		return typ
	}
	return literal(typ)
}

func pythonComment(indent, text string) string {
	var b strings.Builder
	if text = strings.TrimSpace(text); text != "" {
		for line := range strings.SplitSeq(text, "\n") {
			b.WriteString(strings.TrimRight(indent+"# "+strings.TrimSpace(line), " ") + "\n")
		}
	}
	return b.String()
}

// docstring returns the documentation of a class.
func docstring(text string) string {
	if text = strings.TrimSpace(text); text == "" {
		return ""
	}
	text = strings.NewReplacer(`\`, `\\`, `"""`, `\"\"\"`).Replace(text)
	if before, found := strings.CutSuffix(text, `"`); found {
		text = before + `\"`
	}
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, strings.TrimSpace(line))
	}
	end := ""
	if len(lines) > 1 {
		end = "\n    "
	}
	return "    \"\"\"" + strings.ReplaceAll(strings.Join(lines, "\n    "), "\n    \n", "\n\n") + end + "\"\"\"\n\n"
}

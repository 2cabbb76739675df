package internal_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/format"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
)

var update = flag.Bool("update", false, "writes what is generated from docs/protocol.json")

// A specification is the protocol as data: docs/protocol.json.
type specification struct {
	Version  int           `json:"version"`
	Meta     []field       `json:"meta"`
	Messages []messageType `json:"messages"`
	Types    []structType  `json:"types"`

	CloseCodes json.RawMessage `json:"closeCodes"` // see internal/rules
}

type messageType struct {
	Type          string `json:"type"`
	Go            string `json:"go"` // name in Go
	From          string `json:"from"`
	Kind          string `json:"kind"`
	Reply         string `json:"reply"`
	Payload       string `json:"payload"`
	Section       int    `json:"section"`
	Greeted       bool   `json:"greeted"`       // only clients that have greeted receive it
	CorrelationID bool   `json:"correlationId"` // it is about the message with its ID
	Meaning       string `json:"meaning"`
}

type structType struct {
	Name   string   `json:"name"`
	Doc    string   `json:"doc"`
	Embeds []string `json:"embeds"`
	Fields []field  `json:"fields"`
}

type field struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	Optional bool   `json:"optional"`
	Min      *int64 `json:"min"`
	MinBytes int    `json:"minBytes"`
	MaxBytes int    `json:"maxBytes"`
	From     string `json:"from"`
	Meaning  string `json:"meaning"`
}

func readSpecification(t *testing.T) *specification {
	text, err := os.ReadFile("../docs/protocol.json")
	require.NoError(t, err)
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	s := &specification{}
	require.NoError(t, decoder.Decode(s))
	return s
}

// TestSpecification_IsInTheCodeAndTheDocuments compares what is generated with the files.
func TestSpecification_IsInTheCodeAndTheDocuments(t *testing.T) {
	s := readSpecification(t)
	check(t, "protocol/names.go", s.names(t))
	check(t, "protocol/messages.go", s.structs(t))
	check(t, "../clients/ts/src/protocol.ts", s.typeScript())
	page, err := os.ReadFile("../docs/protocol.md")
	require.NoError(t, err)
	check(t, "../docs/protocol.md", s.fillTables(t, string(page)))
}

// check compares a file with its generated text, or writes it.
func check(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o600))
		return
	}
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, want, string(got), "%s is not what docs/protocol.json says: run go test ./internal -update", path)
}

// fillTables replaces the text between <!-- protocol: NAME --> and <!-- end --> by the table of that name.
func (s *specification) fillTables(t *testing.T, page string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(page, "<!-- protocol: ")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, rest, found := strings.Cut(rest, " -->\n")
		require.True(t, found)
		_, rest, found = strings.Cut(rest, "<!-- end -->")
		require.True(t, found, name)
		fmt.Fprintf(&b, "<!-- protocol: %s -->\n%s<!-- end -->", name, s.table(t, name))
		page = rest
	}
}

func (s *specification) table(t *testing.T, name string) string {
	switch name {
	case "version":
		return fmt.Sprintf("This is version %d of the protocol.\n", s.Version)
	case "messages":
		return s.messageTable()
	case "meta":
		return "| member | from | type | meaning |\n| --- | --- | --- | --- |\n" + rows(s.Meta, func(f field) string {
			return fmt.Sprintf("| `%s` | %s | %s | %s |\n", f.Name, f.From, f.jsonType(), f.Meaning)
		})
	}
	return "| member | type | meaning |\n| --- | --- | --- |\n" + rows(s.fields(t, name), func(f field) string {
		return fmt.Sprintf("| `%s` | %s | %s |\n", f.Name, f.jsonType(), f.Meaning)
	})
}

func rows(fields []field, row func(field) string) string {
	var b strings.Builder
	for _, f := range fields {
		b.WriteString(row(f))
	}
	return b.String()
}

func (s *specification) messageTable() string {
	var b strings.Builder
	b.WriteString("| type | from | kind | members of the payload | section | meaning |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, m := range s.Messages {
		kind := m.Kind
		if m.Reply != "" {
			kind += ", answered by `" + m.Reply + "`"
		}
		if m.Greeted {
			kind += ", to clients that have greeted"
		}
		var members []string
		for _, f := range s.membersOf(m.Payload) {
			name := "`" + f.Name + "`"
			if f.Optional {
				name += "?"
			}
			members = append(members, name)
		}
		payload := strings.Join(members, ", ")
		if payload == "" {
			payload = "none"
		}
		if m.Go == "Progress" {
			payload = "of the application"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %d | %s |\n", m.Type, m.From, kind, payload, m.Section, m.Meaning)
	}
	return b.String()
}

// fields returns the members of a struct, with those of embedded ones.
func (s *specification) fields(t *testing.T, name string) []field {
	fields := s.membersOf(name)
	require.NotEmpty(t, fields, "docs/protocol.json has no type %s with fields", name)
	return fields
}

func (s *specification) membersOf(name string) (fields []field) {
	for _, typ := range s.Types {
		if typ.Name != name {
			continue
		}
		for _, embedded := range typ.Embeds {
			optional := strings.HasSuffix(embedded, "?")
			for _, f := range s.membersOf(strings.TrimSuffix(embedded, "?")) {
				f.Optional = f.Optional || optional
				fields = append(fields, f)
			}
		}
		if len(typ.Embeds) > 0 && strings.HasSuffix(typ.Embeds[0], "?") {
			return append(typ.Fields, fields...)
		}
		return append(fields, typ.Fields...)
	}
	return nil
}

// jsonType returns the type of a member for readers.
func (f field) jsonType() string {
	text := jsonTypes(f.Type)
	switch {
	case f.MinBytes > 0:
		text += fmt.Sprintf(" of %d to %d bytes", f.MinBytes, f.MaxBytes)
	case f.MaxBytes > 0:
		text += fmt.Sprintf(" of at most %d bytes", f.MaxBytes)
	case f.Min != nil:
		text += fmt.Sprintf(" from %d to 2^53-1", *f.Min)
	}
	if f.Optional {
		text += ", optional"
	}
	return text
}

func jsonTypes(typ string) string {
	switch {
	case strings.HasSuffix(typ, "[]"):
		return "array of " + strings.TrimPrefix(jsonTypes(strings.TrimSuffix(typ, "[]")), "a ")
	case strings.HasPrefix(typ, "map<"):
		return "object: " + jsonTypes(strings.TrimSuffix(typ[len("map<"):], ">")) + " by type"
	case strings.HasSuffix(typ, "?"):
		return strings.Replace(jsonTypes(strings.TrimSuffix(typ, "?")), "integer", "integer or `null`", 1)
	}
	if text, ok := map[string]string{
		"string": "string", "code": "string", "boolean": "boolean", "integer": "integer", "int": "integer", "any": "object",
		"json": "integer or `null`", "offset": "integer from 0 to 2^53-1",
	}[typ]; ok {
		return text
	}
	return typ + " (see below)"
}

const generatedFrom = "// Code generated from docs/protocol.json. DO NOT EDIT.\n\n"

// names returns the constants.
func (s *specification) names(t *testing.T) string {
	var b strings.Builder
	b.WriteString(generatedFrom + "package protocol\n\n")
	fmt.Fprintf(&b, "// Version is the highest version of the protocol that this package knows.\nconst Version = %d\n\n", s.Version)
	b.WriteString("// Message types of the protocol.\nconst (\n")
	for _, m := range s.Messages {
		fmt.Fprintf(&b, "%sType%s = %q\n", comment(origins[m.From]+": "+m.Meaning), m.Go, m.Type)
	}
	b.WriteString(")\n")
	return formatted(t, b.String())
}

var origins = map[string]string{"client": "from clients", "server": "from the server", "both": "from both"}

// comment returns lines of a comment, without the code marks of Markdown.
func comment(text string) string {
	var b strings.Builder
	length := 0
	for word := range strings.FieldsSeq(strings.ReplaceAll(text, "`", "")) {
		switch {
		case length == 0:
			b.WriteString("// " + word)
		case length+len(word) > 95:
			b.WriteString("\n// " + word)
			length = 0
		default:
			b.WriteString(" " + word)
		}
		length += len(word) + 1
	}
	return b.String() + "\n"
}

// structs returns the structs of the payloads and their methods.
func (s *specification) structs(t *testing.T) string {
	var b strings.Builder
	b.WriteString(generatedFrom + "package protocol\n\nimport (\n\"github.com/penstock-go/penstock/errors\"\n\"github.com/penstock-go/penstock/internal/jsonv2\"\n)\n\n")
	for _, typ := range s.Types {
		fmt.Fprintf(&b, "// %s\ntype %s struct {\n", strings.ReplaceAll(typ.Doc, "\n", "\n// "), typ.Name)
		if len(typ.Embeds) > 0 && !strings.HasSuffix(typ.Embeds[0], "?") {
			writeEmbeds(&b, typ.Embeds)
		}
		for _, f := range typ.Fields {
			tag := f.Name
			if f.Optional {
				tag += ",omitzero"
			}
			fmt.Fprintf(&b, "%s%s %s `json:%q`\n", comment(f.Meaning), goName(f.Name), goType(f.Type), tag)
		}
		if len(typ.Embeds) > 0 && strings.HasSuffix(typ.Embeds[0], "?") {
			writeEmbeds(&b, typ.Embeds)
		}
		b.WriteString("}\n\n")
		for _, m := range s.Messages {
			if m.Payload == typ.Name && !strings.HasSuffix(m.Type, "ERROR") {
				fmt.Fprintf(&b, "// MessageType returns the type of the message.\nfunc (%s) MessageType() string { return Type%s }\nfunc (%s) protocol() {}\n\n", typ.Name, m.Go, typ.Name)
			}
		}
	}
	return formatted(t, b.String())
}

func writeEmbeds(b *strings.Builder, embeds []string) {
	for _, name := range embeds {
		if inner, ok := strings.CutSuffix(name, "?"); ok {
			name = "*" + inner
		}
		fmt.Fprintln(b, name)
	}
	b.WriteString("\n")
}

func goName(name string) string {
	name = strings.ToUpper(name[:1]) + name[1:]
	if strings.HasSuffix(name, "Id") {
		name = name[:len(name)-1] + "D"
	}
	return name
}

func goType(typ string) string {
	switch {
	case strings.HasSuffix(typ, "[]"):
		return "[]" + goType(strings.TrimSuffix(typ, "[]"))
	case strings.HasPrefix(typ, "map<"):
		return "map[string]" + goType(strings.TrimSuffix(typ[len("map<"):], ">"))
	case strings.HasSuffix(typ, "?"):
		return "*" + goType(strings.TrimSuffix(typ, "?"))
	}
	if name, ok := map[string]string{
		"code": "errors.Code", "boolean": "bool", "integer": "int64", "json": "jsonv2.Value", "offset": "uint64",
	}[typ]; ok {
		return name
	}
	return typ
}

func formatted(t *testing.T, code string) string {
	text, err := format.Source([]byte(code))
	require.NoError(t, err, "%s", code)
	return string(text)
}

// typeScript returns the types of the payloads. They cost no bytes in a bundle.
func (s *specification) typeScript() string {
	var b strings.Builder
	b.WriteString(generatedFrom)
	for _, typ := range s.Types {
		var bases []string
		for _, name := range typ.Embeds {
			if inner, ok := strings.CutSuffix(name, "?"); ok {
				name = "Partial<" + inner + ">"
			}
			bases = append(bases, name)
		}
		extends := ""
		if bases != nil {
			extends = " extends " + strings.Join(bases, ", ")
		}
		fmt.Fprintf(&b, "export interface %s%s {\n", typ.Name, extends)
		for _, f := range typ.Fields {
			mark := ""
			if f.Optional {
				mark = "?"
			}
			fmt.Fprintf(&b, "    %s%s: %s;\n", f.Name, mark, tsType(f.Type))
		}
		b.WriteString("}\n\n")
	}
	b.WriteString("/** The payloads of the messages that have one, by type. */\nexport interface Payloads {\n")
	for _, m := range s.Messages {
		if m.Payload != "" {
			fmt.Fprintf(&b, "    %s: %s;\n", tsKey(m.Type), m.Payload)
		}
	}
	b.WriteString("}\n\n/** The types of the replies to the calls of the protocol. */\nexport interface Replies {\n")
	for _, m := range s.Messages {
		if m.Reply != "" {
			fmt.Fprintf(&b, "    %s: %q;\n", tsKey(m.Type), m.Reply)
		}
	}
	b.WriteString("}\n")
	return b.String()
}

func tsKey(typ string) string {
	if strings.ContainsAny(typ, "$:-") {
		return fmt.Sprintf("%q", typ)
	}
	return typ
}

func tsType(typ string) string {
	switch {
	case strings.HasSuffix(typ, "?[]"):
		return tsType(strings.TrimSuffix(typ, "?[]")) + "[]"
	case strings.HasSuffix(typ, "[]"):
		return tsType(strings.TrimSuffix(typ, "[]")) + "[]"
	case typ == "map<integer?>":
		return "Record<string, number | null>"
	case strings.HasPrefix(typ, "map<"):
		return "Record<string, " + tsType(strings.TrimSuffix(typ[len("map<"):], ">")) + ">"
	case strings.HasSuffix(typ, "?"):
		return tsType(strings.TrimSuffix(typ, "?"))
	}
	if name, ok := map[string]string{
		"code": "string", "integer": "number", "int": "number", "json": "number | null", "offset": "number", "any": "Record<string, unknown>",
	}[typ]; ok {
		return name
	}
	return typ
}

// TestLimitDetails_AreThoseOfPackageErrors compares what Go programs read with what is sent.
func TestLimitDetails_AreThoseOfPackageErrors(t *testing.T) {
	public, sent := reflect.TypeFor[errors.LimitDetails](), reflect.TypeFor[protocol.LimitDetails]()
	require.Equal(t, sent.NumField(), public.NumField())
	for i := range sent.NumField() {
		want, got := sent.Field(i), public.Field(i)
		assert.Equal(t, []any{want.Name, want.Type, want.Tag}, []any{got.Name, got.Type, got.Tag})
	}
}

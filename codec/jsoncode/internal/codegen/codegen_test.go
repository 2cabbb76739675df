package codegen_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/codec/jsoncode/internal/codegen"
)

const output = "penstock_json.go"

// writePackage writes a package in a directory of this module, so that its imports are found.
func writePackage(t *testing.T, source string) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp(".", "_package") //nolint:usetesting // inside the module
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	writeFile(t, dir, "messages.go", source)
	return dir
}

func writeFile(t *testing.T, dir, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
}

// build compiles a package and returns what the compiler reports.
func build(dir string) string {
	out, _ := exec.Command("go", "build", "./"+dir).CombinedOutput()
	return string(out)
}

func TestGenerate_CommittedFilesAreUpToDate(t *testing.T) {
	for _, dir := range []string{"../../../../codec/jsoncode/internal/kinds"} {
		code, left, err := codegen.Generate(dir, output, nil)
		require.NoError(t, err)
		assert.Empty(t, left)
		committed, err := os.ReadFile(filepath.Join(dir, output))
		require.NoError(t, err)
		assert.Equal(t, string(committed), string(code), "%s: run go generate in the directory", dir)
	}
}

const chat = `package chat

type Say struct {
	Room Room ` + "`json:\"room\"`" + `
	Kind Kind
}

type (
	Room string
	Kind uint8
)

func (Say) MessageType() string { return "SAY" }

func decode(p []byte) (m Say, err error) { return m, m.DecodeJSON(p) }
`

func TestGenerate_IgnoresItsOldOutput(t *testing.T) {
	dir := writePackage(t, chat)
	first, _, err := codegen.Generate(dir, output, nil)
	require.NoError(t, err)
	writeFile(t, dir, output, string(first))
	require.Empty(t, build(dir))
	again, _, err := codegen.Generate(dir, output, nil)
	require.NoError(t, err)
	assert.Equal(t, string(first), string(again))

	writeFile(t, dir, output, "package chat\n\nfunc (m *Say) DecodeJSON(Gone) {}\nfunc decode() {}\n")
	again, _, err = codegen.Generate(dir, output, nil)
	require.NoError(t, err)
	assert.Equal(t, string(first), string(again))
}

func TestGenerate_OutputDoesNotCompileAfterATypeHasChanged(t *testing.T) {
	dir := writePackage(t, chat)
	code, _, err := codegen.Generate(dir, output, nil)
	require.NoError(t, err)
	writeFile(t, dir, output, string(code))
	require.Empty(t, build(dir))
	for _, change := range [][2]string{
		{"Kind Kind\n", "Kind Kind\n\tNew int\n"},
		{"Kind Kind\n", "Kind Kind `json:\"kind\"`\n"},
		{`json:"room"`, `json:"room,omitempty"`},
		{"Kind uint8", "Kind int8"},
	} {
		changed := strings.Replace(chat, change[0], change[1], 1)
		require.NotEqual(t, chat, changed)
		writeFile(t, dir, "messages.go", changed)
		assert.Contains(t, build(dir), output, "%q", change[1])
	}
}

func TestGenerate_AvoidsNamesOfThePackage(t *testing.T) {
	dir := writePackage(t, `package chat

import strconv2 "strconv"

type Say struct {
	N    int
	Next *Say
	Any  any
}

type jsoncode struct{}

var strconv = strconv2.Itoa(1)

func decodeJSONSay() {}

func (Say) MessageType() string { return "SAY" }
`)
	code, _, err := codegen.Generate(dir, output, nil)
	require.NoError(t, err)
	writeFile(t, dir, output, string(code))
	assert.Empty(t, build(dir))
}

func TestGenerate_FindsMessageTypes(t *testing.T) {
	dir := writePackage(t, `package chat

type (
	ByValue   struct{ A int }
	ByPointer struct{ A int }
	Promoted  struct{ ByValue }
	Other     struct{ A int }
	Text      string
	Alias   = ByValue
	Page[T any] struct{ Items []T }
	private struct{ A int }
)

func (ByValue) MessageType() string    { return "" }
func (*ByPointer) MessageType() string { return "" }
func (Text) MessageType() string       { return "" }
func (Page[T]) MessageType() string    { return "" }
func (private) MessageType() string    { return "" }
`)
	code, left, err := codegen.Generate(dir, output, nil)
	require.NoError(t, err)
	assert.Empty(t, left)
	for _, want := range []string{"(m ByValue) AppendJSON", "(m *ByPointer) AppendJSON", "(m Promoted) AppendJSON", "(m private) AppendJSON"} {
		assert.Contains(t, string(code), want)
	}
	assert.Equal(t, 4, strings.Count(string(code), ") AppendJSON("))
	writeFile(t, dir, output, string(code))
	assert.Empty(t, build(dir))

	code, _, err = codegen.Generate(dir, output, []string{"Other"})
	require.NoError(t, err)
	assert.Contains(t, string(code), "func (m Other) AppendJSON")
	assert.Equal(t, 1, strings.Count(string(code), ") AppendJSON("))
}

// A fieldCase is the fields of a struct, and why it has no generated code.
type fieldCase struct{ fields, want string }

// writeCases writes a package with a message type for each case, M0, M1, …, and one that is Fine. It returns
// the names and, for each case, the expected reason.
func writeCases(t *testing.T, cases []fieldCase) (dir string, names, reasons []string) {
	var b strings.Builder
	b.WriteString(`package chat

import (
	"net/netip"
	"time"

	"github.com/penstock-go/penstock/limit"
)

type (
	inner struct{ A int }
	text  struct{ A int }
	text2 struct{ A int }
	Fine  struct{ At time.Time }
)

var _ = []any{netip.Addr{}, limit.Decision{}}

func (text) MarshalText() ([]byte, error)  { return nil, nil }
func (text2) MarshalText() ([]byte, error) { return nil, nil }
func (Fine) MessageType() string           { return "FINE" }
`)
	for i, c := range cases {
		name := fmt.Sprintf("M%02d", i)
		names = append(names, name)
		fmt.Fprintf(&b, "\ntype %s struct { %s }\n\nfunc (%[1]s) MessageType() string { return \"\" }\n", name, c.fields)
		reasons = append(reasons, name+": "+c.want)
	}
	return writePackage(t, b.String()), names, reasons
}

func TestGenerate_ReportsTypesThatItDoesNotSupport(t *testing.T) {
	dir, names, reasons := writeCases(t, []fieldCase{
		{"A int `json:\"a,case:ignore\"`", `A: generated code does not know the option "case:ignore"`},
		{"A int `json:\"a,format:hex\"`", `A: generated code does not know the option "format:hex"`},
		{"A int `json:\"'a'\"`", "A: the tag \"'a'\" is unusual"},
		{"A int `json:\"a,\"`", `A: the tag "a," is unusual`},
		{"A int `json:\",,omitzero\"`", `A: the tag ",,omitzero" is unusual`},
		{"A map[string]int `json:\",embed\"`", "A: only structs are embedded by generated code; give the field a JSON name"},
		{"time.Month", "Month: only structs are embedded by generated code; give the field a JSON name"},
		{"B int; limit.Decision", "Decision: a struct of another package is embedded; copy its fields, or give the field a JSON name"},
		{"*inner", "inner: a pointer to an unexported struct is embedded; embed the struct"},
		{"inner `json:\"inner\"`", "inner: an unexported embedded type has a JSON name"},
		{"A netip.Addr `json:\",string\"`", "A: generated code does not know the option string for net/netip.Addr"},
		{"A interface{ IsZero() bool } `json:\",omitzero\"`", "A: generated code does not know the option omitzero for an interface with IsZero"},
	})
	code, left, err := codegen.Generate(dir, output, nil)
	require.NoError(t, err)
	assert.Equal(t, reasons, left)
	assert.Equal(t, 1, strings.Count(string(code), ") AppendJSON("), "methods of Fine alone")
	_, _, err = codegen.Generate(dir, output, names)
	assert.EqualError(t, err, strings.Join(reasons, "\n"))
}

func TestGenerate_FailsForTypesThatTheLibraryRejects(t *testing.T) {
	const exclude = " has no JSON form; exclude the field with the tag `json:\"-\"`"
	dir, names, reasons := writeCases(t, []fieldCase{
		{"A time.Duration", "A: time.Duration has no JSON form; declare an integer, named for its unit: TimeoutMs int64"},
		{"A []map[string]time.Duration", "A: time.Duration has no JSON form; declare an integer, named for its unit: TimeoutMs int64"},
		{"A chan int", "A: the type chan int" + exclude},
		{"A struct{ B func() }", "A: B: the type func()" + exclude},
		{"A complex128", "A: the type complex128" + exclude},
		{"A int; B int `json:\"A\"`", `B: another field is also named "A" in JSON`},
		{"a int `json:\"a\"`", "a is not exported, but has a JSON tag"},
		{"A string `json:\",string\"`", "A: the option string is for numbers, not for string"},
		{"A []int `json:\",string\"`", "A: the option string is for numbers, not for []int"},
		{"A int `json:\",omitzero,omitzero\"`", `A has the option "omitzero" twice`},
		{"a int", "M10 has no exported fields; the JSON library rejects it"},
		{"inner `json:\",omitempty\"`", "inner is embedded and must have neither a JSON name nor other options"},
		{"A inner `json:\"a,embed\"`", "A is embedded and must have neither a JSON name nor other options"},
		{"text; text2", "text: an embedded type has the method MarshalText; give the field a JSON name"},
	})
	for _, names := range [][]string{nil, names} {
		_, _, err := codegen.Generate(dir, output, names)
		assert.EqualError(t, err, strings.Join(reasons, "\n"))
	}
}

func TestGenerate_ReportsTypesWithMethodsOfTheirOwn(t *testing.T) {
	dir := writePackage(t, `package chat

type (
	JSON   struct{ A int }
	Mine   struct{ A int }
	Fine   struct{ A JSON }
)

func (*JSON) UnmarshalJSON(p []byte) error              { return nil }
func (Mine) AppendJSON(b []byte) ([]byte, error)        { return b, nil }
func (JSON) MessageType() string                        { return "" }
func (Mine) MessageType() string                        { return "" }
func (Fine) MessageType() string                        { return "" }
`)
	code, left, err := codegen.Generate(dir, output, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"JSON encodes itself with its method UnmarshalJSON", "Mine has a method AppendJSON of its own"}, left)
	assert.Contains(t, string(code), "s.Value(&v.A)")
}

func TestGenerate_FailsForTypesThatItCannotFind(t *testing.T) {
	dir := writePackage(t, `package chat

type (
	Number int
	Page[T any] struct{ Items []T }
	Alias = struct{}
)
`)
	for name, want := range map[string]string{
		"Gone":   "package chat has no type Gone",
		"Number": "Number is not a struct",
		"Page":   "Page has type parameters; methods for some of its types cannot be generated",
		"Alias":  "Alias is an alias; give the name of its type",
	} {
		_, _, err := codegen.Generate(dir, output, []string{name})
		assert.EqualError(t, err, want)
	}
	_, _, err := codegen.Generate(dir, output, nil)
	assert.EqualError(t, err, "package chat has no message types for which code can be generated: structs with a method MessageType() string")
	_, _, err = codegen.Generate(t.TempDir(), output, nil)
	assert.Error(t, err)
	_, _, err = codegen.Generate(writePackage(t, "package chat\n\ntype Say struct {"), output, nil)
	assert.ErrorContains(t, err, "messages.go:3")
	_, _, err = codegen.Generate(writePackage(t, "package chat\n\ntype Say struct { A Gone }\n\nfunc (Say) MessageType() string { return \"\" }\n"), output, nil)
	assert.EqualError(t, err, "Say: A: its type has an error; fix what the compiler reports first")
}

func TestGenerate_FailsIfATypeWouldHaveTheMethodsOfItsPart(t *testing.T) {
	dir := writePackage(t, `package chat

type (
	Base   struct{ A int }
	Middle struct{ *Base }
	Outer  struct {
		Middle
		B int
	}
)

func (Base) MessageType() string { return "" }
`)
	_, _, err := codegen.Generate(dir, output, []string{"Base", "Middle"})
	assert.EqualError(t, err, "Outer embeds Middle and would be encoded by its generated methods; generate methods for Outer, too, or make Middle a named field")
	_, _, err = codegen.Generate(dir, output, nil) // all of them have the promoted MessageType
	assert.NoError(t, err)
}

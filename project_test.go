package penstock_test

import (
	"bytes"
	"fmt"
	"go/build"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// linkedModules returns the modules that a program links when it imports the router. The
// list is documented, so extending it needs a decision.
func linkedModules() []string {
	modules := []string{"github.com/coder/websocket", "github.com/penstock-go/penstock"}
	standard := slices.Contains(build.Default.ReleaseTags, "go1.27") && slices.Contains(build.Default.ToolTags, "goexperiment.jsonv2")
	if !standard { // the standard library has no encoding/json/v2
		modules = slices.Insert(modules, 1, "github.com/go-json-experiment/json")
	}
	return modules
}

func TestRouter_LinksOnlyListedModules(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./router").Output()
	require.NoError(t, err)
	modules := strings.Fields(string(out))
	slices.Sort(modules)
	assert.Equal(t, linkedModules(), slices.Compact(modules))
}

// TestClient_LinksNeitherRouterNorBroker keeps programs with a client small.
func TestClient_LinksNeitherRouterNorBroker(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if .Module}}{{.ImportPath}}{{end}}", "./client").Output()
	require.NoError(t, err)
	for dep := range strings.FieldsSeq(string(out)) {
		if pkg, ok := strings.CutPrefix(dep, "github.com/penstock-go/penstock/"); ok {
			assert.Contains(t, []string{"client", "errors", "internal/executor", "internal/jsonv2", "internal/wire"}, pkg)
		}
	}
}

// TestCodecs_LinkTheirFormatAlone keeps the library of a format out of programs that do not use it.
func TestCodecs_LinkTheirFormatAlone(t *testing.T) {
	for pkg, formats := range map[string][]string{
		"codec/cbor":     {"github.com/fxamacker/cbor/v2", "github.com/x448/float16"},
		"codec/protobuf": {"google.golang.org/protobuf"},
	} {
		out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./"+pkg).Output()
		require.NoError(t, err)
		modules := strings.Fields(string(out))
		slices.Sort(modules)
		want := append(linkedModules(), formats...)
		slices.Sort(want)
		assert.Equal(t, want, slices.Compact(modules), pkg)
	}
}

// TestJSONCode_LinksOnlyTheJSONLibrary keeps packages with generated code free of the router.
func TestJSONCode_LinksOnlyTheJSONLibrary(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./codec/jsoncode").Output()
	require.NoError(t, err)
	modules := strings.Fields(string(out))
	slices.Sort(modules)
	assert.Equal(t, slices.DeleteFunc(linkedModules(), func(m string) bool { return m == "github.com/coder/websocket" }), slices.Compact(modules))
}

// TestContract_AloneLinksJSONSchema keeps the library of JSON Schema out of programs that do not generate
// a contract.
func TestContract_AloneLinksJSONSchema(t *testing.T) {
	const library = "github.com/google/jsonschema-go"
	out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./contract").Output()
	require.NoError(t, err)
	modules := strings.Fields(string(out))
	slices.Sort(modules)
	want := append(linkedModules(), library)
	slices.Sort(want)
	assert.Equal(t, want, slices.Compact(modules))

	out, err = exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...").Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		pkg, imports, _ := strings.Cut(line, " ")
		if pkg != "github.com/penstock-go/penstock/contract" {
			assert.NotContains(t, imports, library, pkg)
		}
	}
}

// TestContracts_LinkNeitherRouterNorWebSocket keeps limiters and brokers useful without
// WebSockets.
func TestContracts_LinkNeitherRouterNorWebSocket(t *testing.T) {
	const module = "github.com/penstock-go/penstock/"
	for _, pkg := range []string{"limit", "limit/limittest", "broker", "broker/brokertest", "adapters/durableobject", "adapters/memory", "adapters/redis", "outbound", "internal/batch", "internal/keyname", "internal/lease", "internal/cluster"} {
		out, err := exec.Command("go", "list", "-deps", "./"+pkg).Output()
		require.NoError(t, err)
		for dep := range strings.FieldsSeq(string(out)) {
			for _, forbidden := range []string{"github.com/coder/websocket", module + "router", module + "internal/wsconn", module + "middleware"} {
				assert.False(t, strings.HasPrefix(dep, forbidden), "%s imports %s", pkg, dep)
			}
		}
	}
	out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./limit").Output()
	require.NoError(t, err)
	modules := strings.Fields(string(out))
	slices.Sort(modules)
	assert.Equal(t, []string{"github.com/penstock-go/penstock"}, slices.Compact(modules), "limit links no other module")
}

var program = regexp.MustCompile("(?ms)^```go\n(package (\\w+)$.*?)^```$")

// TestDocuments_ProgramsCompile vets every Go block that begins with a package
// clause. The blocks of a package that is not main belong together.
func TestDocuments_ProgramsCompile(t *testing.T) {
	found := 0
	for _, path := range documents(t) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		packages := map[string][][]byte{}
		for i, block := range program.FindAllSubmatch(text, -1) {
			found++
			name := string(block[2])
			if name == "main" {
				name = fmt.Sprint(name, i)
			}
			packages[name] = append(packages[name], block[1])
		}
		for name, blocks := range packages {
			t.Run(path+" "+name, func(t *testing.T) { vet(t, blocks) })
		}
	}
	assert.Positive(t, found)
}

// TestReadme_ProgramIsInPackageDocumentation compares doc.go with README.md. The program
// itself is vetted by TestDocuments_ProgramsCompile.
func TestReadme_ProgramIsInPackageDocumentation(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	programs := program.FindAllSubmatch(readme, -1)
	require.Len(t, programs, 1)
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	text := regexp.MustCompile("(?m)^//\t?").ReplaceAllString(string(doc), "")
	assert.Contains(t, text, string(programs[0][1]))
}

func vet(t *testing.T, blocks [][]byte) {
	//nolint:usetesting // it must be inside the module, so that its packages are found
	dir, err := os.MkdirTemp(".", "_program")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for i, source := range blocks {
		name := fmt.Sprint("file", i, ".go")
		if bytes.Contains(source, []byte("*testing.T")) {
			name = fmt.Sprint("file", i, "_test.go")
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), source, 0o600))
	}
	out, err := exec.Command("go", "vet", "./"+dir).CombinedOutput()
	assert.NoError(t, err, "%s", out)
}

var link = regexp.MustCompile(`\]\(([^)#:\s]+(?:\.(?:md|svg|png|json|yml)|/))(?:#[^)]*)?\)`)

func TestDocuments_LinksExist(t *testing.T) {
	for _, path := range documents(t) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, match := range link.FindAllSubmatch(text, -1) {
			_, err := os.Stat(filepath.Join(filepath.Dir(path), string(match[1])))
			assert.NoError(t, err, "%s", path)
		}
	}
}

// documents returns the Markdown files of the project.
func documents(t *testing.T) []string {
	var paths []string
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules") && path != "." {
			return fs.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			paths = append(paths, path)
		}
		return nil
	}))
	return paths
}

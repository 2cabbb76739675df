package api_test

import (
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPublicAPI_MentionsNoJSONLibrary keeps the exported identifiers the same with every version of
// Go: internal/jsonv2 selects its library by version.
func TestPublicAPI_MentionsNoJSONLibrary(t *testing.T) {
	library := regexp.MustCompile(`^(github\.com/go-json-experiment/|encoding/json/|github\.com/penstock-go/penstock/internal/jsonv2$)`)
	packages := publicPackages(t)
	require.Greater(t, len(packages), 8)
	for _, pkg := range packages {
		walk := &apiWalk{seen: map[types.Type]bool{}, visit: func(path string, name *types.TypeName) {
			if name.Pkg() != nil {
				assert.NotRegexp(t, library, name.Pkg().Path(), "the type of %s", path)
			}
		}}
		for _, name := range pkg.Scope().Names() {
			if token.IsExported(name) {
				walk.object(pkg.Path()+"."+name, pkg.Scope().Lookup(name))
			}
		}
	}
}

// publicPackages returns the packages that users can import, with their types.
func publicPackages(t *testing.T) []*types.Package {
	command := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Name}} {{.Export}}", "./...")
	command.Dir, command.Stderr = "../../..", os.Stderr
	out, err := command.Output()
	require.NoError(t, err)
	files, public := map[string]string{}, []string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue // unsafe and packages of tests have no export file
		}
		path, name := fields[0], fields[1]
		files[path] = fields[2]
		if strings.HasPrefix(path, "github.com/penstock-go/penstock/") && name != "main" && !strings.Contains(path, "/internal/") {
			public = append(public, path)
		}
	}
	load := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(files[path])
	})
	var packages []*types.Package
	for _, path := range public {
		pkg, err := load.Import(path)
		require.NoError(t, err)
		packages = append(packages, pkg)
	}
	return packages
}

// An apiWalk visits every type that users of an exported identifier can name or receive. It does
// not look into the types of other modules.
type apiWalk struct {
	seen  map[types.Type]bool
	visit func(path string, name *types.TypeName)
}

func (w *apiWalk) object(path string, o types.Object) {
	w.walk(path, o.Type())
}

func (w *apiWalk) walk(path string, t types.Type) {
	if w.seen[t] {
		return
	}
	w.seen[t] = true
	switch t := t.(type) {
	case *types.Alias:
		w.visit(path, t.Obj())
		if t.Obj().Pkg() != nil && t.Obj().Pkg().Path() == "encoding/json" {
			return // json.RawMessage is the same name in all versions, whatever its definition
		}
		w.walk(path, t.Rhs())
	case *types.Named:
		w.named(path, t)
	case *types.TypeParam:
		w.walk(path, t.Constraint())
	case *types.Struct:
		for field := range t.Fields() {
			if field.Exported() || field.Embedded() {
				w.object(path+"."+field.Name(), field)
			}
		}
	case *types.Interface:
		for method := range t.Methods() {
			w.object(path+"."+method.Name(), method)
		}
		for embedded := range t.EmbeddedTypes() {
			w.walk(path, embedded)
		}
	case *types.Union:
		for term := range t.Terms() {
			w.walk(path, term.Type())
		}
	case *types.Signature:
		for param := range t.TypeParams().TypeParams() {
			w.walk(path, param)
		}
		w.walk(path, t.Params())
		w.walk(path, t.Results())
	case *types.Tuple:
		for v := range t.Variables() {
			w.walk(path, v.Type())
		}
	case *types.Map:
		w.walk(path, t.Key())
		w.walk(path, t.Elem())
	case interface{ Elem() types.Type }: // pointers, slices, arrays, channels
		w.walk(path, t.Elem())
	}
}

func (w *apiWalk) named(path string, t *types.Named) {
	w.visit(path, t.Obj())
	for argument := range t.TypeArgs().Types() {
		w.walk(path, argument)
	}
	if t.Obj().Pkg() == nil || !strings.HasPrefix(t.Obj().Pkg().Path(), "github.com/penstock-go/penstock/") {
		return
	}
	for method := range t.Methods() {
		if method.Exported() {
			w.object(path+"."+method.Name(), method)
		}
	}
	w.walk(path, t.Underlying())
}

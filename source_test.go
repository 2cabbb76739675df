package penstock_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests of the quick tier read the source of the module without type-checking it, because the
// types of all that it imports take longer to build than the tests may run.

// missingIdentifiers returns the identifiers of this module that a file uses and that do not exist.
func missingIdentifiers(source string) (missing []string, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	exported := map[string]map[string]bool{} // by the name of the import
	for name, path := range importsOf(file) {
		pkg, ok := strings.CutPrefix(path, module+"/")
		if !ok {
			continue
		}
		if exported[name], err = exportedNames(pkg); err != nil {
			return nil, err
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok {
			pkg, _ := selector.X.(*ast.Ident)
			if pkg != nil && exported[pkg.Name] != nil && !exported[pkg.Name][selector.Sel.Name] {
				missing = append(missing, pkg.Name+"."+selector.Sel.Name)
			}
		}
		return true
	})
	return missing, nil
}

// importsOf returns the paths that a file imports by the names that it uses for them. The name of a
// package is the last part of its path; those of major versions do not matter here.
func importsOf(file *ast.File) map[string]string {
	imports := map[string]string{}
	for _, spec := range file.Imports {
		importPath, _ := strconv.Unquote(spec.Path.Value)
		name := path.Base(importPath)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imports[name] = importPath
	}
	return imports
}

// parsePackage parses the files of a package, without its tests, for all systems and releases.
func parsePackage(dir string) (files []*ast.File, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("%s: %w", dir, fs.ErrNotExist)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, err
}

// exportedByPackage has the results of exportedNames.
var exportedByPackage = map[string]map[string]bool{}

// exportedNames returns the identifiers of a package that are no methods or fields.
func exportedNames(dir string) (map[string]bool, error) {
	if names := exportedByPackage[dir]; names != nil {
		return names, nil
	}
	files, err := parsePackage(dir)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, file := range files {
		for _, declaration := range file.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					names[d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						names[s.Name.Name] = true
					case *ast.ValueSpec:
						for _, name := range s.Names {
							names[name.Name] = true
						}
					}
				}
			}
		}
	}
	exportedByPackage[dir] = names
	return names, nil
}

func TestMissingIdentifiers(t *testing.T) {
	missing, err := missingIdentifiers(`package p
import (
	"net/http"
	adapter "github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/router"
)
var _ = router.New(&router.Options{Limits: router.Limit{}})
var _ = adapter.NewLimiters(http.None)
var _ = router.Handle
`)
	require.NoError(t, err)
	assert.Equal(t, []string{"router.Limit", "adapter.NewLimiters", "router.Handle"}, missing)
	_, err = missingIdentifiers("package p\nfunc f() {")
	assert.Error(t, err)
	_, err = missingIdentifiers("package p\nimport \"github.com/penstock-go/penstock/none\"\n")
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

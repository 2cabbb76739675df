package penstock_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// emptyImports imports packages without names. What a file gets from other packages does not matter here.
type emptyImports map[string]*types.Package

func (e emptyImports) Import(path string) (*types.Package, error) {
	if e[path] == nil {
		e[path] = types.NewPackage(path, filepath.Base(path))
		e[path].MarkComplete()
	}
	return e[path], nil
}

// A fileCall is a function of a file that another file uses.
type fileCall struct{ from, to string }

// fileCalls returns which files of a package use functions of which others, without the suffix .go.
func fileCalls(t *testing.T, folder string) map[fileCall]bool {
	names, err := filepath.Glob(folder + "/*.go")
	require.NoError(t, err)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			files = append(files, file)
		}
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: emptyImports{}, Error: func(error) {}, FakeImportC: true}
	pkg, _ := config.Check(folder, fset, files, info) // with errors, because the imports are empty
	calls := map[fileCall]bool{}
	for ident, object := range info.Uses {
		if _, ok := object.(*types.Func); ok && object.Pkg() == pkg {
			fileOf := func(pos token.Pos) string {
				return strings.TrimSuffix(filepath.Base(fset.Position(pos).Filename), ".go")
			}
			calls[fileCall{fileOf(ident.Pos()), fileOf(object.Pos())}] = true
		}
	}
	return calls
}

// TestHouse_FilesOfRouterCallLowerFloors counts the pairs of files of which the lower one calls the higher one.
func TestHouse_FilesOfRouterCallLowerFloors(t *testing.T) {
	floors := map[string]int{}
	for _, row := range readTable(t, "floors.txt") {
		if row[0] == "router" {
			for _, name := range row[2:] {
				floors[name] = number(t, row[1])
			}
		}
	}
	var up []fileCall
	for call := range fileCalls(t, "router") {
		for _, name := range []string{call.from, call.to} {
			assert.Contains(t, floors, name, "testdata/floors.txt must have the file of package router")
		}
		if floors[call.to] > floors[call.from] {
			up = append(up, call)
		}
	}
	allowed := budgets(t, "arrows")["router"]
	assert.LessOrEqual(t, len(up), allowed, "files call files of higher floors more often: %v", up)
	assert.GreaterOrEqual(t, len(up), allowed-5, "lower the budget to %d", len(up))
}

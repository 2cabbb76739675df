package testscale_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSkippedTests_HaveSmallerTests reads the source of all modules.
func TestSkippedTests_HaveSmallerTests(t *testing.T) {
	found := 0
	for dir, functions := range testFunctions(t, os.DirFS("../..")) {
		problems, calls := check(functions)
		found += calls
		for _, problem := range problems {
			assert.Fail(t, problem, dir)
		}
	}
	assert.Greater(t, found, 10)
}

func TestCheck_FindsProblems(t *testing.T) {
	const source = `package p
import "testing"
func TestGood(t *testing.T)      { testscale.FullOnly(t, "TestSmall") }
func TestSmall(t *testing.T)     { open(t, 1) }
func TestMissing(t *testing.T)   { testscale.FullOnly(t, "TestNone") }
func TestSelf(t *testing.T)      { testscale.SoakOnly(t, "TestSelf") }
func TestIndirect(t *testing.T)  { testscale.FullOnly(t, "TestHelped") }
func TestHelped(t *testing.T)    { t.Run("", func(t *testing.T) { server{}.start(t) }) }
func (server) start(t *testing.T) { big(t) }
func big(t *testing.T)           { testscale.FullOnly(t, "TestSmall") }
func TestComputed(t *testing.T)  { testscale.FullOnly(t, name) }
func TestHelper(t *testing.T)    { testscale.FullOnly(t, "open") }
func open(t *testing.T, n int)   {}
func TestShort(t *testing.T)     { if testing.Short() { return } }
`
	file, err := parser.ParseFile(token.NewFileSet(), "p_test.go", source, 0)
	require.NoError(t, err)
	functions := map[string]*ast.FuncDecl{}
	collect(file, functions)
	problems, calls := check(functions)
	assert.Equal(t, 7, calls)
	assert.Equal(t, []string{
		"TestComputed: the name of the smaller test must be a literal",
		`TestHelper: "open" is not the name of a test`,
		`TestIndirect: the smaller test TestHelped does not run in the quick tier`,
		"TestMissing: there is no function TestNone in the package",
		"TestSelf: the smaller test TestSelf does not run in the quick tier",
		"TestShort: testing.Short is not how tests are reduced; see package testscale",
	}, problems)
}

func testFunctions(t *testing.T, tree fs.FS) map[string]map[string]*ast.FuncDecl {
	packages := map[string]map[string]*ast.FuncDecl{}
	files := token.NewFileSet()
	require.NoError(t, fs.WalkDir(tree, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && path != "." && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "testdata") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "internal/testscale/") {
			return nil
		}
		source, err := fs.ReadFile(tree, path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(files, path, source, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		if packages[dir] == nil {
			packages[dir] = map[string]*ast.FuncDecl{}
		}
		collect(file, packages[dir])
		return nil
	}))
	return packages
}

// collect adds the functions of a file. Methods of the same name count as one, which is strict
// enough to see whether one of them skips a test.
func collect(file *ast.File, functions map[string]*ast.FuncDecl) {
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok || function.Body == nil {
			continue
		}
		name := function.Name.Name
		if other := functions[name]; other != nil {
			body := &ast.BlockStmt{List: slices.Concat(other.Body.List, function.Body.List)}
			function = &ast.FuncDecl{Name: function.Name, Type: function.Type, Body: body}
		}
		functions[name] = function
	}
}

// check returns what is wrong with the calls of FullOnly and SoakOnly in a package, and their number.
func check(functions map[string]*ast.FuncDecl) (problems []string, calls int) {
	skips := map[string]bool{} // names of functions that skip, themselves or in what they call
	for changed := true; changed; {
		changed = false
		for name, function := range functions {
			if !skips[name] && mentions(function, skips) {
				skips[name], changed = true, true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		ast.Inspect(functions[name].Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if isSelector(n.Fun, "testing", "Short") {
					problems = append(problems, name+": testing.Short is not how tests are reduced; see package testscale")
				}
				if isSkip(n.Fun) {
					calls++
					if problem := checkSmaller(functions, skips, n.Args[1]); problem != "" {
						problems = append(problems, name+": "+problem)
					}
				}
			}
			return true
		})
	}
	return problems, calls
}

// checkSmaller returns what is wrong with the smaller test that a call names.
func checkSmaller(functions map[string]*ast.FuncDecl, skips map[string]bool, argument ast.Expr) string {
	literal, ok := argument.(*ast.BasicLit)
	if !ok {
		return "the name of the smaller test must be a literal"
	}
	smaller, err := strconv.Unquote(literal.Value)
	switch {
	case err != nil:
		return err.Error()
	case !strings.HasPrefix(smaller, "Test") && !strings.HasPrefix(smaller, "Fuzz") && !strings.HasPrefix(smaller, "Example"):
		return strconv.Quote(smaller) + " is not the name of a test"
	case functions[smaller] == nil:
		return "there is no function " + smaller + " in the package"
	case skips[smaller]:
		return "the smaller test " + smaller + " does not run in the quick tier"
	}
	return ""
}

// mentions reports whether a function skips tests of the quick tier, or uses one that does.
func mentions(function *ast.FuncDecl, skips map[string]bool) bool {
	found := false
	ast.Inspect(function.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			found = found || isSkip(n)
		case *ast.Ident:
			found = found || skips[n.Name]
		}
		return !found
	})
	return found
}

func isSkip(e ast.Expr) bool {
	return isSelector(e, "testscale", "FullOnly") || isSelector(e, "testscale", "SoakOnly")
}

func isSelector(e ast.Expr, of, name string) bool {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != name {
		return false
	}
	identifier, ok := selector.X.(*ast.Ident)
	return ok && identifier.Name == of
}

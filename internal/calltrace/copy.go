package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// resultsVariable is the environment variable with the file to which the tests append what they have entered.
const resultsVariable = "PENSTOCK_CALLTRACE"

// notLibrary are the folders whose functions are not counted: tests and what only tests use.
var notLibrary = []string{ //nolint:gochecknoglobals // constant
	"internal/calltrace", "internal/redistest", "internal/simnet", "internal/testscale", "router/routertest",
	"client", "examples", "cmd", "docs", "website",
}

// copyModule copies the files of the main module that git knows into a folder. In the copy, each function of the
// library calls record.Enter.
func copyModule(folder string) error {
	out, err := exec.Command("git", "ls-files", "-co", "--exclude-standard").Output()
	if err != nil {
		return err
	}
	for file := range strings.Lines(string(out)) {
		file = strings.TrimSpace(file)
		text, err := os.ReadFile(file) //nolint:gosec // of this module
		if err != nil {
			continue // deleted, and not committed yet
		}
		if isLibrary(file) {
			if text, err = enterFunctions(file, text); err != nil {
				return err
			}
		}
		copied := filepath.Join(folder, file)
		if err := os.MkdirAll(filepath.Dir(copied), 0o750); err != nil {
			return err
		}
		if err := os.WriteFile(copied, text, 0o600); err != nil { //nolint:gosec // below folder
			return err
		}
	}
	return nil
}

func isLibrary(file string) bool {
	return strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") &&
		!slices.ContainsFunc(notLibrary, func(folder string) bool { return strings.HasPrefix(file, folder+"/") })
}

// enterFunctions adds calls of record.Enter to a file, without changing the numbers of its lines.
func enterFunctions(name string, text []byte) ([]byte, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var out []byte
	written := 0
	insert := func(pos token.Pos, code string) {
		offset := fset.Position(pos).Offset
		out = append(append(out, text[written:offset]...), code...)
		written = offset
	}
	insert(file.Name.End(), `; import calltrace "github.com/penstock-go/penstock/internal/calltrace/record"`)
	found := false
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
			insert(f.Body.Lbrace+1, fmt.Sprintf(" calltrace.Enter(%q); ", name))
			found = true
		}
	}
	if !found {
		return text, nil
	}
	return append(out, text[written:]...), nil
}

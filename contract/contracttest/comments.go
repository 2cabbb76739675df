package contracttest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/penstock-go/penstock/errors"
)

// A source reads comments from the source of packages. It keeps the first error.
type source struct{ err error }

// comments is contract.Options.Comments.
func (s *source) comments(pkgPath string) map[string]string {
	all := map[string]string{}
	dir, err := directoryOf(pkgPath)
	if err == nil && dir != "" {
		all, err = commentsIn(dir)
	}
	if err != nil && s.err == nil {
		s.err = fmt.Errorf("contracttest: the comments of package %s cannot be read: %w", pkgPath, err)
	}
	return all
}

// directoryOf returns the directory of a package, or of an external test package. It returns "" for packages of the
// standard library, whose comments would change with the release of Go.
func directoryOf(pkgPath string) (string, error) {
	out, err := exec.Command("go", "list", "-find", "-f", "{{if not .Standard}}{{.Dir}}{{end}}", strings.TrimSuffix(pkgPath, "_test")).Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("go list: %s", failed.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}

// commentsIn returns the comments of the types in a directory and of their fields, by name.
func commentsIn(dir string) (map[string]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			if types, ok := decl.(*ast.GenDecl); ok && types.Tok == token.TYPE {
				maps.Copy(all, commentsOf(types))
			}
		}
	}
	return all, nil
}

// commentsOf returns the comments of a declaration of types. That of the declaration belongs to its only type.
func commentsOf(decl *ast.GenDecl) map[string]string {
	all := map[string]string{}
	for _, spec := range decl.Specs {
		typ := spec.(*ast.TypeSpec)
		name := typ.Name.Name
		all[name] = typ.Doc.Text() + typ.Comment.Text()
		if !decl.Lparen.IsValid() {
			all[name] = decl.Doc.Text() + typ.Comment.Text()
		}
		fields, ok := typ.Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, f := range fields.Fields.List {
			for _, ident := range f.Names {
				all[name+"."+ident.Name] = f.Doc.Text() + f.Comment.Text()
			}
		}
	}
	return all
}

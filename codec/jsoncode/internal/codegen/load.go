package codegen

import (
	"fmt"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"

	"github.com/penstock-go/penstock/errors"
)

// load returns the types of the package in a directory. The output file counts as empty, since it
// may be out of date. Type errors do not matter as long as the types of fields are known: other code may
// call what is to be generated.
func load(dir, output string) (*types.Package, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	name, err := packageName(dir)
	if err != nil {
		return nil, err
	}
	found, err := packages.Load(&packages.Config{
		Mode:    packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedTypes | packages.NeedSyntax, // types of imports from the build cache
		Dir:     dir,
		Overlay: map[string][]byte{filepath.Join(dir, output): []byte("package " + name + "\n")},
	}, ".")
	if err != nil {
		return nil, err
	}
	for _, e := range found[0].Errors {
		compiled := strings.HasPrefix(e.Msg, "# "+found[0].PkgPath+"\n") // the type errors again, from the compiler
		if e.Kind != packages.TypeError && !compiled {
			return nil, e
		}
	}
	return found[0].Types, nil
}

// packageName returns the name of the package in a directory.
func packageName(dir string) (string, error) {
	found, err := packages.Load(&packages.Config{Mode: packages.NeedName, Dir: dir}, ".")
	if err != nil {
		return "", err
	}
	if found[0].Name == "" {
		if len(found[0].Errors) > 0 {
			return "", found[0].Errors[0]
		}
		return "", fmt.Errorf("%s contains no Go package", dir)
	}
	return found[0].Name, nil
}

// messages returns the names of the message types of a package, sorted.
func messages(pkg *types.Package) (names []string) {
	for _, name := range pkg.Scope().Names() {
		if t, err := lookup(pkg, name); err == nil && hasMethod(t, "MessageType") {
			names = append(names, name)
		}
	}
	return names
}

// lookup returns a struct type of a package by name.
func lookup(pkg *types.Package, name string) (*types.Named, error) {
	object, ok := pkg.Scope().Lookup(name).(*types.TypeName)
	if !ok {
		return nil, fmt.Errorf("package %s has no type %s", pkg.Name(), name)
	}
	t, ok := object.Type().(*types.Named)
	if !ok || object.IsAlias() {
		return nil, fmt.Errorf("%s is an alias; give the name of its type", name)
	}
	if t.TypeParams().Len() > 0 {
		return nil, fmt.Errorf("%s has type parameters; methods for some of its types cannot be generated", name)
	}
	if _, ok := t.Underlying().(*types.Struct); !ok {
		return nil, fmt.Errorf("%s is not a struct", name)
	}
	return t, nil
}

// hasMethod reports whether a type or a pointer to it has a method, declared or promoted.
func hasMethod(t types.Type, name string) bool {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	object, _, _ := types.LookupFieldOrMethod(t, true, nil, name)
	_, ok := object.(*types.Func)
	return ok
}

// hasValueMethod reports whether a type, and not only a pointer to it, has a method.
func hasValueMethod(t types.Type, name string) bool {
	object, _, _ := types.LookupFieldOrMethod(t, false, nil, name)
	_, ok := object.(*types.Func)
	return ok
}

// encodingMethods are the methods with which types encode themselves (encoding/json/v2).
func encodingMethods() []string {
	return []string{"MarshalJSONTo", "MarshalJSON", "AppendText", "MarshalText", "UnmarshalJSONFrom", "UnmarshalJSON", "UnmarshalText"}
}

// ownEncoding returns the method with which a type encodes itself, or "".
func ownEncoding(t types.Type) string {
	for _, name := range encodingMethods() {
		if hasMethod(t, name) {
			return name
		}
	}
	return ""
}

// errEmbeds says that a type would have methods that were generated for a part of it.
func errEmbeds(outer, inner string) error {
	return fmt.Errorf("%s embeds %s and would be encoded by its generated methods; generate methods for %s, too, or make %s a named field", outer, inner, outer, inner)
}

// checkEmbedding returns an error if a struct without generated methods embeds one with them.
func checkEmbedding(pkg *types.Package, generated []*types.Named) error {
	has := map[*types.TypeName]bool{}
	for _, t := range generated {
		has[t.Obj()] = true
	}
	var errs []error
	for _, name := range pkg.Scope().Names() {
		object, ok := pkg.Scope().Lookup(name).(*types.TypeName)
		if !ok || object.IsAlias() || has[object] {
			continue
		}
		if inner := embedded(object.Type(), has, map[types.Type]bool{}); inner != "" {
			errs = append(errs, errEmbeds(name, inner))
		}
	}
	return errors.Join(errs...)
}

// embedded returns the name of a type of has that a struct embeds, or "".
func embedded(t types.Type, has map[*types.TypeName]bool, seen map[types.Type]bool) string {
	s, ok := t.Underlying().(*types.Struct)
	if !ok || seen[t] {
		return ""
	}
	seen[t] = true
	for f := range s.Fields() {
		if !f.Embedded() {
			continue
		}
		inner := indirect(f.Type())
		if named, ok := inner.(*types.Named); ok && has[named.Obj()] {
			return named.Obj().Name()
		}
		if name := embedded(inner, has, seen); name != "" {
			return name
		}
	}
	return ""
}

// indirect returns what an unnamed pointer points to.
func indirect(t types.Type) types.Type {
	t = types.Unalias(t)
	if p, ok := t.(*types.Pointer); ok {
		return types.Unalias(p.Elem())
	}
	return t
}

// isNameable reports whether code in a package can mention a named type.
func isNameable(t *types.Named, pkg *types.Package) bool {
	object := t.Obj()
	return object.Pkg() == nil || object.Pkg() == pkg || token.IsExported(object.Name())
}

// Command platforms checks the types of the packages of a module as other systems compile them.
//
//	platforms GOOS/GOARCH[/tests]...
//
// It fails if a package cannot be compiled for one of the systems: because a name has no declaration
// there, or a constant is too large for an int. With "tests", it checks the tests, too. It takes two
// seconds per system; compilers would take more than a minute, since each compiles the standard
// library first, and would find nothing else in a module without assembly.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	for _, platform := range os.Args[1:] {
		if err := check(".", platform); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", platform, err)
			os.Exit(1)
		}
		fmt.Fprintln(os.Stdout, platform, "ok")
	}
}

// A listed package is what `go list` says about it.
type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	ImportMap  map[string]string // of what it imports under another path: for tests, and vendored
	Module     *struct{ Main bool }
}

// check checks the module of a folder for a platform such as linux/386.
func check(dir, platform string) error {
	goos, goarch, _ := strings.Cut(platform, "/")
	goarch, tests := strings.CutSuffix(goarch, "/tests")
	packages, err := list(dir, goos, goarch, tests)
	if err != nil {
		return err
	}
	c := checker{fset: token.NewFileSet(), sizes: types.SizesFor("gc", goarch), done: map[string]*types.Package{"unsafe": types.Unsafe}}
	for _, p := range packages { // each after what it imports
		if !strings.HasSuffix(p.ImportPath, ".test") { // generated
			if err := c.check(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// list returns the packages of the module and all that they import, in the order of imports.
func list(dir, goos, goarch string, tests bool) ([]listed, error) {
	cmd := exec.Command("go", "list", "-deps", fmt.Sprintf("-test=%t", tests), "-json=ImportPath,Dir,GoFiles,ImportMap,Module", "./...") //nolint:gosec // tests is a bool
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var packages []listed
	for in := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := in.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
}

// A checker checks packages for one platform.
type checker struct {
	fset  *token.FileSet
	sizes types.Sizes
	done  map[string]*types.Package // by the path that `go list` prints
}

func (c *checker) check(p listed) error {
	if p.ImportPath == "unsafe" {
		return nil
	}
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(c.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	var found []error
	config := types.Config{
		Importer:         importer{c, p.ImportMap},
		Sizes:            c.sizes,
		IgnoreFuncBodies: p.Module == nil || !p.Module.Main,
		Error:            func(err error) { found = append(found, err) },
	}
	path, _, _ := strings.Cut(p.ImportPath, " ") // of a variant for tests
	c.done[p.ImportPath], _ = config.Check(path, c.fset, files, nil)
	return errors.Join(found...)
}

// An importer returns the packages that a package imports.
type importer struct {
	c       *checker
	renamed map[string]string
}

func (i importer) Import(path string) (*types.Package, error) {
	if renamed, ok := i.renamed[path]; ok {
		path = renamed
	}
	if p, ok := i.c.done[path]; ok {
		return p, nil
	}
	return nil, fmt.Errorf("%s has not been checked", path)
}

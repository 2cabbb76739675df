package main

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
)

const rootPath = "github.com/penstock-go/penstock"

// release edits the published modules of a commit, so that they require each other in a version,
// and writes each into the proxy, because the ones that require it need its checksum. It returns
// the folders of the nested modules.
func release(c commit, version, proxy string) (nested []string, err error) {
	dirs, err := published(c.dir)
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		name := modulePath(dir)
		if dir != "." {
			nested = append(nested, dir)
			if err := requireVersion(filepath.Join(c.dir, dir), version, proxy); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		if err := addToProxy(proxy, module.Version{Path: name, Version: version}, filepath.Join(c.dir, dir), c.time); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return nested, nil
}

// modulePath returns the path of the module in a folder of the repository.
func modulePath(dir string) string {
	return path.Join(rootPath, filepath.ToSlash(dir))
}

// published returns the folders of the modules that are released, each after those that it
// requires: all but those in folders named examples, internal or testdata.
func published(root string) ([]string, error) {
	requires := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"examples", "internal", "testdata", "node_modules"}, d.Name())) {
			return filepath.SkipDir
		}
		if d.Name() != "go.mod" {
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		mod, err := readMod(path)
		if err != nil {
			return err
		}
		for _, r := range mod.Require {
			if rest, ok := strings.CutPrefix(r.Mod.Path, rootPath+"/"); ok {
				requires[dir] = append(requires[dir], filepath.FromSlash(rest))
			}
		}
		requires[dir] = append(requires[dir], ".")
		return nil
	})
	if err != nil {
		return nil, err
	}
	var order []string
	for len(order) < len(requires) {
		before := len(order)
		for _, dir := range slices.Sorted(maps.Keys(requires)) {
			ready := !slices.ContainsFunc(requires[dir], func(other string) bool { return other != dir && !slices.Contains(order, other) })
			if ready && !slices.Contains(order, dir) {
				order = append(order, dir)
			}
		}
		if len(order) == before {
			return nil, fmt.Errorf("modules require each other, or one that is not published: %v", requires)
		}
	}
	return order, nil
}

func readMod(path string) (*modfile.File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return modfile.Parse(path, data, nil)
}

// requireVersion removes the replacements of a module by folders of this repository, and requires
// the other modules in the version, which the proxy has. All other requirements and checksums are
// those of the commit, because a replacement has the same ones.
func requireVersion(dir, version, proxy string) error {
	path := filepath.Join(dir, "go.mod")
	mod, err := readMod(path)
	if err != nil {
		return err
	}
	for _, r := range slices.Clone(mod.Replace) {
		if err := mod.DropReplace(r.Old.Path, r.Old.Version); err != nil {
			return err
		}
	}
	for _, r := range slices.Clone(mod.Require) {
		if r.Mod.Path != rootPath && !strings.HasPrefix(r.Mod.Path, rootPath+"/") {
			continue
		}
		if err := mod.AddRequire(r.Mod.Path, version); err != nil {
			return err
		}
		if err := setChecksums(filepath.Join(dir, "go.sum"), module.Version{Path: r.Mod.Path, Version: version}, proxy); err != nil {
			return err
		}
	}
	mod.Cleanup()
	data, err := mod.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// setChecksums sets the two lines of a module in go.sum, which is sorted.
func setChecksums(path string, version module.Version, proxy string) error {
	files, err := inProxy(proxy, version)
	if err != nil {
		return err
	}
	zip, err := dirhash.HashZip(files+".zip", dirhash.Hash1)
	if err != nil {
		return err
	}
	mod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return os.Open(files + ".mod") })
	if err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	lines := slices.DeleteFunc(slices.Collect(strings.Lines(string(text))), func(line string) bool {
		return strings.HasPrefix(line, version.Path+" ")
	})
	at, _ := slices.BinarySearchFunc(lines, version.Path, func(line, path string) int {
		other, _, _ := strings.Cut(line, " ")
		return strings.Compare(other, path)
	})
	lines = slices.Insert(lines, at,
		fmt.Sprintf("%s %s %s\n", version.Path, version.Version, zip),
		fmt.Sprintf("%s %s/go.mod %s\n", version.Path, version.Version, mod))
	return os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600)
}

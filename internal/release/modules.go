package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const rootPath = "github.com/penstock-go/penstock"

// release edits the published modules below root, so that they require each other in a version, and
// writes each into the proxy, because the ones that require it need its checksum. It returns the
// folders of the nested modules.
func release(ctx context.Context, root, version, proxy string) (nested []string, err error) {
	dirs, err := published(root)
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		path := rootPath
		if dir != "." {
			path += "/" + filepath.ToSlash(dir)
			nested = append(nested, dir)
			if err := requireVersion(ctx, filepath.Join(root, dir), version, proxy); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
		if err := addToProxy(proxy, module.Version{Path: path, Version: version}, filepath.Join(root, dir)); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return nested, nil
}

// published returns the folders of the modules that are released, each after those that it requires:
// all but those in folders named internal or testdata.
func published(root string) ([]string, error) {
	requires := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"internal", "testdata", "node_modules"}, d.Name())) {
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
// the other modules in the version. It adds their checksums to go.sum.
func requireVersion(ctx context.Context, dir, version, proxy string) error {
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
		if r.Mod.Path == rootPath || strings.HasPrefix(r.Mod.Path, rootPath+"/") {
			if err := mod.AddRequire(r.Mod.Path, version); err != nil {
				return err
			}
		}
	}
	mod.Cleanup()
	data, err := mod.Format()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return err
	}
	return tidy(ctx, dir, proxy)
}

func tidy(ctx context.Context, dir, proxy string) error {
	cache, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(cache) }()
	env, err := environment(ctx, proxy, cache)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "go", "mod", "tidy")
	command.Dir, command.Env = dir, env
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("go mod tidy: %w: %s", err, out)
	}
	return nil
}

// environment returns variables with which the go command finds the modules of the proxy, and others
// where it finds them now. It has a module cache of its own, because a version in a cache never
// changes, and that of a rehearsal does.
func environment(ctx context.Context, proxy, cache string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOPROXY").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	known, others, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return append(os.Environ(),
		"GOPROXY=file://"+filepath.ToSlash(proxy)+",file://"+filepath.ToSlash(filepath.Join(known, "cache", "download"))+","+others,
		"GONOSUMDB="+rootPath+","+rootPath+"/*",
		"GOMODCACHE="+cache, "GOFLAGS=-modcacherw", "GOWORK=off",
	), nil
}

// addToProxy writes the files of a module version, as `go help goproxy` lists them.
func addToProxy(proxy string, version module.Version, dir string) error {
	escaped, err := module.EscapePath(version.Path)
	if err != nil {
		return err
	}
	target := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(target, 0o700); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version.Version, time.Now().UTC()})
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{"list": []byte(version.Version + "\n"), version.Version + ".info": info, version.Version + ".mod": mod} {
		if err := os.WriteFile(filepath.Join(target, name), data, 0o600); err != nil {
			return err
		}
	}
	file, err := os.Create(filepath.Join(target, version.Version+".zip"))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if err := zip.CreateFromDir(file, version, dir); err != nil {
		return err
	}
	return file.Close()
}

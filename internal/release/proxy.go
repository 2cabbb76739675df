package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// writeProxy writes the modules as they are committed into the folder dir. GOPROXY=file://dir then
// provides them.
func writeProxy(ctx context.Context, root, version, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	return withCommitted(ctx, root, func(c commit) error {
		_, err := release(c, version, dir)
		return err
	})
}

// environment returns variables with which the go command finds the modules of the proxy, and
// others where it finds them now. It has a module cache of its own, because a version in a cache
// never changes, and that of a rehearsal does. With -trimpath, packages in different caches are
// compiled once.
func environment(ctx context.Context, proxy, cache string) ([]string, error) {
	out, err := output(exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOPROXY"))
	if err != nil {
		return nil, err
	}
	known, others, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return append(os.Environ(),
		"GOPROXY=file://"+filepath.ToSlash(proxy)+",file://"+filepath.ToSlash(filepath.Join(known, "cache", "download"))+","+others,
		"GONOSUMDB="+rootPath+","+rootPath+"/*",
		"GOMODCACHE="+cache, "GOFLAGS=-modcacherw -trimpath", "GOWORK=off",
	), nil
}

// inProxy returns the path of the files of a module version in the proxy, without their extensions.
func inProxy(proxy string, version module.Version) (string, error) {
	escaped, err := module.EscapePath(version.Path)
	return filepath.Join(proxy, filepath.FromSlash(escaped), "@v", version.Version), err
}

// addToProxy writes the files of a module version, as `go help goproxy` lists them.
func addToProxy(proxy string, version module.Version, dir string, at time.Time) error {
	target, err := inProxy(proxy, version)
	if err != nil {
		return err
	}
	list := filepath.Join(filepath.Dir(target), "list")
	if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	info, err := json.Marshal(struct {
		Version string
		Time    time.Time
	}{version.Version, at})
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{list: []byte(version.Version + "\n"), target + ".info": info, target + ".mod": mod} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			return err
		}
	}
	file, err := os.Create(target + ".zip")
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if err := zip.CreateFromDir(file, version, dir); err != nil {
		return err
	}
	return file.Close()
}

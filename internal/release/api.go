package main

import (
	"cmp"
	"context"
	"fmt"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/exp/apidiff"
	"golang.org/x/mod/semver"
	"golang.org/x/tools/go/packages"
)

// api lists how the exported API of each published module differs from that of the last release. It
// returns an error if a version does not permit the changes.
func api(ctx context.Context, w io.Writer, root, version string) error {
	last, err := releaseBefore(ctx, root, version)
	if err != nil {
		return err
	}
	if last == "" {
		_, err := fmt.Fprintf(w, "no release before %s: nothing to compare with\n", version)
		return err
	}
	old, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(old) }()
	if err := checkOut(ctx, root, last, old); err != nil {
		return err
	}
	return withCommitted(ctx, root, func(c commit) error {
		text, incompatible, err := compare(ctx, old, c.dir)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
		if incompatible > 0 && !mayBreak(last, version) {
			return fmt.Errorf("%s has %d incompatible changes since %s; it must be %s", version, incompatible, last, breaking(last))
		}
		return nil
	})
}

// releaseBefore returns the last version before another one that is a tag in the history of HEAD,
// or "".
func releaseBefore(ctx context.Context, root, version string) (string, error) {
	tags, err := gitOutput(ctx, root, "tag", "--merged", "HEAD", "--list", "v*")
	if err != nil {
		return "", err
	}
	last := ""
	for tag := range strings.FieldsSeq(tags) {
		if semver.IsValid(tag) && semver.Prerelease(tag) == "" && semver.Compare(tag, version) < 0 && semver.Compare(tag, last) > 0 {
			last = tag
		}
	}
	return last, nil
}

// mayBreak reports whether a version may break what works with another one (docs/versioning.md).
func mayBreak(last, version string) bool {
	if semver.Major(last) == "v0" && semver.Major(version) == "v0" {
		return semver.MajorMinor(last) != semver.MajorMinor(version)
	}
	return semver.Major(last) != semver.Major(version)
}

// breaking says which versions may break what works with another one.
func breaking(last string) string {
	if semver.Major(last) == "v0" {
		return "the next minor version"
	}
	return "the next major version"
}

// compare returns the changes of each module that both folders have, as text, and how many of them
// are incompatible.
func compare(ctx context.Context, old, current string) (text string, incompatible int, err error) {
	before, err := published(old)
	if err != nil {
		return "", 0, err
	}
	after, err := published(current)
	if err != nil {
		return "", 0, err
	}
	var list strings.Builder
	for _, dir := range before {
		changes := []apidiff.Change{{Message: "the module is removed"}}
		if slices.Contains(after, dir) {
			if changes, err = compareModule(ctx, old, current, dir); err != nil {
				return "", 0, err
			}
		}
		_, _ = fmt.Fprintf(&list, "%s: %d changes\n", modulePath(dir), len(changes))
		for _, change := range changes {
			kind := "compatible"
			if !change.Compatible {
				kind = "incompatible"
				incompatible++
			}
			_, _ = fmt.Fprintf(&list, "  %s: %s\n", kind, change.Message)
		}
	}
	return list.String(), incompatible, nil
}

// compareModule returns the changes of one module, sorted.
func compareModule(ctx context.Context, old, current, dir string) ([]apidiff.Change, error) {
	a, err := load(ctx, old, dir)
	if err != nil {
		return nil, err
	}
	b, err := load(ctx, current, dir)
	if err != nil {
		return nil, err
	}
	changes := apidiff.ModuleChanges(a, b).Changes
	slices.SortFunc(changes, func(a, b apidiff.Change) int { return cmp.Compare(a.Message, b.Message) })
	return changes, nil
}

// load returns the packages of a module whose API the versions cover: not internal ones, examples
// and commands.
func load(ctx context.Context, root, dir string) (*apidiff.Module, error) {
	if err := replaceByFolders(root, dir); err != nil {
		return nil, err
	}
	all, err := packages.Load(&packages.Config{
		Context: ctx,
		Dir:     filepath.Join(root, dir),
		Mode:    packages.NeedName | packages.NeedTypes | packages.NeedImports | packages.NeedDeps,
		Env:     append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod"),
	}, "./...")
	if err != nil {
		return nil, err
	}
	module := &apidiff.Module{Path: modulePath(dir)}
	for _, pkg := range all {
		if len(pkg.Errors) > 0 {
			return nil, fmt.Errorf("%s: %w", pkg.PkgPath, pkg.Errors[0])
		}
		if pkg.Name != "main" && !strings.Contains(pkg.PkgPath+"/", "/internal/") && !strings.Contains(pkg.PkgPath, "/examples/") {
			module.Packages = append(module.Packages, pkg.Types)
		}
	}
	slices.SortFunc(module.Packages, func(a, b *types.Package) int { return cmp.Compare(a.Path(), b.Path()) })
	return module, nil
}

// replaceByFolders replaces what a nested module requires of the repository by its folders, because
// a version need not be published yet.
func replaceByFolders(root, dir string) error {
	path := filepath.Join(root, dir, "go.mod")
	mod, err := readMod(path)
	if err != nil {
		return err
	}
	for _, r := range mod.Require {
		rest, ok := strings.CutPrefix(r.Mod.Path, rootPath)
		if !ok {
			continue
		}
		folder, err := filepath.Rel(filepath.Join(root, dir), filepath.Join(root, filepath.FromSlash(rest)))
		if err != nil {
			return err
		}
		if err := mod.AddReplace(r.Mod.Path, "", filepath.ToSlash(folder), ""); err != nil {
			return err
		}
	}
	data, err := mod.Format()
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}
